package cloud

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

const (
	card     = "0000:84:00.0"
	class    = "CUSTOM_PCI_10DE_11B4"
	instance = "1f975a18-2c6e-4a6e-9d0d-3d7f4b7a8c11"
	move     = "2f975a18-2c6e-4a6e-9d0d-3d7f4b7a8c11"
)

// row returns a row of pci_devices.
func row(change func(*find.StockRow)) find.StockRow {
	r := find.StockRow{Device: cleanup.Device{Address: card, Vendor: "10de", Product: "11b4", Type: cleanup.TypePCI, Status: cleanup.StatusAvailable}}
	if change != nil {
		change(&r)
	}
	return r
}

// allocated gives a row to the instance.
func allocated(r *find.StockRow) {
	uuid := instance
	r.Status, r.Instance = cleanup.StatusAllocated, &uuid
}

// judged gives a row a finding.
func judged(v cleanup.Verdict, c cleanup.Case) func(*find.StockRow) {
	return func(r *find.StockRow) {
		allocated(r)
		r.Finding = &cleanup.Finding{Verdict: v, Case: c, Reason: "judged"}
	}
}

// vf makes a row that of a virtual function of the card.
func vf(address string, change func(*find.StockRow)) find.StockRow {
	return row(func(r *find.StockRow) {
		parent := card
		if r.Address, r.Type, r.Parent = address, cleanup.TypeVF, &parent; change != nil {
			change(r)
		}
	})
}

// provider returns the provider of the card, of which consumers hold amounts.
func provider(total, reserved int, once bool, held map[string]int) provided {
	i := cloud.Inventory{Total: total, Reserved: reserved, Held: held}
	for _, n := range held {
		i.Used += n
	}
	return provided{cloud.Provider{UUID: "p", Name: "gpu1_0000:84:00.0", Root: "r"}, map[string]cloud.Inventory{class: i}, once}
}

// listerAt returns a lister that has read a compute node and providers.
func listerAt(at *place, providers ...provided) *lister {
	l := newLister()
	l.places[at.node], l.providers = at, providers
	return l
}

