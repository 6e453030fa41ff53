// Package fleettest makes documents of imaginary compute nodes, as host scan, host check and host
// guests print them.
package fleettest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gpustack/host/document"
	"gpustack/host/guest"
	"gpustack/host/pci"
)

// Made is when the documents of a new node are made.
var Made = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Node is a compute node.
type Node struct {
	Name     string
	NovaHost string // "" as Name
	ID       string // of the machine; "" for 3d12f0d5c3a94e7b8a6d2b1c0e9f8a7b
	Time     time.Time
	Server   string // product of the server; "" for a scan without --machine
	Firmware string
	Kernel   string
	Checked  string // the kernel that host check ran on; "" as Kernel
	Verdict  string
	Reboot   bool
	Links    []string // findings about PCIe links
	GPUs     []GPU
	Guests   []Guest
	Partial  bool // not all of the sources of host guests were read
	Missing  bool // not all functions could be identified
}

// GPU is a GPU with its audio function.
type GPU struct {
	Address string // without domain and function: "17:00"
	Product string // four digits; "" if it could not be read
	NUMA    int
	Driver  string
	State   string
	Role    string
	Type    string // "" for type-PCI
	Console bool
	Group   []string // further members of its group
}

// Guest is a guest, running or not.
type Guest struct {
	UUID    string
	Running bool
	GPUs    []string // addresses as of GPU
}

// New returns a node with GPUs that are ready for guests.
func New(name string, gpus int) Node {
	n := Node{Name: name, Time: Made, Server: "PowerEdge XE8545", Firmware: "2.14.2", Kernel: "6.8.0-45-generic", Verdict: "ready"}
	for i := range gpus {
		n.GPUs = append(n.GPUs, GPU{Address: fmt.Sprintf("%02x:00", 0x17+16*i), Product: "20b2", NUMA: 2 * i / max(gpus, 1), Driver: "vfio-pci",
			State: "guest-ready", Role: "guest"})
	}
	return n
}

// ofProduct are texts of products.
func ofProduct(id string) string {
	return map[string]string{"20b2": "GA100 [A100 SXM4 80GB]", "2330": "GH100 [H100 SXM5 80GB]", "1eb8": "TU104GL [Tesla T4]"}[id]
}

// Scan returns the output of host scan.
func (n Node) Scan(t testing.TB) []byte {
	t.Helper()
	devices := []any{}
	for _, g := range n.GPUs {
		group := []string{"0000:" + g.Address + ".0", "0000:" + g.Address + ".1"}
		for _, member := range g.Group {
			group = append(group, "0000:"+member)
		}
		for function, class := range []string{"0302", "0403"} {
			kind := g.Type
			if kind == "" || function == 1 {
				kind = "type-PCI"
			}
			product := []string{g.Product, "1aef"}[function]
			d := map[string]any{
				"address": group[function], "class": class, "class_name": "3D controller", "vendor_id": "10de", "product_id": orNil(product),
				"vendor": "NVIDIA Corporation", "product": ofProduct(product), "subsystem_vendor_id": "10de", "subsystem_id": "1463", "revision": "a1",
				"driver": orNil(g.Driver), "driver_override": orNil(g.Driver),
				"modalias":    "pci:v000010DEd0000" + strings.ToUpper(product) + "sv000010DEsd00001463bc03sc02i00",
				"iommu_group": 10 + int(group[0][5]), "group_members": group, "numa_node": g.NUMA, "parent": "0000:00:01.0", "controller": nil,
				"boot_vga": g.Console && function == 0, "reset_methods": []string{"flr", "bus"},
				"sriov":       map[string]any{"role": "none", "total_vfs": nil, "num_vfs": nil, "pf": nil},
				"device_type": kind, "alias_hint": nil, "candidate": function == 0, "bars": nil, "warnings": []string{},
				"state": g.State, "guest": nil, "detail": "", "role": orNil(g.Role),
			}
			devices = append(devices, d)
		}
	}
	fields := n.top(document.HostScan, map[string]any{
		"nova_host": n.novaHost(), "system": n.system(), "scope": "gpus", "complete": !n.Missing, "devices": devices, "groups": []any{},
		"gpus": map[string]any{"listed": len(n.GPUs)}, "next": "", "warnings": []string{},
	})
	if n.Server != "" {
		fields["machine"] = map[string]any{"id": n.id(), "vendor": "Dell Inc.", "product": n.Server,
			"bios": map[string]any{"vendor": "Dell Inc.", "version": n.Firmware, "date": "01/02/2026"}}
	}
	return text(t, fields)
}

// Check returns the output of host check.
func (n Node) Check(t testing.TB) []byte {
	t.Helper()
	findings := []any{}
	add := func(check, status, seen, effect, remedy string) {
		findings = append(findings, map[string]any{"check": check, "status": status, "file": "/sys/kernel/iommu_groups", "line": 0, "seen": seen,
			"effect": effect, "remedy": remedy})
	}
	for _, check := range []string{"virtualization", "firmware", "secure_boot", "iommu", "iommu_type", "interrupt_remapping", "arguments", "next_boot",
		"kernels", "initramfs",
		"ids", "boot_vga", "bus", "functions", "drivers", "groups", "reset", "bars", "fabric", "nova", "files", "journal", "startup", "prepared", "reboot"} {
		add(check, "pass", "the IOMMU is on, and all recorded functions are bound to their drivers", "", "")
	}
	for _, link := range n.Links {
		add("pcie", "warn", link, "copies between host and GPU are slower by that factor", "seat the card and its riser again")
	}
	if n.Verdict == "not ready" || n.Verdict == "drifted" {
		add("functions", "fail", "a recorded function is missing", "guests cannot have it", "seat the card again")
	}
	n.Kernel = cmp.Or(n.Checked, n.Kernel)
	return text(t, n.top(document.HostCheck, map[string]any{
		"system": n.system(), "verdict": n.Verdict, "passed": n.Verdict == "ready", "reboot_required": n.Reboot, "findings": findings, "warnings": []string{},
	}))
}

