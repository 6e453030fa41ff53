package db

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/integration/evidence"
)

// groupOf is a host whose guest has an IOMMU group open: of the functions in it, its
// arguments name those that are said, and its domain others.
func groupOf(t *testing.T, uuid string, members, asked, domain []string) func(*guest.Report) {
	t.Helper()
	addresses := func(list []string) []pci.Address {
		all := []pci.Address{}
		for _, text := range list {
			a := hosttest.Address(t, text)
			all = append(all, a)
		}
		return all
	}
	return func(r *guest.Report) {
		group := 1
		r.Holders = append(r.Holders, guest.Holder{PID: 7, Command: "qemu-system-x86", UUID: &uuid, Group: &group, Functions: addresses(members), Asked: addresses(asked)})
		r.Guests = append(r.Guests, guest.Guest{PID: 7, Command: "qemu-system-x86", UUID: &uuid, Asked: addresses(asked)})
		if domain != nil {
			r.Domains = append(r.Domains, guest.Domain{UUID: uuid, Name: "guest", Running: true, Functions: addresses(domain), Files: []string{"/run/libvirt/qemu/guest.xml"}})
		}
	}
}

// requests are pci_requests of an instance, as JSON.
func requests(specs ...string) InstanceOption {
	var list []string
	for i, spec := range specs {
		list = append(list, `{"count": 1, "spec": [`+spec+`], "alias_name": "a", "is_new": false, "numa_policy": "legacy", "request_id": "`+UUID(100+i)+`", "requester_id": null}`)
	}
	return Extra(Row{"pci_requests": "[" + strings.Join(list, ", ") + "]"})
}

