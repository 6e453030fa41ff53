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
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/startup"
)

// wholeOf47ed7fd is what the binary of commit 47ed7fd recorded with rdma prepare --whole --allow,
// of an adapter through which the default route went. It does not say what was lifted.
const wholeOf47ed7fd = `{
  "schema": 1,
  "adapters": [
    {
      "address": "0000:0c:00.0",
      "vendor_id": "15b3",
      "product_id": "101b",
      "path": [],
      "driver": "mlx5_core",
      "link_layer": "Ethernet",
      "for": "guests",
      "whole": true,
      "vfs": []
    }
  ],
  "files": []
}
`

// TestRecordedLifts: what is recorded as lifted is honoured when the gate is asked again, also if
// the same use shows itself as another one, and nothing else is.
func TestRecordedLifts(t *testing.T) {
	network := guard.UseDefaultRoute
	with := func(what string) string {
		return strings.Replace(wholeOf47ed7fd, `"files"`, what+`"files"`, 1)
	}
	ids := func(record string) string {
		return strings.Replace(record, `"path"`, `"subsystem_vendor_id": "15b3", "subsystem_id": "0007", "path"`, 1)
	}
	lifting := func(at string, use guard.Use) string {
		return with(fmt.Sprintf(`"allowed": [{"function": %q, "use": %q}], `, at, use))
	}
	for name, test := range map[string]struct {
		record string
		use    guard.Use
		lifted bool
	}{
		"47ed7fd, the default route":          {wholeOf47ed7fd, network, true},
		"47ed7fd, a mount":                    {wholeOf47ed7fd, guard.UseMount, true},
		"47ed7fd, a use that it did not know": {wholeOf47ed7fd, guard.UseUpperLink, false},
		"47ed7fd, for containers":             {strings.Replace(wholeOf47ed7fd, `"guests"`, `"containers"`, 1), network, false},
		"subsystem ids are recorded":          {ids(wholeOf47ed7fd), network, false},
		"nothing was lifted":                  {with(`"allowed": [], `), network, false},
		"the same":                            {lifting(pf, network), network, true},
		"of another product":                  {strings.Replace(lifting(pf, network), "101b", "1017", 1), network, false},
		"of an adapter in another slot":       {strings.Replace(lifting(pf, network), `"path": []`, `"path": ["0000:00:03.0"]`, 1), network, false},
		"47ed7fd, another product":            {strings.Replace(wholeOf47ed7fd, "101b", "1017", 1), network, false},
		"of another function":                 {lifting("0000:0c:00.1", network), network, false},
		"an address, then the default route":  {lifting(pf, guard.UseAddress), network, true},
		"the default route, then its file":    {lifting(pf, network), guard.UseConfigured, true},
		"an address, then its file":           {lifting(pf, guard.UseAddress), guard.UseConfigured, true},
		"its file, then the default route":    {lifting(pf, guard.UseConfigured), network, true},
		"47ed7fd, the file of an address":     {wholeOf47ed7fd, guard.UseConfigured, true},
		"a bridge, then the file":             {lifting(pf, guard.UseUpperLink), guard.UseConfigured, false},
		"the file, then a bridge":             {lifting(pf, guard.UseConfigured), guard.UseUpperLink, false},
		"an ssh session":                      {lifting(pf, guard.UseSession), network, false},
		"an address, then a bridge":           {lifting(pf, guard.UseAddress), guard.UseUpperLink, false},
		"a mount, then its line of fstab":     {lifting(pf, guard.UseMount), guard.UseTable, true},
		"a line of fstab, then its mount":     {lifting(pf, guard.UseTable), guard.UseMount, false},
		"a mount, then the default route":     {lifting(pf, guard.UseMount), network, false},
		"a bridge, then an address":           {lifting(pf, guard.UseUpperLink), network, false},
	} {
		t.Run(name, func(t *testing.T) {
			links, files, mounts := used[gate.Use(test.use)](pf)
			root := hosttest.Lay(t, archive(t, false, links, files+"-- "+rdma.RecordFile[1:]+" --\n"+test.record, mounts))
			devices, _, err := pci.Scan(root, pci.Options{})
			if err != nil {
				t.Fatal(err)
			}
			allowed, err := gate.ReadAllowed(root, devices)
			if err != nil {
				t.Fatal(err)
			}
			leaving := gate.Leaving{Address: address(t, pf), Kind: gate.Now}
			h, _, err := gate.Observe(root, devices, []gate.Leaving{leaving})
			if err != nil {
				t.Fatal(err)
			}
			lifted, err := h.Leave(machine.Uses{}, allowed, leaving)
			if (err == nil) != test.lifted || test.lifted && len(lifted) == 0 {
				t.Errorf("lifted: %v, %v", gate.Lifts(lifted), err)
			}
		})
	}
}

