package rdmaprepare_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
)

// TestAllowAgain: what --allow lifts is recorded each time, also of an adapter that is recorded
// already, and what was lifted before is kept.
func TestAllowAgain(t *testing.T) {
	ib, eth := infiniband(), ethernet()
	a := address(eth.address)
	const route = "-- proc/net/route --\nIface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\neth1 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n"
	lift := func(use guard.Use) host.Lift { return host.Lift{Function: a.String(), Use: string(use)} }
	record := func(allowed []host.Lift) *rdma.Record {
		return &rdma.Record{Schema: host.Schema, Kind: rdma.RecordKind, Allowed: allowed, Files: []rdma.File{}, Adapters: []rdma.Prepared{{
			Address: a, VendorID: 0x15b3, ProductID: 0x101b, Path: []pci.Address{address("00:01.0")}, Driver: "mlx5_core",
			LinkLayer: rdma.LinkEthernet, Use: rdma.ForGuests, Whole: true, VFs: []rdma.PreparedVF{},
		}}}
	}
	whole := rdmaprepare.Options{Add: []pci.Address{a}, Whole: true}
	again := rdmaprepare.Options{Add: []pci.Address{a}, Whole: true, Allow: []pci.Address{a}}
	another := rdmaprepare.Options{Add: []pci.Address{address(ib.address)}, VFs: 2}
	for name, test := range map[string]struct {
		record  *rdma.Record
		options rdmaprepare.Options
		refused string
		want    []host.Lift // at least; nil for none
		undone  bool        // with --allow, which has restored the record
	}{
		"first":                            {nil, again, "", []host.Lift{lift(guard.UseDefaultRoute)}, false},
		"recorded, nothing lifted":         {record([]host.Lift{}), again, "", []host.Lift{lift(guard.UseDefaultRoute)}, false},
		"recorded, not allowed":            {record([]host.Lift{}), whole, "carries the default route", nil, false},
		"recorded, another use lifted":     {record([]host.Lift{lift(guard.UseKdump)}), again, "", []host.Lift{lift(guard.UseKdump), lift(guard.UseDefaultRoute)}, false},
		"another, nothing lifted":          {record([]host.Lift{}), another, "", nil, false},
		"restored by an undo with --allow": {record([]host.Lift{}), whole, "", []host.Lift{lift(guard.UseDefaultRoute)}, true},
		"restored so, another":             {record([]host.Lift{}), another, "", []host.Lift{lift(guard.UseDefaultRoute)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			files := route
			if test.record != nil {
				text, err := test.record.Text()
				if err != nil {
					t.Fatal(err)
				}
				files += "-- var/lib/gpustack/rdma.json --\n" + string(text)
			}
			root := hosttest.Lay(t, machineOf([]hca{ib, eth}, "", files))
			if test.undone {
				undone(t, root, lift(guard.UseDefaultRoute))
			}
			m, err := rdmaprepare.Observe(root, machine.Observe(root, machine.Record, machine.Options{}), guard.Running{}, test.options)
			if err != nil {
				t.Fatal(err)
			}
			w, err := rdmaprepare.NewWant(m, test.options)
			if test.refused != "" || err != nil {
				if err == nil || test.refused == "" || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("%v, want %q", err, test.refused)
				}
				return
			}
			got := w.Record.Allowed
			if got == nil || test.want == nil && len(got) > 0 || slices.ContainsFunc(test.want, func(l host.Lift) bool { return !slices.Contains(got, l) }) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// undone adds an entry to the journal whose undo has restored the record, with what --allow lifted.
func undone(t *testing.T, root host.Root, lifted ...host.Lift) {
	t.Helper()
	c, err := edit.Observe(root, rdma.RecordFile).Remove(rdma.RecordFile)
	if err != nil {
		t.Fatal(err)
	}
	files := change.Files{Root: root, Permit: func(edit.Plan) ([]host.Lift, error) { return lifted, nil }}
	e := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{files}, Run: func(context.Context, host.Program) error { return nil }}
	if _, err := e.Apply(t.Context(), change.Work{Command: "rdma prepare --none", Change: change.Files{Root: root}.New(edit.Plan{c})}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Undo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}
