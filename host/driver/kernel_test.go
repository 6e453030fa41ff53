package driver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// The machine has two cards of two functions each, in the groups 10 and 11: a display
// function that nouveau holds, and audio that snd_hda_intel does. A USB function of the
// second card has no driver. The bridge above is in group 10 too.
const machine = `
symlink sys/bus/pci/devices/0000:00:01.0/driver -> ../../drivers/pcieport
symlink sys/bus/pci/devices/0000:00:01.0/iommu_group -> ../../../../kernel/iommu_groups/10
symlink sys/bus/pci/devices/0000:01:00.0/driver -> ../../drivers/nouveau
symlink sys/bus/pci/devices/0000:01:00.0/iommu_group -> ../../../../kernel/iommu_groups/10
symlink sys/bus/pci/devices/0000:01:00.1/driver -> ../../drivers/snd_hda_intel
symlink sys/bus/pci/devices/0000:01:00.1/iommu_group -> ../../../../kernel/iommu_groups/10
symlink sys/bus/pci/devices/0000:02:00.0/driver -> ../../drivers/nouveau
symlink sys/bus/pci/devices/0000:02:00.0/iommu_group -> ../../../../kernel/iommu_groups/11
symlink sys/bus/pci/devices/0000:02:00.1/driver -> ../../drivers/snd_hda_intel
symlink sys/bus/pci/devices/0000:02:00.1/iommu_group -> ../../../../kernel/iommu_groups/11
symlink sys/bus/pci/devices/0000:02:00.2/iommu_group -> ../../../../kernel/iommu_groups/11
mkdir sys/bus/pci/drivers/nouveau
mkdir sys/bus/pci/drivers/snd_hda_intel
mkdir sys/bus/pci/drivers/pci-stub
-- sys/bus/pci/devices/0000:00:01.0/class --
0x060400
-- sys/bus/pci/devices/0000:00:01.0/driver_override --
(null)
-- sys/bus/pci/devices/0000:01:00.0/class --
0x030000
-- sys/bus/pci/devices/0000:01:00.0/driver_override --
(null)
-- sys/bus/pci/devices/0000:01:00.1/class --
0x040300
-- sys/bus/pci/devices/0000:01:00.1/driver_override --
(null)
-- sys/bus/pci/devices/0000:02:00.0/class --
0x030000
-- sys/bus/pci/devices/0000:02:00.0/driver_override --
(null)
-- sys/bus/pci/devices/0000:02:00.1/class --
0x040300
-- sys/bus/pci/devices/0000:02:00.1/driver_override --
(null)
-- sys/bus/pci/devices/0000:02:00.2/class --
0x0c0330
-- sys/bus/pci/devices/0000:02:00.2/driver_override --
(null)
-- proc/sys/kernel/random/boot_id --
b0b0
`

// kernel behaves as Linux does, on files: it moves the driver links. What it cannot do
// is to be read while something changes.
type kernel struct {
	t     testing.TB
	root  host.Root
	log   []string // writes, as they come
	count int      // of everything that it was asked

	// takes are the drivers that take a function without being its override, in the
	// order in which they were loaded: nouveau all of class 03, and so on.
	takes func(driver, address string) bool

	fault func(w driver.Write) error // instead of a write, if it is an error
	deaf  func(w driver.Write) bool  // takes a write, and does nothing
	die   func(count int, done bool) // may kill the process
	stub  error                      // of TryGroup

	// How a unit answers: it stays in a state, or fails.
	stays func(verb, unit string) string
	smi   error // of nvidia-smi
}

func newKernel(t testing.TB, root host.Root) *kernel {
	return &kernel{
		t: t, root: root,
		takes: func(name, address string) bool {
			return name == "nouveau" && strings.HasSuffix(address, ".0") || name == "snd_hda_intel" && strings.HasSuffix(address, ".1")
		},
		fault: func(driver.Write) error { return nil },
		deaf:  func(driver.Write) bool { return false },
		die:   func(int, bool) {},
		stays: func(string, string) string { return "" },
	}
}

func (k *kernel) check(err error) {
	if err != nil {
		k.t.Helper()
		k.t.Fatal(err)
	}
}