// TestJoin: what a source does not show is unknown, and what two contradict each other in is a line of its
// own. The lines are those of devices, and of contradictions.
func TestJoin(t *testing.T) {
	for name, test := range map[string]struct {
		rows      []find.StockRow
		providers []provided
		off       string
		silent    bool
		busy      bool
		unread    bool // the database
		want      string
	}{
		"a free row":           {rows: []find.StockRow{row(nil)}, want: "84:00.0 free"},
		"a row of an instance": {rows: []find.StockRow{row(allocated)}, want: "84:00.0 instance train"},
		"a stale row":          {rows: []find.StockRow{row(judged(cleanup.Stale, cleanup.CaseGone))}, want: "84:00.0 stale A train: judged"},
		"a suspicious row": {rows: []find.StockRow{row(judged(cleanup.Suspicious, cleanup.CaseTooMany))},
			want: "84:00.0 suspicious K train: judged"},
		"an unknown row": {rows: []find.StockRow{row(judged(cleanup.Unknown, cleanup.CaseOdd))}, want: "84:00.0 unknown X train: judged"},
		"a blocked row": {rows: []find.StockRow{row(func(r *find.StockRow) { r.Status = cleanup.StatusUnavailable })},
			want: "84:00.0 disabled: a function of the same card is assigned"},
		"a free row of a disabled host":  {rows: []find.StockRow{row(nil)}, off: "nova-compute is down", want: "84:00.0 disabled: nova-compute is down"},
		"an instance on a disabled host": {rows: []find.StockRow{row(allocated)}, off: "nova-compute is down", want: "84:00.0 instance train"},
		"a free device of a silent cell": {providers: []provided{provider(1, 0, false, nil)}, unread: true, silent: true,
			want: "84:00.0 unknown: its cell does not answer"},
		"a free provider": {providers: []provided{provider(1, 0, false, nil)}, unread: true, want: "84:00.0 free"},
		"a provider of a server": {providers: []provided{provider(1, 0, false, map[string]int{instance: 1})}, unread: true,
			want: "84:00.0 instance train"},
		"a provider of a migration": {providers: []provided{provider(1, 0, false, map[string]int{move: 1})}, unread: true, want: "84:00.0 instance train"},
		"a provider of an unknown consumer": {providers: []provided{provider(1, 0, false, map[string]int{"x": 1})}, unread: true,
			want: "84:00.0 unknown: consumer x is neither a server nor a migration that is open"},
		"a reserved provider": {providers: []provided{provider(1, 1, false, nil)}, unread: true, want: "84:00.0 disabled: reserved in Placement"},
		"a provider to clean": {providers: []provided{provider(1, 1, true, nil)}, unread: true,
			want: "84:00.0 to-clean: reserved after its guest (one_time_use); no guest report of gpu1 was given"},
		"a provider in its one use": {providers: []provided{provider(1, 1, true, map[string]int{instance: 1})}, unread: true, want: "84:00.0 instance train"},
		"a provider that was not read": {providers: []provided{{Provider: cloud.Provider{UUID: "p", Name: "gpu1_0000:84:00.0", Root: "r"}}},
			unread: true, want: "84:00.0 unknown: Placement has not shown what the provider has"},
		"two of three VFs": {providers: []provided{provider(3, 0, false, map[string]int{instance: 2})}, unread: true,
			want: "84:00.0 free\n84:00.0 instance train\n84:00.0 instance train"},
		"both, free": {rows: []find.StockRow{row(nil)}, providers: []provided{provider(1, 0, false, nil)}, want: "84:00.0 free"},
		"both, of an instance": {rows: []find.StockRow{row(allocated)},
			providers: []provided{provider(1, 0, false, map[string]int{instance: 1})}, want: "84:00.0 instance train"},
		"both, of a migration": {rows: []find.StockRow{row(allocated)}, providers: []provided{provider(1, 0, false, map[string]int{move: 1})},
			want: "84:00.0 instance train"},
		"both, to clean": {rows: []find.StockRow{row(nil)}, providers: []provided{provider(1, 1, true, nil)},
			want: "84:00.0 to-clean: reserved after its guest (one_time_use); no guest report of gpu1 was given"},
		"a free row with an allocation": {rows: []find.StockRow{row(nil)}, providers: []provided{provider(1, 0, false, map[string]int{instance: 1})},
			want: "84:00.0 unknown: sources contradict each other\n! 84:00.0 instance " + instance + " has 0 devices by the database, and 1 by Placement"},
		"a row without an allocation": {rows: []find.StockRow{row(allocated)}, providers: []provided{provider(1, 0, false, nil)},
			want: "84:00.0 unknown: sources contradict each other\n! 84:00.0 instance " + instance + " has 1 device by the database, and 0 by Placement"},
		"a row without an allocation yet": {rows: []find.StockRow{row(allocated)}, providers: []provided{provider(1, 0, false, nil)}, busy: true,
			want: "84:00.0 instance train"},
		"a stale row without an allocation": {rows: []find.StockRow{row(judged(cleanup.Stale, cleanup.CaseGone))},
			providers: []provided{provider(1, 0, false, nil)}, want: "84:00.0 stale A train: judged"},
		"a provider without a row": {providers: []provided{provider(1, 0, false, nil)},
			want: "84:00.0 unknown: sources contradict each other\n! 84:00.0 Placement has the device, and the database has no row of it"},
		"VFs of one provider": {rows: []find.StockRow{vf("0000:84:00.4", allocated), vf("0000:84:00.5", nil)},
			providers: []provided{provider(2, 0, false, map[string]int{instance: 1})},
			want:      "84:00.4 instance train\n84:00.5 free"},
		"VFs with one allocation more": {rows: []find.StockRow{vf("0000:84:00.4", allocated), vf("0000:84:00.5", nil)},
			providers: []provided{provider(2, 0, false, map[string]int{instance: 2})},
			want: "84:00.4 unknown: sources contradict each other\n84:00.5 unknown: sources contradict each other\n! 84:00.0 instance " + instance +
				" has 1 device by the database, and 2 by Placement"},
	} {
		at := &place{host: "gpu1", node: "gpu1", off: test.off, silent: test.silent, hasRows: !test.unread}
		l := listerAt(at, test.providers...)
		l.owners[instance], l.moves[move] = owner{DeviceInstance: DeviceInstance{instance, "train", "p1"}, isBusy: test.busy}, instance
		for _, r := range test.rows {
			l.addRow(at, r)
		}
		l.join(nil)
		list := l.selected(DevicesOptions{})
		var lines []string
		for _, d := range list.Devices {
			line := strings.TrimPrefix(d.Address, "0000:") + " " + string(d.State)
			if d.Case != "" {
				line += " " + string(d.Case)
			}
			if d.Instance != nil {
				line += " " + d.Instance.Name
			}
			if d.Reason != "" {
				line += ": " + d.Reason
			}
			lines = append(lines, line)
			if d.Product != "K4200" && (d.Product != "unknown" || d.State != DeviceUnknown) || len(list.Totals) != 1 {
				t.Errorf("%s: %+v, %+v", name, d, list.Totals)
			}
		}
		for _, c := range list.Contradictions {
			lines = append(lines, "! "+strings.TrimPrefix(c.Address, "0000:")+" "+c.Seen)
		}
		hosttest.EqualIn(t, name, test.want, strings.Join(lines, "\n"))
	}
}

