package rdmaprepare_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
)

// TestAllowAgain: an adapter that leaves because --allow names it is recorded so each time, also if
// it is recorded already, and that is kept as long as the adapter is recorded.
func TestAllowAgain(t *testing.T) {
	ib, eth := infiniband(), ethernet()
	a := address(eth.address)
	const route = "-- proc/net/route --\nIface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\neth1 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n"
	record := func(allowed ...pci.Address) *rdma.Record {
		return &rdma.Record{Allowed: allowed, Files: []rdma.File{}, Adapters: []rdma.Prepared{{
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
		want    []pci.Address
		undone  bool // with --allow, which has restored the record
	}{
		"first":                            {nil, again, "", []pci.Address{a}, false},
		"recorded, nothing allowed":        {record(), again, "", []pci.Address{a}, false},
		"recorded, not allowed":            {record(), whole, "eth1 is up", nil, false},
		"recorded, allowed before":         {record(a), whole, "", []pci.Address{a}, false},
		"another, allowed before":          {record(a), another, "", []pci.Address{a}, false},
		"another, nothing allowed":         {record(), another, "", nil, false},
		"allowed before, is removed":       {record(a), rdmaprepare.Options{Remove: []pci.Address{a}}, "", nil, false},
		"restored by an undo with --allow": {record(), whole, "", []pci.Address{a}, true},
	} {
		t.Run(name, func(t *testing.T) {
			files := route
			if test.record != nil {
				text, err := test.record.Text()
				hosttest.NoError(t, err)
				files += "-- var/lib/gpustack/rdma.json --\n" + string(text)
			}
			root := hosttest.Lay(t, machineOf([]hca{ib, eth}, "", files))
			if test.undone {
				undone(t, root, pci.Identity{Address: a, VendorID: new(pci.ID(0x15b3)), ProductID: new(pci.ID(0x101b)), Path: []pci.Address{address("00:01.0")}})
			}
			m, err := rdmaprepare.Observe(root, machine.ObserveRecord(root, nil, true), test.options)
			hosttest.NoError(t, err)
			w, err := rdmaprepare.NewWant(m, test.options)
			if test.refused != "" || err != nil {
				if err == nil || test.refused == "" || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("%v, want %q", err, test.refused)
				}
				return
			}
			got := w.Record.Allowed
			if !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// undone adds an entry to the journal whose undo has restored the record, with what --allow lifted.
func undone(t *testing.T, root host.Root, lifted ...pci.Identity) {
	t.Helper()
	c, err := edit.Observe(root, rdma.RecordFile).Remove(rdma.RecordFile)
	hosttest.NoError(t, err)
	files := change.Files{Root: root, Permit: func(edit.Changes) ([]pci.Identity, error) { return lifted, nil }}
	e := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{files}, Run: func(context.Context, host.Program) error { return nil }}
	if _, err := e.Apply(t.Context(), change.Work{Command: "rdma prepare --none", Change: change.Files{Root: root}.New(edit.Changes{c})}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Undo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}
