package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"gpustack/nova/cloud/cloudtest"
)

const failedServer = "1f975a18-2c6e-4a6e-9d0d-3d7f4b7a8c11"

// addHosts adds compute nodes, of which only gpu1 and gpu2 can build a guest with two K4200, the
// flavor, and servers. What is "forbidden" is forbidden to the user. At "night" no host can build
// one: two have no free K4200, and one is disabled until it is "enabled" (docs/explain.md).
func addHosts(c *cloudtest.Cloud, what string) {
	c.Add("5", "gpu.k4200.2", 4, 8192, 20, true, map[string]string{"pci_passthrough:alias": "K4200:2"})
	c.Add("6", "gpu.large", 64, 8192, 20, true, map[string]string{"pci_passthrough:alias": "K4200:2"})
	c.Add("7", "cpu.avx", 1, 1024, 1, true, map[string]string{"trait:HW_CPU_X86_AVX2": "required"})
	c.Add("8", "numa", 4, 8192, 20, true, map[string]string{"hw:cpu_policy": "dedicated"})
	node := func(name string, change func(*cloudtest.Node)) *cloudtest.Node {
		n := &cloudtest.Node{Name: name, Zone: "az1", VCPU: 32, Memory: 65536, Disk: 1000, Class: "CUSTOM_PCI_10DE_11B4", Devices: 2, Free: 2}
		change(n)
		return n
	}
	embedded := map[string]any{"original_name": "gpu.k4200.2", "vcpus": 4, "ram": 8192, "disk": 20, "ephemeral": 0, "swap": 0,
		"extra_specs": map[string]string{"pci_passthrough:alias": "K4200:2"}}
	h := &cloudtest.Hosts{
		Forbidden: what == "forbidden",
		Nodes: []*cloudtest.Node{
			node("gpu1", func(*cloudtest.Node) {}),
			node("gpu2", func(n *cloudtest.Node) { n.Zone, n.Traits = "az2", []string{"HW_CPU_X86_AVX2"} }),
			node("gpu3", func(n *cloudtest.Node) { n.Used = 30 }),
			node("gpu4", func(n *cloudtest.Node) { n.Down = true }),
			node("gpu5", func(n *cloudtest.Node) { n.Disabled = "new disk" }),
			node("gpu6", func(n *cloudtest.Node) { n.Free = 0 }),
			node("gpu7", func(n *cloudtest.Node) { n.Free = 1 }),
			node("gpu8", func(n *cloudtest.Node) { n.Free = 0 }),
			node("gpu9", func(n *cloudtest.Node) { n.Free = 0 }),
			node("gpu10", func(n *cloudtest.Node) { n.Free = 0 }),
		},
		Aggregates: []map[string]any{{"id": 1, "name": "second", "hosts": []string{"gpu2"}, "metadata": map[string]string{"availability_zone": "az2"},
			"created_at": "2026-11-22T00:00:00.000000"}},
		Failed: map[string]map[string]any{
			failedServer: {"id": failedServer, "name": "train", "status": "ERROR", "tenant_id": "p", "OS-EXT-AZ:availability_zone": "az3", "image": "",
				"fault": map[string]any{"message": "No valid host was found. "}, "flavor": embedded},
			"0b": {"id": "0b", "name": "shelved", "status": "SHELVED_OFFLOADED", "tenant_id": "p", "OS-EXT-AZ:availability_zone": "az3", "image": "", "flavor": embedded},
			"0a": {"id": "0a", "name": "works", "status": "ACTIVE", "tenant_id": "p", "OS-EXT-SRV-ATTR:host": "gpu1", "image": "", "flavor": embedded},
		},
	}
	if what == "night" || what == "enabled" {
		h.Failed[failedServer]["OS-EXT-AZ:availability_zone"] = "az1"
		h.Nodes = []*cloudtest.Node{
			node("gpu1", func(n *cloudtest.Node) { n.Free = 0 }),
			node("gpu2", func(n *cloudtest.Node) { n.Free = 0 }),
			node("gpu3", func(n *cloudtest.Node) { n.Disabled = map[string]string{"night": "new disk"}[what] }),
		}
	}
	if what == "devices" {
		h.Nodes = []*cloudtest.Node{
			node("gpu1", func(n *cloudtest.Node) { n.Free = 1 }),
			node("gpu2", func(n *cloudtest.Node) { n.Zone, n.Disabled = "az2", "new disk" }),
			node("gpu3", func(n *cloudtest.Node) { n.Free, n.Once = 1, true }),
			node("gpu4", func(n *cloudtest.Node) { n.Silent = true }),
		}
		c.AddServer(cloudtest.Instance{ID: "guest-1-of-gpu1", Name: "train", Host: "gpu1", Project: "p1"})
	}
	if what == "drain" {
		h.Nodes = []*cloudtest.Node{
			node("gpu1", func(*cloudtest.Node) {}),
			node("gpu2", func(n *cloudtest.Node) { n.Disabled = "new disk" }),
			node("gpu3", func(n *cloudtest.Node) { n.Disabled = "gpustack 2026-11-27T09:00:00Z 5e0c3a71: reboot" }),
			node("gpu4", func(n *cloudtest.Node) {
				n.Disabled = "gpustack 2026-11-26T09:00:00Z 5e0c3a70: new kernel"
				n.Down = true
			}),
			node("gpu5", func(n *cloudtest.Node) { n.Silent = true }),
		}
		addGuests(c)
	}
	c.AddHosts(h)
}

