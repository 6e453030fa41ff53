package gate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/startup"
	"gpustack/host/steps"
)

// allowedWhole is a record of rdma prepare --whole --allow of an adapter.
const allowedWhole = `{
  "schema": 1,
  "kind": "rdma record",
  "adapters": [
    {
      "address": "0000:0c:00.0",
      "vendor_id": "15b3",
      "product_id": "101b",
      "bridges": [],
      "driver": "mlx5_core",
      "link_layer": "Ethernet",
      "for": "guests",
      "whole": true,
      "vfs": []
    }
  ],
  "allowed": [
    "0000:0c:00.0"
  ],
  "files": []
}
`

// TestRecordedAllow: a recorded --allow is honoured when the gate is asked again, whatever uses the
// function by then, as long as the device at the address is the recorded one. What the kernel has
// claimed since stays.
func TestRecordedAllow(t *testing.T) {
	for name, test := range map[string]struct {
		record, state string
		leaves        bool
	}{
		"the same":                     {allowedWhole, "an interface that is up", true},
		"used in another way":          {allowedWhole, "a port of a bridge", true},
		"claimed since":                {allowedWhole, "a mounted disk", false},
		"needed by root since":         {allowedWhole, "the root file system", false},
		"nothing was allowed":          {strings.Replace(allowedWhole, "\n    \"0000:0c:00.0\"\n  ", "", 1), "an interface that is up", false},
		"another product":              {strings.Replace(allowedWhole, "101b", "1017", 1), "an interface that is up", false},
		"in another slot":              {strings.Replace(allowedWhole, `"bridges": []`, `"bridges": ["0000:00:03.0"]`, 1), "an interface that is up", false},
		"of a function without record": {strings.Replace(allowedWhole, `    "0000:0c:00.0"`, `    "0000:0c:00.1"`, 1), "an interface that is up", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, inState(t, test.state, false, pf)+"-- "+rdma.RecordFile[1:]+" --\n"+test.record)
			if err := asked(t, root); (err == nil) != test.leaves {
				t.Errorf("leaves: %v", err)
			}
		})
	}
}

// TestAllowedOfContract: a contract allows the functions that it names, with their identities.
func TestAllowedOfContract(t *testing.T) {
	a, b := hosttest.Address(t, pf), hosttest.Address(t, vf)
	r := gate.Records{Guests: &machine.Contract{Functions: []machine.Function{{Address: a, VendorID: 0x8086, ProductID: 0x1592}}, Allowed: []pci.Address{a, b}}}
	if of := r.Allowed().Recorded; len(of) != 1 || of[0].Address != a || *of[0].ProductID != 0x1592 {
		t.Errorf("%+v", of)
	}
}

// TestBackOut: a record that is pending can be undone while a VF that exists is in use: the VF
// stays, whether or not the record names it. What this boot has made of an earlier record goes.
func TestBackOut(t *testing.T) {
	text := inState(t, "an interface that is up", true, vf)
	at := strings.Index(text, "-- run/gpustack/boot.json --")
	unbooted := text[:at] + text[at+strings.Index(text[at:], "}]}\n")+len("}]}\n"):]
	more := recorded(t)
	for i := 2; i < 4; i++ {
		more.Adapters[0].VFs = append(more.Adapters[0].VFs, rdma.PreparedVF{Index: i, Address: hosttest.Address(t, fmt.Sprintf("0000:0c:00.%d", 2+i)),
			ProductID: 0x101c, Driver: "mlx5_core"})
	}
	const refused = pf + ": its VF " + vf + " has a network interface in use: eth9 is up"
	for name, test := range map[string]struct {
		tree   string
		record *rdma.Record
		want   string
	}{
		"VFs of others":                       {unbooted, more, "<nil>"},
		"VFs of an earlier record, this boot": {text, more, refused + "\n" + refused},
		"VFs of others that the record names": {unbooted, recorded(t), "<nil>"},
		"VFs of this record, this boot":       {text, recorded(t), refused + "\n" + refused},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, test.tree)
			c, err := edit.Put(root, rdma.RecordFile, []byte(recordText(t, test.record)), 0o600, false)
			if err == nil {
				err = edit.Changes{c}.Apply(t.Context(), root)
			}
			hosttest.NoError(t, err)
			if c, err = edit.Observe(root, rdma.RecordFile).Remove(rdma.RecordFile); err != nil {
				t.Fatal(err)
			}
			_, err = gate.Permit(root, edit.Changes{c}, steps.Made, gate.Allowed{})
			_, revert := startup.Permit(startup.Machine{Root: root, Kernel: func(time.Duration) driver.Requester { return nil }}, nil)
			hosttest.Equal(t, test.want, fmt.Sprint(errors.Join(err, revert)))
		})
	}
}