// TestAllowedOfContract: a contract lifts the recorded uses of its functions, and only of the devices
// that are recorded.
func TestAllowedOfContract(t *testing.T) {
	a, vendor, product, other := address(t, pf), pci.ID(0x8086), pci.ID(0x1592), pci.ID(0xa80a)
	functions := []machine.Function{{Address: a, VendorID: vendor, ProductID: product}}
	devices := pci.Devices{{Address: a, VendorID: &vendor, ProductID: &product}}
	renumbered := pci.Devices{{Address: a, VendorID: &vendor, ProductID: &other}}
	lift := host.Lift{Function: pf, Use: string(guard.UseAddress)}
	records := gate.Records{Guests: &machine.Contract{Functions: functions, Allowed: []pci.Address{a}, Lifted: []host.Lift{lift}}}
	if of := records.Allowed(renumbered); len(of.Lifted) != 0 {
		t.Errorf("another device: %+v", of)
	}
	if of := records.Allowed(devices); len(of.Functions) != 0 || len(of.Lifted) != 1 || of.Lifted[0] != lift {
		t.Errorf("%+v", of)
	}
}

// TestTakes: an undo warns of an unknown ssh session only if it takes something from the host.
func TestTakes(t *testing.T) {
	whole := func(use rdma.Use) *rdma.Record {
		r := recorded(t)
		r.Adapters[0].Whole, r.Adapters[0].Use, r.Adapters[0].VFs = true, use, []rdma.PreparedVF{}
		return r
	}
	put := func(name, text string) func(host.Root) (edit.Change, error) {
		return func(root host.Root) (edit.Change, error) { return edit.Put(root, name, []byte(text), 0o600, false) }
	}
	for name, test := range map[string]struct {
		vfs  bool
		plan func(host.Root) (edit.Change, error)
		want bool
	}{
		"an adapter for guests":     {false, put(rdma.RecordFile, recordText(t, whole(rdma.ForGuests))), true},
		"an adapter for containers": {false, put(rdma.RecordFile, recordText(t, whole(rdma.ForContainers))), false},
		"VFs that exist": {true, func(root host.Root) (edit.Change, error) {
			return edit.Observe(root, rdma.RecordFile).Remove(rdma.RecordFile)
		}, true},
		"another file": {true, put("/etc/modprobe.d/x.conf", "blacklist x\n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, archive(t, test.vfs, "", "", ""))
			c, err := test.plan(root)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := gate.Takes(root, edit.Plan{c}); err != nil || got != test.want {
				t.Errorf("%t, %v", got, err)
			}
		})
	}
}

// TestBackOut: a record that is pending, of other VFs than those that exist, can be undone
// while one of these is in use: it stays. What this boot has made of an earlier record goes.
func TestBackOut(t *testing.T) {
	links, files, _ := used[gate.Use(guard.UseDefaultRoute)](vf)
	text := archive(t, true, links, files, "")
	at := strings.Index(text, "-- run/gpustack/boot.json --")
	unbooted := text[:at] + text[at+strings.Index(text[at:], "}]}\n")+len("}]}\n"):]
	more := recorded(t)
	for i := 2; i < 4; i++ {
		more.Adapters[0].VFs = append(more.Adapters[0].VFs, rdma.PreparedVF{Index: i, Address: address(t, fmt.Sprintf("0000:0c:00.%d", 2+i)), ProductID: 0x101c, Driver: "mlx5_core"})
	}
	const refused = pf + ": its VF " + vf + " carries the default route, through eth9"
	for name, test := range map[string]struct {
		tree   string
		record *rdma.Record
		want   string
	}{
		"VFs of others":                       {unbooted, more, "<nil>"},
		"VFs of an earlier record, this boot": {text, more, refused},
		"VFs of this record":                  {unbooted, recorded(t), refused},
		"VFs of this record, this boot":       {text, recorded(t), refused + "\n" + refused},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, test.tree)
			c, err := edit.Put(root, rdma.RecordFile, []byte(recordText(t, test.record)), 0o600, false)
			if err == nil {
				err = edit.Plan{c}.Apply(t.Context(), root)
			}
			if err != nil {
				t.Fatal(err)
			}
			if c, err = edit.Observe(root, rdma.RecordFile).Remove(rdma.RecordFile); err != nil {
				t.Fatal(err)
			}
			_, err = gate.Permit(root, edit.Plan{c}, gate.Allowed{})
			_, revert := startup.Permit(startup.Machine{Root: root, Kernel: func(time.Duration) driver.Requester { return nil }}, nil)
			if got := fmt.Sprint(errors.Join(err, revert)); got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
}

