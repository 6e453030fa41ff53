package host_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestReadThreads: of a process whose first thread has ended, the other threads are read.
func TestReadThreads(t *testing.T) {
	const stat = "7 (main) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 9 0 0\n"
	running := strings.ReplaceAll(stat, "Z", "S")
	const threads = "-- proc/7/task/7/comm --\n-- proc/7/task/8/comm --\n"
	for _, test := range []struct {
		name   string
		files  string
		others error
		ended  bool
		want   error
	}{
		{"another thread runs", "-- proc/7/stat --\n" + stat + threads + "-- proc/7/task/9/comm --\n", nil, false, nil},
		{"another thread cannot be read", "-- proc/7/stat --\n" + stat + threads + "-- proc/7/task/9/comm --\n", unix.EIO, false, unix.EIO},
		{"another thread may not be read", "-- proc/7/stat --\n" + stat + threads + "-- proc/7/task/9/comm --\n-- proc/9/stat --\n" + running, unix.EACCES, false, unix.EACCES},
		{"all have ended", "-- proc/7/stat --\n" + stat + threads, nil, true, nil},
		{"its state is unknown", "-- proc/7/stat --\n7\n-- proc/7/task/9/comm --\n", nil, false, unix.EINVAL},
		{"no state is shown", "-- proc/7/comm --\n", nil, false, unix.EINVAL},
		{"it runs", "-- proc/7/stat --\n" + running + threads, nil, false, unix.EINVAL},
	} {
		ended, err := host.ReadThreads(hosttest.Lay(t, test.files), 7, func(thread int) error {
			switch thread {
			case 7:
				return unix.EINVAL
			case 8:
				return unix.ESRCH
			}
			return test.others
		})
		if ended != test.ended || !errors.Is(err, test.want) {
			t.Errorf("%s: %v, %v, want %v, %v", test.name, ended, err, test.ended, test.want)
		}
	}
}
