package cloud

import (
	"io/fs"
	"strings"
	"sync"
	"testing"

	"gpustack/host/document"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/nova"
	"gpustack/operate/node"
)

// reads counts how often each file and each folder is read.
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
func (r *reads) Dir(name string, names []string, _ error) { r.count(name, names != nil) }
func (*reads) Link(string, string, error)                 {}
func (*reads) Mode(string, fs.FileMode)                   {}

// TestObservedOnce: nova configure reads the functions of a compute node and their record once, for
// the plan and for whether a reboot is pending.
func TestObservedOnce(t *testing.T) {
	text, err := machine.RecordText(&machine.Contract{Driver: machine.VFIO}, nil)
	hosttest.NoError(t, err)
	record := string(text)
	for name, steps := range map[string]hosttest.Step{
		"nothing is recorded":  hosttest.Steps(),
		"a record":             hosttest.Write(machine.ContractFile, record),
		"the role is inferred": hosttest.Steps(hosttest.Write(nova.DefaultConf, "[libvirt]\nvirt_type = kvm\n"), hosttest.Write(machine.ContractFile, record)),
	} {
		root := hosttest.Bare(t)
		steps(t, root)
		r := reads{of: map[string]int{}}
		root = root.Recorded(&r)
		o := ConfigureOptions{Nova: nova.Options{Role: nova.Compute, Release: nova.Zed}, Place: nova.Place{File: nova.DefaultConf}}
		if strings.Contains(name, "inferred") {
			o.Nova.Role = ""
		}
		m, _ := node.Observe(t.Context(), root, o.NeedsFunctions())
		if _, err := ObserveConfiguration(root, m, o); err != nil {
			t.Logf("%s: %v", name, err)
		}
		seen := 0
		for file, n := range r.of {
			if strings.Contains(file, "sys/devices/pci") || strings.Contains(file, "sys/bus/pci") || strings.Contains(file, strings.TrimPrefix(machine.ContractFile, "/")) {
				seen++
				if n > 1 {
					t.Errorf("%s: %s is read %d times", name, file, n)
				}
			}
		}
		if seen < 20 {
			t.Errorf("%s: only %d files of functions are read", name, seen)
		}
	}
}

// TestDocuments: all that cannot be read is named at once, in the order of the options.
func TestDocuments(t *testing.T) {
	root := hosttest.Lay(t, "-- etc/hostname --\na\n")
	o := ConfigureOptions{
		Nova: nova.Options{Role: nova.Controller}, Place: nova.Place{File: nova.DefaultConf},
		Inventories: document.Source{Paths: []string{"/nowhere/inventory"}}, Names: document.Source{Paths: []string{"/nowhere/names"}},
	}
	_, err := ObserveConfiguration(root, machine.Machine{}, o)
	if err == nil {
		t.Fatal("no error")
	}
	at := 0
	for _, want := range []string{"cannot determine the release", "/nowhere/inventory", "/nowhere/names"} {
		i := strings.Index(err.Error()[at:], want)
		if i < 0 {
			t.Fatalf("%v does not contain %q after %q", err, want, err.Error()[:at])
		}
		at += i
	}
}
