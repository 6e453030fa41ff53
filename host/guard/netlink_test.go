package guard

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestDumped: an answer of netlink that a change has interrupted is asked for again, and the last
// one counts. Other errors do not.
func TestDumped(t *testing.T) {
	interrupted := fmt.Errorf("links: %w", netlink.ErrDumpInterrupted)
	for _, test := range []struct {
		name    string
		errs    []error // of the answers, each of which lists its number
		want    []int
		wantErr error
	}{
		{"complete", []error{nil}, []int{1}, nil},
		{"complete the second time", []error{interrupted, nil}, []int{2}, nil},
		{"complete the last time", []error{interrupted, interrupted, interrupted, interrupted, nil}, []int{5}, nil},
		{"never complete", []error{interrupted, interrupted, interrupted, interrupted, interrupted, nil}, []int{5}, nil},
		{"an error", []error{unix.EPERM, nil}, []int{1}, unix.EPERM},
		{"an error after an interrupted answer", []error{interrupted, unix.ENOBUFS}, []int{2}, unix.ENOBUFS},
		{"an error the last time", []error{interrupted, interrupted, interrupted, interrupted, unix.ENOBUFS}, []int{5}, unix.ENOBUFS},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := 0
			got, err := dumped(func() ([]int, error) { asked++; return []int{asked}, test.errs[asked-1] })
			if !slices.Equal(got, test.want) || !errors.Is(err, test.wantErr) || test.wantErr == nil && err != nil {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestHiddenNamespace: a namespace that the kernel hides is an error unless it is one of those that
// were found, and is found if the kernel shows it by the second look.
func TestHiddenNamespace(t *testing.T) {
	root := hosttest.Lay(t, "-- proc/7/ns/net --\n-- proc/7/net/dev --\n-- proc/8/net/dev --\n-- proc/9/ns/net --\n")
	way := func(pid string) namespace {
		return namespace{pid, "/proc/" + pid + "/ns/net", func() bool { return pid == "10" }}
	}
	found := [][]namespace{{way("9")}}
	for _, test := range []struct {
		name   string
		hidden namespace
		also   []namespace // found before
		want   []string    // the processes by which each namespace is found
		err    error
	}{
		{"shown by now", way("7"), nil, []string{"9", "7"}, nil},
		{"found by another process", way("8"), []namespace{way("8")}, []string{"9", "8"}, nil},
		{"still hidden", way("8"), nil, []string{"9"}, unix.ENOENT},
		{"ended since", way("10"), nil, []string{"9"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := spaces{guard: guard{root: root}, at: map[uint64]int{}, found: slices.Clone(found), hidden: []namespace{test.hidden}}
			if test.also != nil {
				s.found = append(s.found, test.also)
			}
			if err := s.checkHidden(); !errors.Is(err, test.err) || test.err == nil && err != nil {
				t.Errorf("error %v, want %v", err, test.err)
			}
			var got []string
			for _, ways := range s.found {
				for _, way := range ways {
					got = append(got, way.name)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

// TestEnter: a namespace is read by the first process of it that has not ended.
func TestEnter(t *testing.T) {
	way := func(name string, gone bool) namespace {
		return namespace{name, "/proc/" + name + "/ns/net", func() bool { return gone }}
	}
	absent := host.OfFile("/proc/7/ns/net", unix.ENOENT)
	for _, test := range []struct {
		name string
		ways []namespace
		errs map[string]error
		read string // the way that counts, or ""
		want string
	}{
		{"the first", []namespace{way("7", false), way("8", false)}, nil, "7", "<nil>"},
		{"the first has ended", []namespace{way("7", true), way("8", false)}, map[string]error{"7": absent}, "8", "<nil>"},
		{"the first is reaped", []namespace{way("7", true), way("8", false)}, map[string]error{"7": unix.EACCES}, "8", "<nil>"},
		{"all have ended", []namespace{way("7", true), way("8", true)}, map[string]error{"7": unix.ESRCH, "8": unix.EACCES}, "", "<nil>"},
		{"an error", []namespace{way("7", false), way("8", false)}, map[string]error{"7": unix.EMFILE}, "", "network namespace of 7: too many open files"},
	} {
		t.Run(test.name, func(t *testing.T) {
			read := ""
			err := enter(test.ways, func(s namespace) error {
				if test.errs[s.name] == nil {
					read = s.name
				}
				return test.errs[s.name]
			})
			if read != test.read || fmt.Sprint(err) != test.want {
				t.Errorf("read %q, %v", read, err)
			}
		})
	}
	t.Run("a process that may not be traced", func(t *testing.T) {
		err := enter([]namespace{way("7", false)}, func(namespace) error { return unix.EACCES })
		if (err != nil) != (os.Geteuid() == 0) {
			t.Error(err)
		}
	})
}
