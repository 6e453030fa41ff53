package driver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// TestMain lets the tests' own program be what Live starts to write, and what
// TestKilled kills.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 5 && os.Args[1] == driver.WriteCommand:
		if number := driver.WriteAttribute(os.Args[3], os.Args[4]); number != 0 {
			fmt.Println(number)
		}
		os.Exit(0)
	case len(os.Args) == 5 && os.Args[1] == "die":
		os.Exit(die(os.Args[2], os.Args[3], os.Args[4]))
	}
	os.Exit(m.Run())
}

// TestDamagedRecord: a record that lacks something is an error. Without the boot, for example, the
// change would count as reverted by a boot.
func TestDamagedRecord(t *testing.T) {
	const function = `{"address": "0000:84:00.0", "iommu_group": null, "any": false, "before": {"driver": null, "driver_override": null}, "after": {"driver": "vfio-pci", "driver_override": "vfio-pci"}}`
	for text, want := range map[string]string{
		`{"boot_id": "b0b0", "release": false, "services":{"stop":null,"persistence_off":null,"start":null,"persistence_on":null,"persistent":null}, "functions": [` + function + `], "colour": 1}`: "",
		`null`: "malformed JSON: the document is null",
		`{"release": false, "services":{"stop":null,"persistence_off":null,"start":null,"persistence_on":null,"persistent":null}, "functions": [` + function + `]}`:                                                             "malformed JSON: boot_id is missing",
		`{"boot_id": "b0b0", "release": false, "services":{"stop":null,"persistence_off":null,"start":null,"persistence_on":null,"persistent":null}, "functions": [` + strings.Replace(function, `"before"`, `"was"`, 1) + `]}`: "malformed JSON: functions[0].before is missing",
	} {
		r, err := driver.ParseRecord(change.Entry{ID: 3, Changes: change.KindDrivers, Drivers: []byte(text)})
		switch {
		case want == "" && (err != nil || r.Functions[0].Before != driver.State{} || r.Functions[0].After.Driver != "vfio-pci"):
			t.Errorf("%+v, %v", r, err)
		case want != "" && (err == nil || err.Error() != "entry 3: its drivers: "+want):
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestBindAndRelease: there, once more with nothing to do, and back, each write in
// its order.
func TestBindAndRelease(t *testing.T) {
	root := lay(t)
	k := newKernel(t, root)
	b := binder(t, root, k)
	p := bindPlan(t, root, "vfio-pci", "02:00.0", "02:00.1", "02:00.2")
	if diff := cmp.Diff([]string{"vfio-pci"}, p.Load); diff != "" || len(p.Groups) != 1 {
		t.Errorf("%v %s", p.Groups, diff)
	}
	e, err := b.Apply(context.Background(), p, "host bind")
	if err != nil || e.ID != 1 || e.Status != change.Done {
		t.Fatal(e, err)
	}
	hosttest.Equal(t, bound("02:00.0", "02:00.1", "02:00.2"), states(t, root))
	want := []string{
		`load vfio-pci`,
		`"vfio-pci" > devices/0000:02:00.0/driver_override`,
		`"0000:02:00.0" > drivers/nouveau/unbind`,
		`"0000:02:00.0" > drivers_probe`,
		`"vfio-pci" > devices/0000:02:00.1/driver_override`,
		`"0000:02:00.1" > drivers/snd_hda_intel/unbind`,
		`"0000:02:00.1" > drivers_probe`,
		`"vfio-pci" > devices/0000:02:00.2/driver_override`,
		`"0000:02:00.2" > drivers_probe`,
		`open 11`,
	}
	hosttest.Equal(t, want, k.log)
	if p := bindPlan(t, root, "vfio-pci", "02:00.0", "02:00.1", "02:00.2"); len(p.Changes)+len(p.Load) > 0 {
		t.Errorf("again: %v", p)
	}

	k.log = nil
	taken, err := driver.Taken(root, entries(t, root))
	if err != nil || taken[address(t, "02:00.0")] != hosts["02:00.0"] || len(taken) != 3 {
		t.Errorf("%v, %v", taken, err)
	}
	if _, err := b.Apply(context.Background(), releasePlan(t, root), "host release"); err != nil {
		t.Fatal(err)
	}
	hosttest.Equal(t, atFirst, states(t, root))
	want = []string{
		`"nouveau" > devices/0000:02:00.0/driver_override`,
		`"0000:02:00.0" > drivers/vfio-pci/unbind`,
		`"0000:02:00.0" > drivers_probe`,
		`"\n" > devices/0000:02:00.0/driver_override`,
		`"snd_hda_intel" > devices/0000:02:00.1/driver_override`,
		`"0000:02:00.1" > drivers/vfio-pci/unbind`,
		`"0000:02:00.1" > drivers_probe`,
		`"\n" > devices/0000:02:00.1/driver_override`,
		`"0000:02:00.2" > drivers/vfio-pci/unbind`,
		`"\n" > devices/0000:02:00.2/driver_override`,
	}
	hosttest.Equal(t, want, k.log)
}

// TestUndo: entries are taken back one after the other, each to what was before it.
func TestUndo(t *testing.T) {
	root := lay(t)
	b := binder(t, root, newKernel(t, root))
	var was []string
	for _, p := range []func() driver.Plan{
		func() driver.Plan { return bindPlan(t, root, "pci-stub", "01:00.0", "01:00.1") },
		func() driver.Plan { return bindPlan(t, root, "vfio-pci") },
		func() driver.Plan { return releasePlan(t, root) },
	} {
		was = append(was, states(t, root))
		if _, err := b.Apply(context.Background(), p(), "test"); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range slices.Backward(was) {
		e, err := change.Pick(entries(t, root), 0)
		hosttest.NoError(t, err)
		if e, err = b.Undo(context.Background(), e); err != nil || e.Status != change.Undone {
			t.Fatal(e, err)
		}
		hosttest.EqualIn(t, fmt.Sprintf("entry %d", e.ID), want, states(t, root))
	}
	hosttest.Equal(t, "undone undone undone", statuses(t, root))
}

// TestUndoElsewhere: what somebody else has done since is named, and nothing is
// touched; what a boot has taken back is.
func TestUndoElsewhere(t *testing.T) {
	root := lay(t)
	k := newKernel(t, root)
	b := binder(t, root, k)
	e, err := b.Apply(context.Background(), bindPlan(t, root, "vfio-pci"), "test")
	hosttest.NoError(t, err)
	k.check(k.write(driver.Write{File: "/sys/bus/pci/drivers/vfio-pci/unbind", Value: "0000:02:00.0"}))
	k.log = nil
	_, err = b.Undo(context.Background(), e)
	if want := "0000:02:00.0: is now bound to another driver (no driver)"; !errors.Is(err, driver.ErrChanged) || err.Error() != want || k.log != nil {
		t.Errorf("%v, %v", err, k.log)
	}
	boot(t, root)
	c, err := b.Open(t.Context(), e)
	hosttest.NoError(t, err)
	if p, err := c.(*driver.Binding).Back(); err != nil || len(p.Changes) > 0 {
		t.Errorf("%v, %v", p, err)
	}
	if e, err = b.Undo(context.Background(), e); err != nil || e.Status != change.Undone || k.log != nil {
		t.Errorf("%v, %v, %v", e.Status, err, k.log)
	}
	if taken, err := driver.Taken(root, entries(t, root)); len(taken) > 0 || err != nil {
		t.Errorf("%v, %v", taken, err)
	}
}

// boot gives the machine another boot's id.
func boot(t *testing.T, root host.Root) {
	t.Helper()
	hosttest.NoError(t, os.WriteFile(root.Path("/proc/sys/kernel/random/boot_id"), []byte("b1b1\n"), 0o600))
}

// TestWhichever: a function of which nobody knows what held it goes to whichever
// driver takes it, and the journal says which; not to one that takes it by its ids.
func TestWhichever(t *testing.T) {
	root := lay(t)
	k := newKernel(t, root)
	b := binder(t, root, k)
	if _, err := b.Apply(context.Background(), bindPlan(t, root, "vfio-pci"), "test"); err != nil {
		t.Fatal(err)
	}
	release := func() driver.Plan {
		return plan(t, root, []driver.Goal{{Address: address(t, "01:00.0"), Any: true}, {Address: address(t, "02:00.2"), Any: true}}, true)
	}
	before := states(t, root)
	takes := k.takes
	k.takes = func(name, address string) bool { return name == "vfio-pci" || takes(name, address) }
	// Drivers come in the order of their names here: so that vfio-pci comes first.
	k.check(os.Rename(root.Path("/sys/bus/pci/drivers/nouveau"), root.Path("/sys/bus/pci/drivers/zz")))
	_, err := b.Apply(context.Background(), release(), "test")
	if want := "0000:01:00.0: probe: vfio-pci re-claimed the function through its ids= list"; !errors.Is(err, driver.ErrTakenAgain) || err.Error() != want {
		t.Errorf("%v", err)
	}
	hosttest.Equal(t, before, states(t, root))
	k.check(os.Rename(root.Path("/sys/bus/pci/drivers/zz"), root.Path("/sys/bus/pci/drivers/nouveau")))
	k.takes = takes
	e, err := b.Apply(context.Background(), release(), "test")
	hosttest.NoError(t, err)
	r, err := driver.ParseRecord(e)
	if err != nil || r.Functions[0].After.Driver != "nouveau" || r.Functions[1].After.Driver != "" {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := b.Undo(context.Background(), e); err != nil {
		t.Fatal(err)
	}
	hosttest.Equal(t, before, states(t, root))
}

// TestFails: whatever fails, all drivers are as before, and no entry is left.
func TestFails(t *testing.T) {
	on := func(part string) func(driver.Write) bool {
		return func(w driver.Write) bool { return strings.Contains(w.File+" "+w.Value, part) }
	}
	for _, test := range []struct {
		name  string
		fault func(k *kernel)
		want  string
	}{
		{"the module is not there", func(k *kernel) { k.answer("modprobe vfio-pci", unix.ENOENT) }, "no such file or directory"},
		{"the first write is refused", func(k *kernel) { k.answer("01:00.0/driver_override vfio-pci", unix.EPERM) },
			"0000:01:00.0: set driver_override to vfio-pci: operation not permitted"},
		{"a driver does not let go", func(k *kernel) { k.answer("nouveau/unbind 0000:02:00.0", unix.EBUSY) },
			"0000:02:00.0: unbind from nouveau: device or resource busy"},
		{"it did not return in time", func(k *kernel) { k.answer("nouveau/unbind 0000:02:00.0", host.ErrTimeout) },
			"0000:02:00.0: unbind from nouveau: the write did not finish in time"},
		{"vfio-pci does not take it, as without an IOMMU", func(k *kernel) {
			probes := 0
			k.deaf = func(w driver.Write) bool {
				if on("drivers_probe 0000:01:00.1")(w) {
					probes++
				}
				return probes == 1 && on("drivers_probe 0000:01:00.1")(w)
			}
		}, "0000:01:00.1: probe: the kernel accepted the write but the driver did not change: bound to no driver"},
		{"a write of nothing", func(k *kernel) { k.deaf = on("01:00.1/driver_override vfio-pci") },
			"0000:01:00.1: set driver_override to vfio-pci: the kernel accepted the write but the driver did not change: driver_override is no driver"},
		{"an unbind of nothing", func(k *kernel) { k.deaf = on("snd_hda_intel/unbind 0000:02:00.1") },
			"0000:02:00.1: unbind from snd_hda_intel: the kernel accepted the write but the driver did not change: bound to snd_hda_intel"},
		{"the group cannot be had", func(k *kernel) { k.stub = driver.ErrNotViable },
			"IOMMU group 10: is not viable\nIOMMU group 11: is not viable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := lay(t)
			k := newKernel(t, root)
			test.fault(k)
			b := binder(t, root, k)
			_, err := b.Apply(context.Background(), bindPlan(t, root, "vfio-pci"), "test")
			hosttest.Equal(t, test.want, fmt.Sprint(err))
			hosttest.Equal(t, atFirst, states(t, root))
			if left := entries(t, root); len(left) > 0 {
				t.Errorf("left %v", left)
			}
			backward(t, k.log)
		})
	}
}

// backward sees that functions go back in the reverse of the order in which they came.
func backward(t *testing.T, log []string) {
	t.Helper()
	var back []string
	for _, line := range log {
		if strings.Contains(line, "drivers/vfio-pci/unbind") {
			back = append(back, line)
		}
	}
	slices.Reverse(back)
	if !slices.IsSorted(back) {
		t.Errorf("not the last first: %q", back)
	}
}

// answer makes the kernel answer a write with an error, once.
func (k *kernel) answer(part string, err error) {
	before, once := k.fault, true
	k.fault = func(w driver.Write) error {
		if once && strings.Contains(w.File+" "+w.Value, part) {
			once = false
			return err
		}
		return before(w)
	}
}

// errSignal is the cause of a context that a signal has ended.
var errSignal = errors.New("interrupted")

// TestInterrupted ends the context before and during each request to the kernel: the request
// ends, all drivers go back to what they were, and the journal too. Nothing is asked before.
func TestInterrupted(t *testing.T) {
	whichever := func(t *testing.T, root host.Root) driver.Plan {
		var goals []driver.Goal
		for _, a := range functions {
			goals = append(goals, driver.Goal{Address: address(t, a), Any: true})
		}
		return plan(t, root, goals, true)
	}
	for name, test := range map[string]struct {
		bound bool // at first
		do    func(ctx context.Context, t *testing.T, b machineBinder) error
		lasts int // requests
		want  string
	}{
		"bind": {false, func(ctx context.Context, t *testing.T, b machineBinder) error {
			_, err := b.Apply(ctx, bindPlan(t, b.Root, "vfio-pci"), "test")
			return err
		}, 17, "interrupted, all drivers were rolled back; modules stay loaded: vfio-pci"},
		"release": {true, func(ctx context.Context, t *testing.T, b machineBinder) error {
			_, err := b.Apply(ctx, releasePlan(t, b.Root), "test")
			return err
		}, 18, "interrupted, all drivers were rolled back"},
		"release to whichever": {true, func(ctx context.Context, t *testing.T, b machineBinder) error {
			_, err := b.Apply(ctx, whichever(t, b.Root), "test")
			return err
		}, 15, "interrupted, all drivers were rolled back"},
		"undo": {true, func(ctx context.Context, t *testing.T, b machineBinder) error {
			e, err := b.Undo(ctx, entries(t, b.Root)[0])
			if err != nil && e.ID != 0 && e.Status != change.Done {
				t.Errorf("status %s", e.Status)
			}
			return err
		}, 18, "interrupted, all drivers were rolled back, entry 1 stays as it was"},
	} {
		for at := 0; at <= test.lasts; at++ {
			t.Run(fmt.Sprintf("%s at %d", name, at), func(t *testing.T) {
				t.Parallel()
				root := lay(t)
				if test.bound {
					apply(t, root, bindPlan(t, root, "vfio-pci"))
				}
				before, recorded := states(t, root), entries(t, root)
				ctx, cancel := context.WithCancelCause(context.Background())
				k := newKernel(t, root)
				k.die = func(count int, done bool) {
					if count == at && !done {
						cancel(errSignal)
					}
				}
				want := test.want
				if at == 0 {
					cancel(errSignal)
					want = "interrupted, nothing was changed"
				}
				if err := test.do(ctx, t, binder(t, root, k)); !errors.Is(err, errSignal) || err.Error() != want {
					t.Errorf("%v, want %s", err, want)
				}
				if at == 0 && len(k.log) > 0 {
					t.Errorf("asked: %q", k.log)
				}
				hosttest.Equal(t, before, states(t, root))
				hosttest.EqualIn(t, "the journal", recorded, entries(t, root))
			})
		}
	}
}

// TestInterruptedRecovery: between two groups a signal ends recovery, which the next run goes on
// with.
func TestInterruptedRecovery(t *testing.T) {
	root := lay(t)
	k := newKernel(t, root)
	k.answer("nouveau/unbind 0000:02:00.0", unix.EBUSY)
	k.answer("vfio-pci/unbind 0000:01:00.1", unix.EIO)
	b := binder(t, root, k)
	if _, err := b.Apply(context.Background(), bindPlan(t, root, "vfio-pci"), "test"); err == nil {
		t.Fatal("it did not fail")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	count := k.count
	k.die = func(int, bool) {
		if k.count == count+1 {
			cancel(errSignal)
		}
	}
	if _, err := b.Recover(ctx); !errors.Is(err, errSignal) || err.Error() != "interrupted, the next run recovers entry 1" {
		t.Errorf("%v", err)
	}
	if dealt, err := b.Recover(context.Background()); err != nil || len(dealt) != 1 {
		t.Errorf("%v, %v", dealt, err)
	}
	if diff := cmp.Diff(atFirst, states(t, root)); diff != "" || len(entries(t, root)) > 0 {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStuck: what the write is stuck in the kernel (uninterruptible sleep) from is not touched
// again, the rest goes back, and the entry stays for the next run.
func TestStuck(t *testing.T) {
	root := lay(t)
	k := newKernel(t, root)
	k.answer("nouveau/unbind 0000:02:00.0", host.ErrStuck)
	b := binder(t, root, k)
	e, err := b.Apply(context.Background(), bindPlan(t, root, "vfio-pci"), "test")
	if want := "0000:02:00.0: unbind from nouveau: the write is stuck in the kernel (uninterruptible sleep)"; !errors.Is(err, host.ErrStuck) || err.Error() != want || e.Status != change.Applying {
		t.Errorf("%v, %v", e.Status, err)
	}
	if last := k.log[len(k.log)-1]; strings.Contains(last, "02:00.0") {
		t.Errorf("touched again: %s", last)
	}
	hosttest.Equal(t, strings.Replace(atFirst, "02:00.0 nouveau", "02:00.0 nouveau, override vfio-pci", 1), states(t, root))
	// The driver has let go after all, much later.
	k.check(k.write(driver.Write{File: "/sys/bus/pci/drivers/nouveau/unbind", Value: "0000:02:00.0"}))
	if dealt, err := b.Recover(context.Background()); err != nil || len(dealt) != 1 {
		t.Fatal(dealt, err)
	}
	if diff := cmp.Diff(atFirst, states(t, root)); diff != "" || len(entries(t, root)) > 0 {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNotTakenBack: where taking back fails too, both are said, and the next run goes on.
func TestNotTakenBack(t *testing.T) {
	root := lay(t)
	k := newKernel(t, root)
	k.answer("nouveau/unbind 0000:02:00.0", unix.EBUSY)
	k.answer("vfio-pci/unbind 0000:01:00.1", unix.EIO)
	b := binder(t, root, k)
	_, err := b.Apply(context.Background(), bindPlan(t, root, "vfio-pci"), "test")
	want := "0000:02:00.0: unbind from nouveau: device or resource busy\ncould not be reverted: 0000:01:00.1: unbind from vfio-pci: input/output error"
	if !errors.Is(err, change.ErrNotReverted) || err.Error() != want || statuses(t, root) != "applying" {
		t.Errorf("%v, %s", err, statuses(t, root))
	}
	if _, err := b.Recover(context.Background()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(atFirst, states(t, root)); diff != "" || len(entries(t, root)) > 0 {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestChanged: a plan is made for what was there, and for nothing else.
func TestChanged(t *testing.T) {
	root := lay(t)
	k := newKernel(t, root)
	p := bindPlan(t, root, "vfio-pci")
	k.check(k.write(driver.Write{File: "/sys/bus/pci/drivers/nouveau/unbind", Value: "0000:01:00.0"}))
	k.check(os.RemoveAll(root.Path("/sys/bus/pci/devices/0000:02:00.2")))
	_, err := binder(t, root, k).Apply(context.Background(), p, "test")
	want := "0000:01:00.0: is now bound to another driver (no driver)\n0000:02:00.2: is not there"
	if err == nil || err.Error() != want || len(k.log) > 0 {
		t.Errorf("%v, %v", err, k.log)
	}
}

// TestViable: a group is proved by its members' links too, and opened where VFIO has
// one of them.
func TestViable(t *testing.T) {
	for _, test := range []struct {
		name, driver string
		addresses    []string
		more         func(k *kernel)
		want, last   string
	}{
		{"a sibling stays with the host", "vfio-pci", []string{"01:00.0"}, func(*kernel) {}, "IOMMU group 10: is not viable: 0000:01:00.1 bound to snd_hda_intel", ""},
		{"a sibling has no driver", "vfio-pci", []string{"02:00.0", "02:00.1"}, func(*kernel) {}, "<nil>", "open 11"},
		{"a guest was faster", "vfio-pci", []string{"02:00.0", "02:00.1"}, func(k *kernel) { k.stub = driver.ErrInUse }, "<nil>", "open 11"},
		{"all is pci-stub's", "pci-stub", []string{"02:00.0", "02:00.1"}, func(k *kernel) { k.stub = unix.ENOENT }, "<nil>", `"0000:02:00.1" > drivers_probe`},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := lay(t)
			k := newKernel(t, root)
			test.more(k)
			_, err := binder(t, root, k).Apply(context.Background(), bindPlan(t, root, test.driver, test.addresses...), "test")
			hosttest.Equal(t, test.want, fmt.Sprint(err))
			if last := k.log[len(k.log)-1]; test.want == "<nil>" && last != test.last {
				t.Errorf("%s", last)
			}
		})
	}
}

// TestKilled ends runs between all that they ask of the kernel. The
// next puts right what was left: each group is whole, no function is without the driver
// that it had or was to have. Then binding, and taking that back, work as ever.
func TestKilled(t *testing.T) {
	for what, lasts := range map[string]int{"bind": 17, "release": 18, "undo": 18} {
		whens := []string{"before1"}
		for count := 1; count <= lasts; count++ {
			whens = append(whens, fmt.Sprintf("after%d", count))
		}
		for _, when := range whens {
			t.Run(what+" "+when, func(t *testing.T) {
				t.Parallel()
				root := lay(t)
				record(t, root, "02:00.0")
				if what != "bind" {
					apply(t, root, recorded(t, root, bindPlan(t, root, "vfio-pci")))
				}
				cmd := exec.Command(os.Args[0], "die", root.Path("/"), what, when)
				if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
					t.Fatalf("%v: %s", err, out)
				}
				k := newKernel(t, root)
				b := binder(t, root, k)
				dealt, err := b.Recover(context.Background())
				if err != nil || len(dealt) != 1 {
					t.Fatal(dealt, err)
				}
				if again, err := b.Recover(context.Background()); err != nil || len(again) > 0 {
					t.Errorf("again: %v, %v", again, err)
				}
				for _, card := range []string{"01:", "02:"} {
					if got := of(states(t, root), card); got != of(atFirst, card) && got != of(bound(), card) {
						t.Errorf("half:\n%s", got)
					}
				}
				offered := map[bool]string{true: "02:00.0"}[of(states(t, root), "02:") == of(atFirst, "02:")]
				hosttest.EqualIn(t, "offered to containers", offered, spec(t, root))
				if p := bindPlan(t, root, "vfio-pci"); len(p.Changes) > 0 {
					if _, err := b.Apply(context.Background(), recorded(t, root, p), "test"); err != nil {
						t.Fatal(err)
					}
				}
				hosttest.EqualIn(t, "bound", bound(), states(t, root))
				for {
					e, err := change.Pick(entries(t, root), 0)
					if err != nil {
						break
					}
					if _, err := b.Undo(context.Background(), e); err != nil {
						t.Fatal(err)
					}
				}
				hosttest.EqualIn(t, "undone", atFirst, states(t, root))
				hosttest.EqualIn(t, "undone: offered to containers", "02:00.0", spec(t, root))
			})
		}
	}
}

// of returns the lines that begin with a prefix.
func of(lines, prefix string) string {
	var of []string
	for line := range strings.Lines(lines) {
		if strings.HasPrefix(line, prefix) {
			of = append(of, line)
		}
	}
	return strings.Join(of, "")
}

func apply(t testing.TB, root host.Root, p driver.Plan) {
	t.Helper()
	if _, err := binder(t, root, newKernel(t, root)).Apply(context.Background(), p, "test"); err != nil {
		t.Fatal(err)
	}
}

// die is a process that kills itself at some request.
func die(dir, what, when string) int {
	root, err := host.NewRoot(dir)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	t := &testing.T{}
	k := newKernel(t, root)
	k.die = func(count int, done bool) {
		if when == map[bool]string{false: "before", true: "after"}[done]+strconv.Itoa(count) {
			unix.Kill(os.Getpid(), unix.SIGKILL)
			time.Sleep(time.Minute)
		}
	}
	b := binder(t, root, k)
	if kind, ok := strings.CutPrefix(what, "service "); ok {
		die := k.die
		k = serve(t, root)
		k.die = die
		b = binder(t, root, k)
		switch kind {
		case "one":
			_, err = b.Apply(context.Background(), servicePlan(t, root, "02"), "test")
		case "both":
			_, err = b.Apply(context.Background(), servicePlan(t, root, "01", "02"), "test")
		default:
			_, err = b.Undo(context.Background(), entries(t, root)[0])
		}
	}
	switch what {
	case "bind":
		_, err = b.Apply(context.Background(), recorded(t, root, bindPlan(t, root, "vfio-pci")), "test")
	case "release":
		_, err = b.Apply(context.Background(), recorded(t, root, releasePlan(t, root)), "test")
	case "undo":
		_, err = b.Undo(context.Background(), entries(t, root)[0])
	}
	fmt.Println("lived for", k.count, err)
	return 0
}

// TestRecoverOther: a boot takes everything back, and a driver of somebody else's
// keeps what it has.
func TestRecoverOther(t *testing.T) {
	after := func(t *testing.T, count int) (host.Root, *kernel) {
		root := lay(t)
		cmd := exec.Command(os.Args[0], "die", root.Path("/"), "bind", fmt.Sprintf("after%d", count))
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Fatalf("%s", out)
		}
		return root, newKernel(t, root)
	}
	t.Run("another boot", func(t *testing.T) {
		root, k := after(t, 3)
		boot(t, root)
		if dealt, err := binder(t, root, k).Recover(context.Background()); err != nil || len(dealt) != 1 || len(entries(t, root)) > 0 || len(k.log) > 0 {
			t.Errorf("%v, %v, %v", dealt, err, k.log)
		}
	})
	t.Run("another driver", func(t *testing.T) {
		root, k := after(t, 3)
		k.check(k.write(driver.Write{File: "/sys/bus/pci/devices/0000:01:00.0/driver_override", Value: "pci-stub"}))
		k.probe("0000:01:00.0")
		if dealt, err := binder(t, root, k).Recover(context.Background()); err != nil || len(dealt) != 1 || len(k.log) > 0 {
			t.Errorf("%v, %v, %v", dealt, err, k.log)
		}
	})
	t.Run("a whole group stays, for a guest may have it", func(t *testing.T) {
		root, k := after(t, 9)
		if dealt, err := binder(t, root, k).Recover(context.Background()); err != nil || len(dealt) != 1 || dealt[0].Entry.Status != change.Done {
			t.Errorf("%v, %v", dealt, err)
		}
		hosttest.Equal(t, bound("01:00.0", "01:00.1"), states(t, root))
	})
	t.Run("a function has gone", func(t *testing.T) {
		root, k := after(t, 3)
		k.check(os.RemoveAll(root.Path("/sys/bus/pci/devices/0000:01:00.0")))
		if dealt, err := binder(t, root, k).Recover(context.Background()); err != nil || len(dealt) != 1 {
			t.Errorf("%v, %v", dealt, err)
		}
	})
}

// TestGate: the gate is asked before functions are unbound, by a bind, its undo and its recovery.
// A refusal changes nothing, leaves an interrupted change open, and what --allow lifts is recorded.
func TestGate(t *testing.T) {
	refused, lift := errors.New("carries the default route"), pci.Identity{Address: pci.Address{Bus: 1}}
	gated := func(t *testing.T, root host.Root, k *kernel, err error) machineBinder {
		b := binder(t, root, k)
		b.Gate = func(changes []driver.Change) ([]pci.Identity, func() error, error) {
			if len(changes) == 0 || len(k.log) > 0 && strings.Contains(k.log[len(k.log)-1], "unbind") {
				t.Errorf("asked after %q, of %v", k.log, changes)
			}
			return []pci.Identity{lift}, func() error { return nil }, err
		}
		b.engine.Kinds = []change.Kind{b.Binder}
		return b
	}
	root := lay(t)
	k := newKernel(t, root)
	if _, err := gated(t, root, k, refused).Apply(context.Background(), bindPlan(t, root, "vfio-pci"), "bind"); !errors.Is(err, refused) {
		t.Errorf("bind: %v", err)
	}
	if diff := cmp.Diff(atFirst, states(t, root)); diff != "" || len(entries(t, root)) > 0 {
		t.Errorf("%v (-want +got):\n%s", entries(t, root), diff)
	}
	e, err := gated(t, root, k, nil).Apply(context.Background(), bindPlan(t, root, "vfio-pci"), "bind")
	if err != nil || len(e.Allowed) != 1 || e.Allowed[0].Address != lift.Address {
		t.Errorf("%v, %v", e.Allowed, err)
	}
	if _, err := gated(t, root, k, refused).Undo(context.Background(), e); !errors.Is(err, refused) || states(t, root) != bound() {
		t.Errorf("undo: %v, %s", err, states(t, root))
	}

	root = lay(t)
	if out, err := exec.Command(os.Args[0], "die", root.Path("/"), "bind", "after3").CombinedOutput(); err == nil {
		t.Fatalf("%s", out)
	}
	k = newKernel(t, root)
	half := states(t, root)
	if _, err := gated(t, root, k, refused).Recover(context.Background()); !errors.Is(err, refused) || !errors.Is(err, change.ErrUnfinished) {
		t.Errorf("recovery: %v", err)
	}
	if list := entries(t, root); states(t, root) != half || len(list) != 1 || !list[0].IsOpen() {
		t.Errorf("recovery: %v, %s", list, states(t, root))
	}
	if _, err := gated(t, root, k, nil).Recover(context.Background()); err != nil || states(t, root) != atFirst {
		t.Errorf("recovery: %v, %s", err, states(t, root))
	}
}

// TestNew: what cannot be planned is told, all of it.
func TestNew(t *testing.T) {
	root := lay(t)
	hosttest.NoError(t, os.Remove(root.Path("/sys/bus/pci/devices/0000:01:00.1/driver")))
	if err := os.WriteFile(root.Path("/sys/bus/pci/devices/0000:01:00.1/driver"), nil, 0o600); err != nil {
		t.Fatal(err) // no link
	}
	_, err := driver.New(root, scan(t, root), []driver.Goal{{Address: address(t, "01:00.1")}, {Address: address(t, "03:00.0")}}, false)
	if want := "0000:01:00.1: its driver cannot be read\n0000:03:00.0: is not there"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if got := host.HintOf(err).String(); got != "'gpustack host scan --all' warns why" { // and not: run gpustack as root
		t.Errorf("hint: %s", got)
	}
}

// TestLive: a write is made by another process, which answers as the kernel did, and
// one that the write is stuck in the kernel (uninterruptible sleep) from ends within its time.
func TestLive(t *testing.T) {
	root := lay(t)
	l := driver.Live{Runner: host.Runner{Root: root}, Timeout: time.Minute}
	const override = "/sys/bus/pci/devices/0000:01:00.0/driver_override"
	if err := l.Write(driver.Write{File: override, Value: "\n"}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(root.Path(override)); !strings.HasPrefix(string(text), "\n") || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	err := l.Write(driver.Write{File: "/sys/bus/pci/drivers/nouveau/unbind", Value: "x"})
	if want := "/sys/bus/pci/drivers/nouveau/unbind: no such file or directory"; !errors.Is(err, unix.ENOENT) || err.Error() != want {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(root.Path("/sys/bus/pci/drivers/nouveau/unbind")); !os.IsNotExist(err) {
		t.Errorf("the file was made: %v", err)
	}
	// To open a pipe that nobody reads waits for ever.
	hosttest.NoError(t, unix.Mkfifo(root.Path("/sys/bus/pci/drivers/nouveau/unbind"), 0o600))
	l.Timeout = 100 * time.Millisecond
	begun := time.Now()
	err = l.Write(driver.Write{File: "/sys/bus/pci/drivers/nouveau/unbind", Value: "0000:01:00.0"})
	if took := time.Since(begun); !errors.Is(err, host.ErrTimeout) || took > 5*time.Second {
		t.Errorf("%v after %s", err, took)
	}
	if err := l.Ready(); !errors.Is(err, driver.ErrNotLive) {
		t.Errorf("%v", err)
	}
	if err := l.TryGroup(10); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v", err)
	}
}

// TestAwait: a write that a killed run has left is seen, and waited for.
func TestAwait(t *testing.T) {
	self, err := host.NewRoot("/")
	hosttest.NoError(t, err)
	fifo := filepath.Join(t.TempDir(), "unbind")
	hosttest.NoError(t, unix.Mkfifo(fifo, 0o600))
	cmd := exec.Command(os.Args[0], driver.WriteCommand, "--", fifo, "0000:01:00.0")
	hosttest.NoError(t, cmd.Start())
	want := fmt.Sprintf("process %d of an earlier run writes %q to %s: the write is stuck in the kernel (uninterruptible sleep)", cmd.Process.Pid, "0000:01:00.0", fifo)
	for range 500 { // until it has become that program; others' tests may run too
		if err = driver.Await(t.Context(), self, 0); err != nil && strings.Contains(err.Error(), want) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !errors.Is(err, host.ErrStuck) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := driver.Await(interrupted, self, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	end := make(chan error)
	go func() { end <- driver.Await(t.Context(), self, time.Minute) }()
	if text, err := os.ReadFile(fifo); string(text) != "0000:01:00.0" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if err := errors.Join(cmd.Wait(), <-end); err != nil {
		t.Error(err)
	}
}

// FuzzRecord: whatever an entry contains, the result is an error or a plan.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"boot_id":"b0b0","release":false,"services":{"stop":null,"persistence_off":null,"start":null,"persistence_on":null,"persistent":null},"functions":[{"address":"0000:01:00.0","iommu_group":10,"before":{"driver":null,"driver_override":null},"after":{"driver":"nouveau","driver_override":null},"any":false}]}`))
	root := lay(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		e := change.Entry{Changes: change.KindDrivers, Drivers: data, Status: change.Done}
		c, err := driver.Binder{Root: root}.Open(t.Context(), e)
		if err != nil {
			return
		}
		p, err := c.(*driver.Binding).Back()
		if err != nil {
			return
		}
		for _, c := range p.Changes {
			for _, w := range c.Writes() {
				if !strings.HasPrefix(w.File, "/sys/bus/pci/") {
					t.Errorf("writes to %s", w.File)
				}
			}
		}
	})
}