// asked counts a request, and may die before and after it is granted.
func (k *kernel) asked(grant func() error) error {
	k.count++
	k.die(k.count, false)
	err := grant()
	k.die(k.count, true)
	return err
}

func (k *kernel) Load(_ context.Context, name string) error {
	return k.asked(func() error {
		k.log = append(k.log, "load "+name)
		if err := k.fault(driver.Write{File: "modprobe", Value: name}); err != nil {
			return err
		}
		err := os.Mkdir(k.root.Path("/sys/bus/pci/drivers/"+name), 0o755)
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	})
}

func (k *kernel) TryGroup(group int) error {
	return k.asked(func() error {
		k.log = append(k.log, "open "+strconv.Itoa(group))
		return k.stub
	})
}

func (k *kernel) Write(w driver.Write) error {
	return k.asked(func() error {
		k.log = append(k.log, fmt.Sprintf("%q > %s", w.Value, strings.TrimPrefix(w.File, "/sys/bus/pci/")))
		if err := k.fault(w); err != nil {
			return err
		}
		if !k.deaf(w) {
			return k.write(w)
		}
		return nil
	})
}

func (k *kernel) write(w driver.Write) error {
	elements := strings.Split(strings.TrimPrefix(w.File, "/sys/bus/pci/"), "/")
	device := func(address string) string { return k.root.Path("/sys/bus/pci/devices/" + address) }
	switch {
	case elements[0] == "devices" && elements[2] == "driver_override":
		text := strings.TrimSuffix(w.Value, "\n")
		if w.Value == "" {
			return nil // which is what it does: nothing
		}
		if text == "" {
			text = "(null)"
		}
		return os.WriteFile(path.Join(device(elements[1]), "driver_override"), []byte(text+"\n"), 0)
	case elements[0] == "drivers" && elements[2] == "unbind":
		if k.driver(w.Value) != elements[1] {
			return unix.ENODEV
		}
		return os.Remove(path.Join(device(w.Value), "driver"))
	case elements[0] == "drivers_probe":
		if k.driver(w.Value) == "" {
			k.probe(w.Value)
		}
		return nil
	}
	return unix.ENOENT
}

// probe gives a function to the first driver that takes it. Nobody hears of a failure.
func (k *kernel) probe(address string) {
	a, err := pci.ParseAddress(address)
	k.check(err)
	state, err := driver.Read(k.root, a)
	k.check(err)
	drivers, err := k.root.ReadDir("/sys/bus/pci/drivers")
	k.check(err)
	for _, name := range drivers {
		if state.Override == driver.Name(name) || state.Override == "" && k.takes(name, address) {
			k.check(os.Symlink("../../drivers/"+name, k.root.Path("/sys/bus/pci/devices/"+address+"/driver")))
			return
		}
	}
}

func (k *kernel) driver(address string) string {
	target, err := os.Readlink(k.root.Path("/sys/bus/pci/devices/" + address + "/driver"))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	k.check(err)
	return path.Base(target)
}

