package guard

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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

// TestEnter: a namespace is read by the first process of it that has not ended.
func TestEnter(t *testing.T) {
	way := func(name string, gone bool) namespace {
		return namespace{name, "/proc/" + name + "/ns/net", func() bool { return gone }}
	}
	absent := &os.PathError{Op: "open", Path: "/proc/7/ns/net", Err: unix.ENOENT}
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
