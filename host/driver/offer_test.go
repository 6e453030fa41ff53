package driver_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// The record of the played machine, and its spec: an address on each line.
const (
	recordFile = "/recorded"
	specFile   = "/run/cdi/test.json"
)

// offering is an offering whose spec names the recorded functions that have a host driver.
type offering struct {
	t      testing.TB
	root   host.Root
	ready  func() error // instead of making nodes
	verify func() error
	during func() // called while a spec is planned
}

func newOffering(t testing.TB, root host.Root) *offering {
	return &offering{t: t, root: root, ready: func() error { return nil }, verify: func() error { return nil }, during: func() {}}
}

func (o *offering) Recorded() ([]pci.Address, error) {
	data, err := o.root.ReadFile(recordFile)
	if host.IsAbsent(err) {
		return nil, nil
	}
	var list []pci.Address
	for word := range strings.FieldsSeq(string(data)) {
		a, err := pci.ParseAddress(word)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, err
}

func (o *offering) Plan(without []pci.Address) (edit.Changes, error) {
	o.during()
	recorded, err := o.Recorded()
	if err != nil {
		return nil, err
	}
	text := ""
	for _, a := range recorded {
		s, err := driver.Read(o.root, a)
		if err != nil {
			return nil, err
		}
		if s.Driver != "" && !pci.LeavesAlone(string(s.Driver)) && !slices.Contains(without, a) {
			text += a.String() + "\n"
		}
	}
	c, err := edit.Observe(o.root, specFile).Remove(specFile)
	if err == nil && text != "" {
		c, err = edit.Put(o.root, specFile, []byte(text), 0o644, false)
	}
	return edit.Changes{c}, err
}

func (o *offering) Ready(context.Context, []pci.Address) error { return o.ready() }

func (o *offering) Verify([]pci.Address) error { return o.verify() }

// record makes functions the containers', and offers them.
func record(t testing.TB, root host.Root, addresses ...string) {
	t.Helper()
	text := ""
	for _, a := range addresses {
		text += "0000:" + a + "\n"
	}
	hosttest.NoError(t, os.WriteFile(root.Path(recordFile), []byte(text), 0o600))
	p, err := newOffering(t, root).Plan(nil)
	if err == nil {
		err = p.Apply(t.Context(), root)
	}
	hosttest.NoError(t, err)
}

// recorded returns a plan whose functions of containers are those that the record has.
func recorded(t testing.TB, root host.Root, p driver.Plan) driver.Plan {
	t.Helper()
	all, err := newOffering(t, root).Recorded()
	hosttest.NoError(t, err)
	for _, c := range p.Changes {
		if slices.Contains(all, c.Address) {
			p.Containers = append(p.Containers, c.Address)
		}
	}
	return p
}

// spec returns the addresses that containers are offered, "" without a file.
func spec(t testing.TB, root host.Root) string {
	t.Helper()
	data, err := root.ReadFile(specFile)
	if err != nil && !host.IsAbsent(err) {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(data)), "0000:", "")
}

// lend returns a plan to bind the second card, whose display function containers have.
func lend(t testing.TB, root host.Root) driver.Plan {
	t.Helper()
	p := bindPlan(t, root, "vfio-pci", "02:00.0", "02:00.1", "02:00.2")
	p.Containers = []pci.Address{address(t, "02:00.0")}
	return p
}

// open has a process open the second card's display.
func open(t testing.TB, root host.Root) {
	t.Helper()
	for _, dir := range []string{"/proc/10/fd", "/sys/class/drm", "/sys/devices/pci0000:00/0000:02:00.0/drm/card2"} {
		hosttest.NoError(t, os.MkdirAll(root.Path(dir), 0o755))
	}
	id := strings.Repeat("0123456789abcdef", 4)
	err := errors.Join(
		os.WriteFile(root.Path("/proc/10/comm"), []byte("python3\n"), 0o600),
		os.WriteFile(root.Path("/proc/10/cgroup"), []byte("0::/machine.slice/libpod-"+id+".scope\n"), 0o600),
		os.Symlink("../../devices/pci0000:00/0000:02:00.0/drm/card2", root.Path("/sys/class/drm/card2")),
		os.Symlink("/dev/dri/card2", root.Path("/proc/10/fd/3")))
	hosttest.NoError(t, err)
}