// asked asks the gate of the adapter, which would leave now, with what is lifted on the machine.
func asked(t *testing.T, root host.Root) error {
	t.Helper()
	devices := hosttest.Devices(t, root)
	allowed, err := gate.ReadAllowed(root)
	hosttest.NoError(t, err)
	leaving := gate.Leaving{Address: hosttest.Address(t, pf), Kind: gate.Now, Whole: true}
	h, _, err := gate.Observe(root, devices, []gate.Leaving{leaving})
	hosttest.NoError(t, err)
	_, err = h.Leave(machine.Uses{}, allowed, leaving)
	return err
}

// TestRestored: a record that is restored takes no function that has come into use since: neither
// one that --allow has named for it, nor one that only its ids match.
func TestRestored(t *testing.T) {
	at, other := hosttest.Address(t, pf), pci.Address{Bus: 0x0d}
	contract := func(f machine.Function, allowed ...pci.Address) *edit.File {
		f.Driver, f.Path, f.Members = machine.VFIO, []pci.Address{}, []pci.Address{}
		text, err := machine.RecordText(&machine.Contract{Driver: machine.VFIO, Selected: []pci.Address{f.Address}, Allowed: append([]pci.Address{}, allowed...),
			Functions: []machine.Function{f}, Arguments: []string{}, Files: []machine.Hash{}}, nil)
		hosttest.NoError(t, err)
		return &edit.File{Content: text}
	}
	nic := contract(machine.Function{Address: at, VendorID: 0x15b3, ProductID: 0x101b, By: machine.ByService}, at)
	byIDs := func(vendor, product pci.ID) *edit.File {
		return contract(machine.Function{Address: other, VendorID: vendor, ProductID: product, By: machine.ByIDs})
	}
	const refused = pf + ": is no GPU: NIC eth1 eth9 (mlx5_core); eth9 is up"
	for name, test := range map[string]struct {
		before, after *edit.File
		allow         []pci.Address
		want          string
	}{
		"allowed once":             {nil, nic, nil, refused},
		"allowed now":              {nil, nic, []pci.Address{at}, "<nil>"},
		"the record before has it": {nic, nic, nil, "<nil>"},
		"ids match it":             {nil, byIDs(0x15b3, 0x101b), nil, pf + ": is not recorded, but ids=15b3:101b of the record match it: NIC eth1 eth9 (mlx5_core); eth9 is up"},
		"ids that are there":       {byIDs(0x15b3, 0x101b), byIDs(0x15b3, 0x101b), nil, "<nil>"},
		"other ids":                {nil, byIDs(0x1234, 0x5678), nil, "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, inState(t, "an interface that is up", false, pf))
			_, err := gate.Permit(root, edit.Changes{{Name: machine.ContractFile, Before: test.before, After: test.after}}, steps.Made,
				gate.Allowed{Functions: test.allow})
			hosttest.Equal(t, test.want, fmt.Sprint(err))
		})
	}
}