// GuestReport returns the output of host guests.
func (n Node) GuestReport(t testing.TB) []byte {
	t.Helper()
	name, file, machine := n.Name, "hostname", n.id()
	nova := n.novaHost()
	r := guest.Report{
		Schema: 1, NovaHost: &nova, NovaHostFrom: &file, Hostname: &name, MachineID: &machine, BootID: &machine, Collected: n.Time, Booted: &n.Time,
		Complete:    !n.Partial,
		NovaCompute: []guest.NovaCompute{}, Holders: []guest.Holder{}, Guests: []guest.Guest{}, Domains: []guest.Domain{},
		VirtualFunctions: []guest.PhysicalFunction{},
	}
	for i, source := range []string{"processes", "vfio", "groups", "domains", "nova.conf", "hostname", "machine_id", "boot_id", "boot_time", "sriov", "vdpa"} {
		state := guest.Read
		if n.Partial && i == 0 {
			state = guest.Unreadable
		}
		r.Sources = append(r.Sources, guest.Source{Name: source, State: state, Detail: "/proc"})
	}
	for i, g := range n.Guests {
		functions := []pci.Address{}
		for _, a := range g.GPUs {
			for function := range 2 {
				address, err := pci.ParseAddress(fmt.Sprintf("%s.%d", a, function))
				if err != nil {
					t.Fatal(err)
				}
				functions = append(functions, address)
			}
		}
		name := fmt.Sprintf("instance-%08x", i)
		r.Domains = append(r.Domains, guest.Domain{UUID: g.UUID, Name: name, Running: g.Running, Functions: functions,
			Files: []string{"/etc/libvirt/qemu/" + name + ".xml"}})
		if g.Running {
			r.Guests = append(r.Guests, guest.Guest{PID: 1000 + i, Command: "qemu-kvm", UUID: &g.UUID, Name: &name, Started: &n.Time, Asked: functions})
		}
	}
	return text(t, struct {
		Kind document.Kind `json:"kind"`
		guest.Report
	}{document.HostGuests, r})
}

// top adds to a document what the documents of all kinds have.
func (n Node) top(kind document.Kind, fields map[string]any) map[string]any {
	fields["schema"], fields["kind"], fields["host"] = 1, kind, n.Name
	if !n.Time.IsZero() {
		fields["version"], fields["time"] = "v1.0.0", n.Time
	}
	return fields
}

func (n Node) id() string {
	if n.ID != "" {
		return n.ID
	}
	return "3d12f0d5c3a94e7b8a6d2b1c0e9f8a7b"
}

func (n Node) novaHost() string {
	if n.NovaHost != "" {
		return n.NovaHost
	}
	return n.Name
}

func (n Node) system() map[string]any {
	return map[string]any{"kernel": n.Kernel, "distribution": "ubuntu 24.04", "cpu_vendor": "amd",
		"iommu": map[string]any{"enabled": true, "group_count": 73}, "boot_loader": "grub"}
}

// Lines returns the documents of nodes as JSON lines.
func Lines(t testing.TB, nodes ...Node) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, n := range nodes {
		for _, printed := range [][]byte{n.Scan(t), n.Check(t), n.GuestReport(t)} {
			b.Write(append(printed, '\n'))
		}
	}
	return b.Bytes()
}

// Large returns a fleet of 2,000 nodes with 4,292 GPUs in five layouts, of which 20 nodes have lost
// a card and every seventh has a guest, and the output of openstack compute service list for it.
func Large(t testing.TB) (nodes []Node, services []byte) {
	t.Helper()
	gpus := 0
	var rows []any
	for i := range 2000 {
		size := []int{1, 1, 2, 4}[i%4]
		if i%4 == 1 && i < 4*156 {
			size = 3
		}
		n := New(fmt.Sprintf("gpu%04d.example.net", i), size)
		if i%4 == 0 {
			n.GPUs[0].Product = "2330"
		}
		if i%100 == 3 { // of four GPUs
			n.GPUs = n.GPUs[1:]
			n.Verdict = "drifted"
		}
		if i%7 == 3 {
			n.Guests = []Guest{{UUID: fmt.Sprintf("6f3e8a52-0d0c-4c3e-9d3b-%012x", i), Running: true, GPUs: []string{n.GPUs[0].Address}}}
		}
		gpus += len(n.GPUs)
		nodes = append(nodes, n)
		rows = append(rows, map[string]any{"Binary": "nova-compute", "Host": n.Name, "Zone": fmt.Sprintf("az%d", i%3), "Status": "enabled", "State": "up",
			"Updated At": Made.Format("2006-01-02T15:04:05.000000")})
	}
	if gpus != 4292 {
		t.Fatalf("%d GPUs", gpus)
	}
	return nodes, text(t, rows)
}

func text(t testing.TB, value any) []byte {
	t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}