// TestClaim: a free device goes to a guest that holds it only where the guest's instance
// asks for just such a device.
func TestClaim(t *testing.T) {
	u := UUID(1)
	const audio = "0000:84:00.1"
	gpu := `{"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI"}`
	holds := func(addresses ...string) func(t *testing.T) func(*guest.Report) {
		return func(t *testing.T) func(*guest.Report) { return groupOf(t, u, addresses, addresses, nil) }
	}
	for name, test := range map[string]struct {
		asks   []string // by its requests
		cards  map[string]Row
		holds  func(t *testing.T) func(*guest.Report)
		found  []string
		reason string   // of the first
		cards2 []string // the rows after --apply
	}{
		"what it asks for": {
			asks: []string{gpu}, cards: map[string]Row{first: {}}, holds: holds(first),
			found: []string{"gpu1 " + first + " L stale offline"}, cards2: []string{first + " allocated " + u},
		},
		"in capitals": {
			asks: []string{`{"vendor_id": "10DE", "product_id": "11B4"}`}, cards: map[string]Row{first: {}}, holds: holds(first),
			found: []string{"gpu1 " + first + " L stale offline"}, cards2: []string{first + " allocated " + u},
		},
		"one of several specs": {
			asks: []string{`{"vendor_id": "10de", "product_id": "1db6"}, ` + gpu}, cards: map[string]Row{first: {}}, holds: holds(first),
			found: []string{"gpu1 " + first + " L stale offline"}, cards2: []string{first + " allocated " + u},
		},
		"another product": {
			asks: []string{`{"vendor_id": "10de", "product_id": "1db6", "dev_type": "type-PCI"}`}, cards: map[string]Row{first: {}}, holds: holds(first),
			found: []string{"gpu1 " + first + " L suspicious"}, reason: "has no open request for a device 10de:11b4", cards2: []string{first + " available NULL"},
		},
		"another vendor": {
			asks: []string{`{"vendor_id": "1002", "product_id": "11b4"}`}, cards: map[string]Row{first: {}}, holds: holds(first),
			found: []string{"gpu1 " + first + " L suspicious"}, reason: "has no open request for a device 10de:11b4", cards2: []string{first + " available NULL"},
		},
		"another type": {
			asks: []string{`{"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-VF"}`}, cards: map[string]Row{first: {}}, holds: holds(first),
			found: []string{"gpu1 " + first + " L suspicious"}, reason: "has no open request for a device 10de:11b4", cards2: []string{first + " available NULL"},
		},
		"a physical function that is not asked for as one": {
			asks: []string{`{"vendor_id": "8086", "product_id": "56c0"}`}, cards: map[string]Row{first: PF()}, holds: holds(first),
			found: []string{"gpu1 " + first + " L suspicious"}, reason: "has no open request for a device 8086:56c0 of type type-PF", cards2: []string{first + " available NULL"},
		},
		"its own resource class": {
			asks: []string{`{"resource_class": "CUSTOM_PCI_10DE_11B4"}`}, cards: map[string]Row{first: {}}, holds: holds(first),
			found: []string{"gpu1 " + first + " L stale offline"}, cards2: []string{first + " allocated " + u},
		},
		"another resource class": {
			asks: []string{`{"resource_class": "big"}`}, cards: map[string]Row{first: {}}, holds: holds(first),
			found: []string{"gpu1 " + first + " L suspicious"}, reason: "requests resource_class big, which the database does not record per device", cards2: []string{first + " available NULL"},
		},
		"traits": {
			asks: []string{`{"vendor_id": "10de", "product_id": "11b4", "traits": "CUSTOM_FAST"}`}, cards: map[string]Row{first: {}}, holds: holds(first),
			found: []string{"gpu1 " + first + " L suspicious"}, reason: "requests traits CUSTOM_FAST", cards2: []string{first + " available NULL"},
		},
		"a key that is unknown": {
			asks: []string{`{"vendor_id": "10de", "product_id": "11b4", "physical_network": null}`}, cards: map[string]Row{first: {}}, holds: holds(first),
			found: []string{"gpu1 " + first + " L suspicious"}, reason: "requests physical_network", cards2: []string{first + " available NULL"},
		},
		"of two requests the one that it matches": {
			asks:  []string{`{"vendor_id": "10de", "product_id": "1db6"}`, gpu},
			cards: map[string]Row{first: {}}, holds: holds(first),
			found: []string{"gpu1 " + first + " L stale offline"}, cards2: []string{first + " allocated " + u},
		},
		"two rows for one request": {
			asks: []string{gpu}, cards: map[string]Row{first: {}, second: {}}, holds: holds(first, second),
			found:  []string{"gpu1 " + first + " L suspicious", "gpu1 " + second + " L suspicious"},
			reason: first + ", " + second, cards2: []string{first + " available NULL", second + " available NULL"},
		},
		"two rows for two": {
			asks: []string{gpu, `{"vendor_id": "10de", "product_id": "1db6"}`}, cards: map[string]Row{first: {}, second: {"product_id": "1db6"}}, holds: holds(first, second),
			found: []string{"gpu1 " + first + " L stale offline", "gpu1 " + second + " L stale offline"}, cards2: []string{first + " allocated " + u, second + " allocated " + u},
		},
		"a member of its group": {
			asks: []string{gpu}, cards: map[string]Row{first: {}, audio: {}},
			holds: func(t *testing.T) func(*guest.Report) {
				return groupOf(t, u, []string{first, audio}, []string{first}, nil)
			},
			found:  []string{"gpu1 " + first + " L stale offline", "gpu1 " + audio + " L suspicious"},
			cards2: []string{first + " allocated " + u, audio + " available NULL"},
		},
		"a member of its group that is like what it asks for": {
			asks: []string{gpu}, cards: map[string]Row{audio: {}},
			holds: func(t *testing.T) func(*guest.Report) {
				return groupOf(t, u, []string{first, audio}, []string{first}, nil)
			},
			found:  []string{"gpu1 " + audio + " L suspicious"},
			reason: "neither its arguments nor its domain name the device", cards2: []string{audio + " available NULL"},
		},
		"a member of its group that its domain names": {
			asks: []string{gpu}, cards: map[string]Row{first: {}},
			holds: func(t *testing.T) func(*guest.Report) {
				return groupOf(t, u, []string{first, audio}, nil, []string{first})
			},
			found: []string{"gpu1 " + first + " L stale offline"}, cards2: []string{first + " allocated " + u},
		},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			gpu1 := cell.Compute(t, "gpu1", LastSeen(time.Hour))
			cell.Instance(t, u, "gpu1", "active", "", requests(test.asks...))
			for _, address := range []string{first, audio, second} {
				if row, ok := test.cards[address]; ok {
					cell.Card(t, gpu1, address, "available", "", row)
				}
			}
			root := machine(t)
			args := []string{"--claim", "--guests", evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, test.holds(t)))}
			found, _ := findings(t, root, args...)
			hosttest.EqualIn(t, "found", test.found, found)
			stdout, _, _ := repairMigration(t, root, append(args, "-o", "json")...)
			var r repairOutput
			if err := json.Unmarshal([]byte(stdout), &r); err != nil || len(r.Findings) == 0 || !strings.Contains(r.Findings[0].Reason, test.reason) {
				t.Errorf("no %q in %+v, %v", test.reason, r.Findings, err)
			}
			_, stderr, _ := repairMigration(t, root, append(args, "--apply", "--yes", "--wait", "1s")...)
			var cards []string
			for _, row := range cell.Dump(t, "pci_devices", "address", "status", "instance_uuid") {
				cards = append(cards, strings.Join(row, " "))
			}
			slices.Sort(cards)
			if diff := cmp.Diff(test.cards2, cards); diff != "" {
				t.Errorf("cards (-want +got):\n%s%s", diff, stderr)
			}
			if tracked := database.Track(t, cell, gpu1, cell.Reported(t, gpu1)); tracked.Error != "" || len(tracked.Changes) > 0 {
				t.Errorf("Nova then: %+v", tracked)
			}
		})
	}
}