// TestLend: the spec loses a function of containers before anything else is done, and has it again
// once its driver has it: by undo of host bind, and by host release --to container.
func TestLend(t *testing.T) {
	for _, way := range []string{"undo", "release"} {
		t.Run(way, func(t *testing.T) {
			root := lay(t)
			record(t, root, "01:00.0", "02:00.0")
			k := newKernel(t, root)
			b := binder(t, root, k)
			var offered []string
			k.die = func(int, bool) { offered = append(offered, spec(t, root)) }
			e, err := b.Apply(t.Context(), lend(t, root), "host bind")
			hosttest.NoError(t, err)
			if got := slices.Compact(offered); len(offered) < 10 || len(got) != 1 || got[0] != "01:00.0" {
				t.Errorf("offered while drivers change: %q", offered)
			}
			r, err := driver.ParseRecord(e)
			if err != nil || len(r.Containers) != 1 || r.Containers[0] != address(t, "02:00.0") {
				t.Errorf("recorded: %v, %v", r.Containers, err)
			}
			offered = nil
			if way == "undo" {
				_, err = b.Undo(t.Context(), e)
			} else {
				p := releasePlan(t, root)
				p.Containers = []pci.Address{address(t, "02:00.0")}
				e, err = b.Apply(t.Context(), p, "host release")
			}
			hosttest.NoError(t, err)
			if got := slices.Compact(offered); len(got) != 1 || got[0] != "01:00.0" {
				t.Errorf("offered while drivers change back: %q", offered)
			}
			hosttest.EqualIn(t, "offered again", "01:00.0\n02:00.0", spec(t, root))
			hosttest.Equal(t, atFirst, states(t, root))
			if way == "undo" {
				return
			}
			// Undo of the release takes it from containers again, the record of the entry or not.
			if _, err := b.Undo(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			hosttest.EqualIn(t, "offered after undo of the release", "01:00.0", spec(t, root))
		})
	}
}

// TestLendOpened: a process that opens the function while the spec loses it gets the spec put back
// as it was, and no driver is asked for anything.
func TestLendOpened(t *testing.T) {
	root := lay(t)
	record(t, root, "01:00.0", "02:00.0")
	// A spec that is not what would be written now: it must be put back byte for byte.
	err := errors.Join(os.WriteFile(root.Path(specFile), []byte("as it was\n"), 0o600), os.Chmod(root.Path(specFile), 0o604))
	hosttest.NoError(t, err)
	k := newKernel(t, root)
	o := newOffering(t, root)
	o.during = func() { open(t, root) }
	b := binder(t, root, k)
	b = b.offering(o)
	_, err = b.Apply(t.Context(), lend(t, root), "host bind")
	want := "is in use again: 0000:02:00.0: python3 (pid 10, container 0123456789ab) has /dev/dri/card2 open"
	if !errors.Is(err, driver.ErrOpened) || err.Error() != want {
		t.Errorf("%v", err)
	}
	if len(k.log) > 0 || len(entries(t, root)) > 0 {
		t.Errorf("%v, %v", k.log, entries(t, root))
	}
	hosttest.EqualIn(t, "spec", "as it was", spec(t, root))
	if info, err := os.Stat(root.Path(specFile)); err != nil || info.Mode().Perm() != 0o604 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestReturnFails: if containers cannot be offered a function that has returned to its driver, all
// is as before the release.
func TestReturnFails(t *testing.T) {
	for _, test := range []struct {
		name string
		fail func(o *offering, err error)
	}{
		{"no node", func(o *offering, err error) { o.ready = func() error { return err } }},
		{"runtimes do not find it", func(o *offering, err error) { o.verify = func() error { return err } }},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := lay(t)
			record(t, root, "02:00.0")
			if _, err := binder(t, root, newKernel(t, root)).Apply(t.Context(), lend(t, root), "host bind"); err != nil {
				t.Fatal(err)
			}
			hosttest.EqualIn(t, "a spec without a device", "", spec(t, root))
			was := states(t, root)
			o, fault := newOffering(t, root), errors.New("not offered")
			test.fail(o, fault)
			p := releasePlan(t, root)
			p.Containers = []pci.Address{address(t, "02:00.0")}
			_, err := binder(t, root, newKernel(t, root)).offering(o).Apply(t.Context(), p, "host release")
			if !errors.Is(err, fault) || errors.Is(err, change.ErrNotReverted) {
				t.Errorf("%v", err)
			}
			if diff := cmp.Diff(was, states(t, root)); diff != "" || spec(t, root) != "" {
				t.Errorf("%q (-want +got):\n%s", spec(t, root), diff)
			}
		})
	}
}
