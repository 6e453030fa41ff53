package check_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"gpustack/host"
	"gpustack/host/check"
	"gpustack/host/machine"
	"gpustack/host/selection"
	startup "gpustack/host/steps" // steps are what changes a tree here
)

// reads counts how often each file and each folder is read. Files that are only looked for are not
// counted.
type reads struct {
	sync.Mutex
	of map[string]int
}

func (r *reads) count(name string, read bool) {
	r.Lock()
	defer r.Unlock()
	if read {
		r.of[name]++
	}
}

func (r *reads) File(name string, data []byte, err error) { r.count(name, data != nil || err != nil) }
func (r *reads) Link(name, _ string, _ error)             { r.count(name+"@", true) }
func (*reads) Mode(string, fs.FileMode)                   {}
func (r *reads) Dir(name string, names []string, _ error) { r.count(name+"/", names != nil) }

// TestReadOnce: host check reads each file, link and folder once, whatever state the machine is in.
func TestReadOnce(t *testing.T) {
	for name, root := range map[string]host.Root{"bare": bare(t), "planned": planned(t, selection.Options{}), "ready": ready(t, selection.Options{})} {
		r := reads{of: map[string]int{}}
		m := machine.ObserveCheck(root.Recorded(&r), nil, nil)
		check.Verify(m, nil, startup.State{})
		var twice []string
		for file, n := range r.of {
			// A recorded root follows the links on the way to a file once more, to know its place.
			if link := strings.HasSuffix(file, "@"); n > 1 && !link || n > 2 {
				twice = append(twice, fmt.Sprintf("%s: %d", file, n))
			}
		}
		slices.Sort(twice)
		if len(twice) > 0 || len(r.of) < 100 {
			t.Errorf("%s: of %d read, more than once:\n%v", name, len(r.of), twice)
		}
	}
}