// absent is a proof that a host has no guest with its devices, or a reason why not.
type absent struct {
	cleanup.Proof
	reason string
	holder cleanup.Use
}

func (a absent) At(time.Time) cleanup.Proof { return a }
func (a absent) Absent(string, string, []cleanup.Device, time.Time) (bool, string) {
	return a.reason == "", a.reason
}
func (a absent) Holder(string, string, time.Time) cleanup.Use { return a.holder }

// TestToClean: the command that releases a device is printed only if a report proves that no guest has it.
// A guest that has a device which Placement shows as free is a contradiction.
func TestToClean(t *testing.T) {
	guest := cleanup.Use{Guest: instance, Named: true}
	for name, test := range map[string]struct {
		proof    cleanup.Proof
		once     bool
		state    DeviceState
		releases bool
	}{
		"no report":                 {cleanup.NoProof(), true, DeviceToClean, false},
		"a report without a guest":  {absent{}, true, DeviceToClean, true},
		"an old report":             {absent{reason: "is old"}, true, DeviceToClean, false},
		"a guest that has it":       {absent{reason: "guest", holder: guest}, true, DeviceUnknown, false},
		"a guest with a free one":   {absent{holder: guest}, false, DeviceUnknown, false},
		"a free one without guests": {absent{}, false, DeviceFree, false},
	} {
		p := provider(1, 0, test.once, nil)
		if test.once {
			p = provider(1, 1, true, nil)
		}
		at := &place{host: "gpu1", node: "gpu1"}
		l := listerAt(at, p)
		l.proof = test.proof
		l.join(nil)
		d := l.selected(DevicesOptions{}).Devices[0]
		release := "openstack resource provider inventory set --amend --resource " + class + ":reserved=0 p"
		if d.State != test.state || strings.HasPrefix(d.Remedy.String(), release) != test.releases {
			t.Errorf("%s: %s, %s", name, d.State, d.Remedy)
		}
	}
}

// TestJoinInventory: GPUs that Nova does not have are the host's or those of containers; one that is
// prepared for guests is unknown.
func TestJoinInventory(t *testing.T) {
	vendor, product := pci.NVIDIA, pci.ID(0x11b4)
	h := nova.Host{Name: "gpu1.example.org", NovaHost: "gpu1"}
	for i := range 4 {
		address := hosttest.Address(t, fmt.Sprintf("0000:8%d:00.0", i))
		class, err := pci.ParseClass("0300")
		hosttest.NoError(t, err)
		h.Devices = append(h.Devices, pci.Device{Address: address, VendorID: &vendor, ProductID: &product, Class: &class})
	}
	h.Containers, h.Given = []pci.Address{h.Devices[1].Address}, []pci.Address{h.Devices[2].Address}
	at := &place{host: "gpu1", node: "gpu1", hasRows: true}
	l := listerAt(at)
	l.hosts = []nova.Host{h}
	l.addRow(at, row(func(r *find.StockRow) { r.Address = "0000:83:00.0" }))
	l.join(nil)
	var states []string
	for _, d := range l.selected(DevicesOptions{}).Devices {
		states = append(states, fmt.Sprintf("%s %s %s %s %v", d.Host, d.Address, d.Product, d.State, d.Sources))
	}
	slices.Sort(states)
	want := []string{"gpu1 0000:80:00.0 K4200 host [inventory]", "gpu1 0000:81:00.0 K4200 container [inventory]",
		"gpu1 0000:82:00.0 K4200 unknown [inventory]", "gpu1 0000:83:00.0 K4200 free [database inventory]"}
	hosttest.Equal(t, want, states)
}