// addGuests adds servers to the hosts of the cloud "drain".
func addGuests(c *cloudtest.Cloud) {
	guest := func(id, name, host, status string, power int, alias string) {
		specs := map[string]any{}
		if alias != "" {
			specs["pci_passthrough:alias"] = alias
		}
		c.AddServer(cloudtest.Instance{ID: id, Name: name, Host: host, Project: "p1",
			More: map[string]any{"status": status, "user_id": "u1", "OS-EXT-STS:task_state": nil,
				"OS-EXT-STS:power_state": power, "OS-EXT-STS:vm_state": strings.ToLower(status),
				"flavor": map[string]any{"original_name": "f", "extra_specs": specs}}})
	}
	guest("0a1b0000-0000-4000-8000-000000000001", "train", "gpu1", "ACTIVE", 1, "K4200:2")
	guest("0a1b0000-0000-4000-8000-000000000002", "idle", "gpu1", "SHUTOFF", 4, "K4200:1")
	guest("0a1b0000-0000-4000-8000-000000000003", "web", "gpu1", "ACTIVE", 1, "")
	guest("0a1b0000-0000-4000-8000-000000000004", "web", "gpu3", "ACTIVE", 1, "")
}

// TestDevicesManyHosts: no request to Nova depends on the number of hosts, and Placement is asked twice
// for each device.
func TestDevicesManyHosts(t *testing.T) {
	c := cloudtest.Start(t, 95)
	const many = 2000
	c.AddHosts(cloudtest.ManyHosts(c, many))
	for name, value := range c.Env() {
		t.Setenv(name, value)
	}
	begin := time.Now()
	command := exec.CommandContext(t.Context(), "gpustack", "nova", "devices")
	out, err := command.Output()
	lines, _ := c.Requests()
	used := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	t.Logf("%d hosts: %d requests, %s, %s of CPU, %d bytes printed", many, len(lines), time.Since(begin).Round(time.Millisecond), used, len(out))
	if err != nil || len(lines) > 2*2*many+50 {
		t.Errorf("%v, %d requests", err, len(lines))
	}
	const want = "K4200 in az1: 4000 devices, 2000 free, 2000 instance\n"
	if !strings.HasSuffix(string(out), want) {
		t.Errorf("%s", out[max(0, len(out)-1000):])
	}
}

// TestExplainManyHosts: the number of requests does not depend on the number of hosts, as lists
// have pages.
func TestExplainManyHosts(t *testing.T) {
	c := cloudtest.Start(t, 95)
	c.Add("5", "gpu.k4200.2", 4, 8192, 20, true, map[string]string{"pci_passthrough:alias": "K4200:2"})
	const many = 2000
	h := &cloudtest.Hosts{Page: 1000}
	for i := range many {
		n := &cloudtest.Node{Name: fmt.Sprintf("gpu%04d", i), Zone: "nova", VCPU: 32, Memory: 65536, Disk: 1000, Class: "CUSTOM_PCI_10DE_11B4", Devices: 8}
		switch i % 100 {
		case 7:
			n.Down, n.Free = true, 8
		case 8:
			n.Used = 32
		case 9:
			n.Memory = 4096
		}
		h.Nodes = append(h.Nodes, n)
	}
	c.AddHosts(h)
	dir := t.TempDir()
	write(t, dir+"/ctl.conf", "[pci]\nalias = {\"name\": \"K4200\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n"+
		"[filter_scheduler]\nenabled_filters = PciPassthroughFilter\npci_in_placement = true\n")
	for name, value := range c.Env() {
		t.Setenv(name, value)
	}
	begin := time.Now()
	command := exec.CommandContext(t.Context(), "gpustack", "nova", "explain", "--flavor", "gpu.k4200.2", "--release", "2023.1", "--conf", "controller="+dir+"/ctl.conf")
	out, err := command.Output()
	stdout := string(out)
	lines, _ := c.Requests()
	used := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	t.Logf("%d hosts: %d requests, %s, %s of CPU, %d bytes printed", many, len(lines), time.Since(begin).Round(time.Millisecond), used, len(stdout))
	if command.ProcessState.ExitCode() != 2 || len(lines) > 50 {
		t.Errorf("%v, %d requests:\n%s", err, len(lines), strings.Join(lines, "\n"))
	}
	const want = "0 of 2000 hosts can build gpu.k4200.2: 1940 have no free K4200, 20 are down, 20 have too few VCPUs, 20 have too little memory\n"
	if got := stdout[:min(len(want), len(stdout))]; got != want {
		t.Errorf("%s", stdout)
	}
}