// asked asks the gate of the adapter, which would leave now, with what is lifted on the machine.
func asked(t *testing.T, root host.Root) error {
	t.Helper()
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := gate.ReadAllowed(root, devices)
	if err != nil {
		t.Fatal(err)
	}
	leaving := gate.Leaving{Address: address(t, pf), Kind: gate.Now}
	h, _, err := gate.Observe(root, devices, []gate.Leaving{leaving})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Leave(machine.Uses{}, allowed, leaving)
	return err
}

// TestUndoneLifts: what --allow lifts of an undo that restores a record is lifted as long as the
// record is the restored one.
func TestUndoneLifts(t *testing.T) {
	links, files, _ := used[gate.Use(guard.UseDefaultRoute)](pf)
	root := hosttest.Lay(t, archive(t, false, links, files, ""))
	r := recorded(t)
	r.Adapters[0].Whole, r.Adapters[0].Use, r.Adapters[0].VFs, r.Allowed = true, rdma.ForGuests, []rdma.PreparedVF{}, []host.Lift{}
	record := func(text string) {
		t.Helper()
		c, err := edit.Put(root, rdma.RecordFile, []byte(text), 0o600, false)
		if err == nil {
			err = edit.Plan{c}.Apply(t.Context(), root)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	record(recordText(t, r))
	const refused = pf + ": carries the default route, through eth9"
	is := func(when, want string) {
		t.Helper()
		got := ""
		if err := asked(t, root); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	is("recorded", refused)
	allow := gate.Allowed{Functions: []pci.Address{address(t, pf)}}
	permit := func(p edit.Plan) ([]host.Lift, error) { return gate.Permit(root, p, allow) }
	engine := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{change.Files{Root: root, Permit: permit}}, Run: func(context.Context, host.Program) error { return nil }}
	c, err := edit.Observe(root, rdma.RecordFile).Remove(rdma.RecordFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Apply(t.Context(), change.Work{Command: "rdma prepare --none", Change: change.Files{Root: root}.New(edit.Plan{c})}); err != nil {
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
		err = edit.Plan{c}.Apply(t.Context(), root)
	}
	if err != nil {
		t.Fatal(err)
	}
	is("no record", refused)
}

// TestJournalUnread: a journal that cannot be read keeps no function from leaving. Where a use is
// refused that it may lift, its error says so.
func TestJournalUnread(t *testing.T) {
	const journal = "-- var/lib/gpustack/journal/0001.json --\n{\n"
	const unread = "\ncannot determine what --allow has lifted of changes that were interrupted or undone: /var/lib/gpustack/journal/0001.json: "
	for name, test := range map[string]struct {
		use    gate.Use // "" for none
		record string
		want   []string // parts of the error; nil for none
		not    string
	}{
		"idle":               {"", "", nil, ""},
		"lifted by a record": {gate.Use(guard.UseDefaultRoute), "-- " + rdma.RecordFile[1:] + " --\n" + wholeOf47ed7fd, nil, ""},
		"in use":             {gate.Use(guard.UseDefaultRoute), "", []string{pf + ": carries the default route, through eth9", unread}, ""},
		"what nothing lifts": {rootDisk, "", []string{pf + ": carries /dev/nvme0n1"}, "journal"},
		"VFs":                {gate.Use(host.CodeVirtualFunctions), "", []string{pf + ": has virtual functions enabled"}, "journal"},
	} {
		t.Run(name, func(t *testing.T) {
			links, files, mounts := "", "", ""
			if test.use != "" {
				links, files, mounts = used[test.use](pf)
			}
			err := asked(t, hosttest.Lay(t, archive(t, false, links, files+test.record+journal, mounts)))
			if err == nil {
				err = errors.New("")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q, want %q", err, want)
				}
			}
			if test.want == nil && err.Error() != "" || test.not != "" && strings.Contains(err.Error(), test.not) {
				t.Errorf("%q", err)
			}
		})
	}
}