// TestUndoneAllow: what --allow names for an undo that restores a record is allowed as long as the
// record is the restored one.
func TestUndoneAllow(t *testing.T) {
	root := hosttest.Lay(t, inState(t, "an interface that is up", false, pf))
	r := recorded(t)
	r.Adapters[0].Whole, r.Adapters[0].Use, r.Adapters[0].VFs, r.Allowed = true, rdma.ForGuests, []rdma.PreparedVF{}, []pci.Address{}
	record := func(text string) {
		t.Helper()
		c, err := edit.Put(root, rdma.RecordFile, []byte(text), 0o600, false)
		if err == nil {
			err = edit.Changes{c}.Apply(t.Context(), root)
		}
		hosttest.NoError(t, err)
	}
	record(recordText(t, r))
	const refused = pf + ": has a network interface in use: eth9 is up"
	is := func(when, want string) {
		t.Helper()
		got := ""
		if err := asked(t, root); err != nil {
			got = err.Error()
		}
		hosttest.EqualIn(t, when, want, got)
	}
	is("recorded", refused)
	allow := gate.Allowed{Functions: []pci.Address{hosttest.Address(t, pf)}}
	permit := func(p edit.Changes) ([]pci.Identity, error) { return gate.Permit(root, p, steps.Made, allow) }
	engine := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{change.Files{Root: root, Permit: permit}}, Run: func(context.Context, host.Program) error { return nil }}
	c, err := edit.Observe(root, rdma.RecordFile).Remove(rdma.RecordFile)
	hosttest.NoError(t, err)
	if _, err := engine.Apply(t.Context(), change.Work{Command: "rdma prepare --none", Change: change.Files{Root: root}.New(edit.Changes{c})}); err != nil {
		t.Fatal(err)
	}
	is("done", refused)
	entry, err := engine.Undo(t.Context(), 1)
	if err != nil || entry.Status != change.Undone || len(entry.Allowed) != 1 {
		t.Fatalf("%+v, %v", entry, err)
	}
	is("undone", "")
	r.Netns = rdma.NetnsExclusive
	record(recordText(t, r))
	is("another record", refused)
	c, err = edit.Observe(root, rdma.RecordFile).Remove(rdma.RecordFile)
	if err == nil {
		err = edit.Changes{c}.Apply(t.Context(), root)
	}
	hosttest.NoError(t, err)
	is("no record", refused)
}

// TestJournalUnread: a journal that cannot be read keeps no function from leaving. Where a use is
// refused that it may lift, its error says so.
func TestJournalUnread(t *testing.T) {
	const journal = "-- var/lib/gpustack/journal/0001.json --\n{\n"
	const unread = "\ncannot determine which functions --allow named for changes that were interrupted or undone: /var/lib/gpustack/journal/0001.json: "
	for name, test := range map[string]struct {
		state, record string
		want          []string // parts of the error; nil for none
		not           string
	}{
		"idle":                {"idle", "", nil, ""},
		"allowed by a record": {"an interface that is up", "-- " + rdma.RecordFile[1:] + " --\n" + allowedWhole, nil, ""},
		"in use":              {"an interface that is up", "", []string{pf + ": has a network interface in use: eth9 is up", unread}, ""},
		"what nothing lifts":  {"the root file system", "", []string{pf + ": carries /dev/nvme0n1"}, "journal"},
		"VFs":                 {"virtual functions", "", []string{pf + ": has virtual functions enabled"}, "journal"},
	} {
		t.Run(name, func(t *testing.T) {
			err := asked(t, hosttest.Lay(t, inState(t, test.state, false, pf)+test.record+journal))
			if err == nil {
				err = errors.New("")
			}
			for _, want := range test.want {
				hosttest.Contains(t, want, err.Error())
			}
			if test.want == nil && err.Error() != "" || test.not != "" && strings.Contains(err.Error(), test.not) {
				t.Errorf("%q", err)
			}
		})
	}
}