// TestGroupIsOpen: what nobody needs by the rows is not freed while a guest has its
// IOMMU group open.
func TestGroupIsOpen(t *testing.T) {
	reset(t)
	const audio = "0000:84:00.1"
	cell := database.Cell1
	gpu1 := cell.Compute(t, "gpu1", LastSeen(time.Hour))
	cell.Instance(t, UUID(1), "gpu1", "active", "")
	cell.Card(t, gpu1, first, "allocated", UUID(1))
	cell.Card(t, gpu1, audio, "allocated", UUID(2)) // whose instance is gone
	args := []string{"--guests", evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, groupOf(t, UUID(1), []string{first, audio}, []string{first}, nil)))}
	root := machine(t)
	found, _ := findings(t, root, append(args, "--apply", "--yes", "--wait", "1s")...)
	hosttest.Equal(t, []string{"gpu1 " + audio + " L suspicious"}, found)
	if got := cell.Dump(t, "pci_devices", "status"); !cmp.Equal(got, [][]string{{"allocated"}, {"allocated"}}) {
		t.Errorf("%q", got)
	}
}

// TestUndoClaim: the undo of a claim frees a device, so that it needs the proof of a repair.
func TestUndoClaim(t *testing.T) {
	reset(t)
	u, cell := UUID(1), database.Cell1
	gpu1 := cell.Compute(t, "gpu1", LastSeen(time.Hour))
	cell.Instance(t, u, "gpu1", "active", "", requests(`{"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI"}`))
	cell.Card(t, gpu1, first, "available", "")
	cell.Compute(t, "gpu2")
	used := evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, evidence.Holds(t, first, u)))
	root := machine(t)
	if _, stderr, status := repairMigration(t, root, "--claim", "--guests", used, "--apply", "--yes", "--wait", "1s"); status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	before := cell.Dump(t, "pci_devices")
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no proof":        {nil, "no guest report of gpu1 was given"},
		"the way out":     {nil, " 1 --guests gpu1.json"},
		"a guest uses it": {[]string{"--guests", used}, "guest " + u + " uses " + first},
		"of another host": {[]string{"--guests", evidence.Write(t, evidence.Report("gpu2"))}, "no guest report of gpu1 was given"},
		"of no host":      {[]string{"--guests", evidence.Write(t, evidence.Report("gpu-1"))}, "host gpu-1: no cell has it\ngpustack: hint: did you mean gpu1?"},
	} {
		out, err := exec.Command(gpustack, append([]string{"undo", "--root", root, "--yes"}, test.args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), test.want) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		hosttest.EqualIn(t, name, before, cell.Dump(t, "pci_devices"))
	}
	if out, err := exec.Command(gpustack, "undo", "--root", root, "--yes", "--host-is-off", "gpu1").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if got := cell.Dump(t, "pci_devices", "status", "instance_uuid"); !cmp.Equal(got, [][]string{{"available", "NULL"}}) {
		t.Errorf("%q", got)
	}
}

// TestUndoClaimOfVF: the undo of a claim of a VF makes its PF available again, so that no other VF of
// the PF may be taken or in use.
func TestUndoClaimOfVF(t *testing.T) {
	const pf, vf1, vf2 = "0000:40:00.0", "0000:40:00.1", "0000:40:00.2"
	vfs, vf := evidence.VFs(t, pf, vf1, vf2), `{"vendor_id": "8086", "product_id": "56c0", "dev_type": "type-VF"}`
	first, second := evidence.Holds(t, vf1, UUID(1)), evidence.Holds(t, vf2, UUID(2))
	off := []string{"--host-is-off", "gpu1"}
	for name, test := range map[string]struct {
		claims string // the second guest's device, by a later entry
		proof  []string
		want   string
	}{
		"another VF is taken":  {claims: vf2, proof: off, want: vf2 + " of the same card is allocated"},
		"another VF is in use": {proof: []string{"--guests", evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, vfs, second))}, want: "guest " + UUID(2)},
		"no VF is in use":      {proof: off},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			gpu1 := cell.Compute(t, "gpu1", LastSeen(time.Hour))
			for _, u := range []string{UUID(1), UUID(2)} {
				cell.Instance(t, u, "gpu1", "active", "", requests(vf))
			}
			cell.Card(t, gpu1, pf, "available", "", PF())
			cell.Card(t, gpu1, vf1, "available", "", VF(pf))
			cell.Card(t, gpu1, vf2, "available", "", VF(pf))
			root := machine(t)
			for _, device := range []string{vf1, test.claims} {
				report := evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, vfs, first, second))
				if device == "" {
					continue
				}
				if _, stderr, _ := repairMigration(t, root, "--claim", "--device", device, "--guests", report, "--apply", "--yes",
					"--wait", "1s"); !strings.Contains(stderr, "1 repair made") {
					t.Fatal(stderr)
				}
			}
			before := cell.Dump(t, "pci_devices")
			out, err := exec.Command(gpustack, append([]string{"undo", "1", "--root", root, "--yes"}, test.proof...)...).CombinedOutput()
			if (err == nil) != (test.want == "") || !strings.Contains(string(out), test.want) {
				t.Errorf("%v: %s", err, out)
			}
			if changed := !cmp.Equal(before, cell.Dump(t, "pci_devices")); changed != (test.want == "") {
				t.Errorf("changed: %t: %s", changed, cell.Dump(t, "pci_devices", "address", "status"))
			}
		})
	}
}
