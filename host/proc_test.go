package host_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
)

func TestParseProcessStat(t *testing.T) {
	const rest = " S 7 42 42 0 -1 4194560 1 0 0 0 2 3 0 0 20 0 5 0 1234 9 9"
	for _, test := range []struct {
		text string
		want host.ProcessStat
		err  string
	}{
		{"42 (qemu)" + rest, host.ProcessStat{Name: "qemu", State: 'S', Parent: 7, Threads: 5, Start: 1234}, ""},
		{"42 (a) b (c))" + rest, host.ProcessStat{Name: "a) b (c)", State: 'S', Parent: 7, Threads: 5, Start: 1234}, ""},
		{"42 qemu", host.ProcessStat{}, "no name"},
		{"42 )qemu(", host.ProcessStat{}, "no name"},
		{"42 (qemu) S 7", host.ProcessStat{}, "only 4 fields"},
		{"42 (qemu)" + strings.Replace(rest, " 7 ", " x ", 1), host.ProcessStat{}, "ppid"},
		{"42 (qemu)" + strings.Replace(rest, " 5 ", " x ", 1), host.ProcessStat{}, "num_threads"},
		{"42 (qemu)" + strings.Replace(rest, " 1234 ", " -1 ", 1), host.ProcessStat{}, "starttime"},
	} {
		got, err := host.ParseProcessStat(test.text)
		switch {
		case test.err == "" && (err != nil || got != test.want):
			t.Errorf("%q: %+v, %v", test.text, got, err)
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%q: %v, want %s", test.text, err, test.err)
		}
	}
}

func TestProcesses(t *testing.T) {
	root := hosttest.Lay(t, "symlink proc/12/fd/0 -> /dev/null\nsymlink proc/12/fd/3 -> /dev/vfio/4\nmkdir proc/7/fd\nmkdir proc/sys\nmkdir proc/0\n-- proc/9x --\n")
	pids, err := host.PIDs(root)
	if diff := cmp.Diff([]int{7, 12}, pids); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	targets, err := host.Descriptors(root, 12)
	if diff := cmp.Diff([]host.Descriptor{{Name: "/dev/null"}, {Name: "/dev/vfio/4"}}, targets); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if targets, err := host.Descriptors(root, 7); len(targets) != 0 || err != nil {
		t.Errorf("%v, %v", targets, err)
	}
	if _, err := host.Descriptors(root, 8); !host.HasEnded(err) || !strings.Contains(err.Error(), "/proc/8/fd") {
		t.Errorf("of a process that has ended: %v", err)
	}
	if _, err := host.PIDs(hosttest.Lay(t, "mkdir etc\n")); !host.IsAbsent(err) {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff([]string{"qemu", "-name", "", "a b"}, host.ParseArguments("qemu\x00-name\x00\x00a b\x00")); diff != "" || host.ParseArguments("\x00") != nil {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