// states writes what holds each function but the bridge, a line each.
func states(t testing.TB, root host.Root) string {
	t.Helper()
	var b strings.Builder
	for _, a := range scan(t, root)[1:] {
		s, err := driver.Read(root, a.Address)
		hosttest.NoError(t, err)
		fmt.Fprintf(&b, "%s %s", strings.TrimPrefix(a.Address.String(), "0000:"), s.Driver)
		if s.Override != "" {
			fmt.Fprintf(&b, ", override %s", s.Override)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func scan(t testing.TB, root host.Root) []pci.Device {
	t.Helper()
	devices, warnings, err := pci.Scan(root, pci.Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	return devices
}

func address(t testing.TB, s string) pci.Address {
	t.Helper()
	return hosttest.Address(t, "0000:"+s)
}

// host gives each function back to the host's driver.
var hosts = map[string]driver.State{
	"01:00.0": {Driver: "nouveau"}, "01:00.1": {Driver: "snd_hda_intel"},
	"02:00.0": {Driver: "nouveau"}, "02:00.1": {Driver: "snd_hda_intel"}, "02:00.2": {},
}

const atFirst = `01:00.0 nouveau
01:00.1 snd_hda_intel
02:00.0 nouveau
02:00.1 snd_hda_intel
02:00.2 no driver
`

// functions are those of both cards.
var functions = []string{"01:00.0", "01:00.1", "02:00.0", "02:00.1", "02:00.2"}

// bindPlan gives functions to guests, all of them unless some are named.
func bindPlan(t testing.TB, root host.Root, name string, addresses ...string) driver.Plan {
	t.Helper()
	if len(addresses) == 0 {
		addresses = functions
	}
	var goals []driver.Goal
	for _, a := range addresses {
		goals = append(goals, driver.Goal{Address: address(t, a), State: driver.State{Driver: driver.Name(name), Override: driver.Name(name)}})
	}
	return plan(t, root, goals, false)
}

func releasePlan(t testing.TB, root host.Root) driver.Plan {
	t.Helper()
	var goals []driver.Goal
	for _, a := range functions {
		goals = append(goals, driver.Goal{Address: address(t, a), State: hosts[a]})
	}
	return plan(t, root, goals, true)
}

func plan(t testing.TB, root host.Root, goals []driver.Goal, release bool) driver.Plan {
	t.Helper()
	p, err := driver.New(root, scan(t, root), goals, release)
	hosttest.NoError(t, err)
	return p
}

// Ready answers as the running kernel.
func (k *kernel) Ready() error { return nil }

// machineBinder makes changes of drivers through the engine, recorded in the root's journal.
type machineBinder struct {
	driver.Binder
	engine change.Engine
}

func binder(t testing.TB, root host.Root, k driver.Kernel) machineBinder {
	t.Helper()
	b := driver.Binder{Root: root, Kernel: k, Settle: 30e6, Service: 30e6, Offering: newOffering(t, root)}
	return machineBinder{b, change.Engine{Store: change.Machine(root), Kinds: []change.Kind{b}}}
}

// offering returns the binder with another offering.
func (b machineBinder) offering(o *offering) machineBinder {
	b.Offering = o
	b.engine.Kinds = []change.Kind{b.Binder}
	return b
}

func (b machineBinder) Apply(ctx context.Context, p driver.Plan, command string) (change.Entry, error) {
	return unlocked(func() (change.Entry, error) {
		return b.engine.Apply(ctx, change.Work{Command: command, Change: b.New(p)})
	})
}

func (b machineBinder) Undo(ctx context.Context, e change.Entry) (change.Entry, error) {
	return unlocked(func() (change.Entry, error) { return b.engine.Undo(ctx, e.ID) })
}

// Recover recovers all that is left open, as every changing command does.
func (b machineBinder) Recover(ctx context.Context) ([]change.Recovered, error) {
	return unlocked(func() ([]change.Recovered, error) {
		left, err := b.engine.Interrupted(context.Background(), change.ToRecover)
		if err != nil {
			return nil, err
		}
		var ids []int
		for _, l := range left {
			ids = append(ids, l.Entry.ID)
		}
		return b.engine.Recover(ctx, ids)
	})
}

// unlocked calls act again while the journal is locked: a process that another test starts holds
// the lock of every root until it is another program.
func unlocked[T any](act func() (T, error)) (T, error) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		result, err := act()
		if !errors.Is(err, change.ErrLocked) || time.Now().After(end) {
			return result, err
		}
	}
}

func entries(t testing.TB, root host.Root) []change.Entry {
	t.Helper()
	list, err := change.List(root)
	hosttest.NoError(t, err)
	return list
}

func statuses(t testing.TB, root host.Root) string {
	t.Helper()
	var words []string
	for _, e := range entries(t, root) {
		words = append(words, string(e.Status))
	}
	return strings.Join(words, " ")
}

func lay(t testing.TB) host.Root {
	t.Helper()
	return hosttest.Lay(t, machine)
}

// bound is what bindPlan leads to with vfio-pci.
func bound(addresses ...string) string {
	lines := strings.Split(strings.TrimSuffix(atFirst, "\n"), "\n")
	for i, a := range functions {
		if len(addresses) == 0 || slices.Contains(addresses, a) {
			lines[i] = a + " vfio-pci, override vfio-pci"
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
