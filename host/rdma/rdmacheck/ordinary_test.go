package rdmacheck_test

import (
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/host/rdma/rdmacheck"
)

// Parts of trees of TestOrdinary.
const (
	// loaded are the modules and libraries that programs need.
	loaded = "-- proc/modules --\nib_uverbs 1 0 - Live 0x0\nrdma_ucm 1 0 - Live 0x0\nib_umad 1 0 - Live 0x0\nmlx5_ib 1 0 - Live 0x0\n" +
		"-- proc/cmdline --\nquiet\n-- sys/module/ib_core/parameters/netns_mode --\nN\n"
	// forContainers records the whole adapter 0000:0c:00.0 for containers.
	forContainers = `-- var/lib/gpustack/rdma.json --
{"schema":1,"kind":"rdma record","adapters": [{"address": "0000:0c:00.0", "vendor_id": "15b3", "product_id": "101b", "bridges": [], "driver": "mlx5_core",
  "link_layer": "InfiniBand", "for": "containers", "whole": true, "vfs": []}], "files": [], "allowed": []}
-- run/gpustack/boot.json --
{"schema": 1, "boot_id": "a", "version": "1", "started": "2026-11-01T12:00:00Z", "ended": "2026-11-01T12:00:09Z", "steps": []}
`
	kernel       = "-- proc/sys/kernel/osrelease --\n6.1.0-28-amd64\n"
	verbsLibrary = "-- usr/lib64/libibverbs.so.1 --\nIBVERBS_PRIVATE_34\n"
)

// smi is a sub-device of an adapter, as ConnectX-8 has: it has no uverbs (Linux, uverbs_main.c,
// RDMA_DEVICE_TYPE_SMI).
const smi = "symlink sys/class/infiniband/smi1 -> ../../../sys/devices/pci0000:0c/0000:0c:00.0/infiniband/smi1\n"

// smiPort is a port of it without a partner.
const smiPort = "-- sys/devices/pci0000:0c/0000:0c:00.0/infiniband/smi1/node_type --\n1: CA\n" +
	"-- sys/devices/pci0000:0c/0000:0c:00.0/infiniband/smi1/ports/1/state --\n1: DOWN\n" +
	"-- sys/devices/pci0000:0c/0000:0c:00.0/infiniband/smi1/ports/1/phys_state --\n2: Polling\n" +
	"-- sys/devices/pci0000:0c/0000:0c:00.0/infiniband/smi1/ports/1/link_layer --\nInfiniBand\n"

// part is a part of a tree: lines and files.
type part struct{ links, files string }

func (p part) and(files string) part { return part{p.links, p.files + files} }

// gpu is a GPU that a driver is bound to, and the first line of NVIDIA's module.
func gpu(driver, module string) part {
	const at = "sys/devices/pci0000:0c/0000:0c:10.0"
	return part{"symlink sys/bus/pci/devices/0000:0c:10.0 -> ../../../../" + at + "\nsymlink " + at + "/driver -> ../../../../sys/bus/pci/drivers/" + driver + "\n",
		"-- " + at + "/class --\n0x030200\n-- " + at + "/vendor --\n0x10de\n-- " + at + "/device --\n0x2330\n" +
			"-- proc/driver/nvidia/version --\nNVRM version: NVIDIA UNIX " + module + "  580.65.06  Release Build\n"}
}

// netdev is a network interface of a function, with attributes and their values.
func netdev(of, name string, attributes ...string) part {
	p := part{links: "symlink sys/class/net/" + name + "/device -> ../../../devices/pci" + of[:7] + "/" + of + "\n"}
	for i := 0; i < len(attributes); i += 2 {
		p.files += "-- sys/class/net/" + name + "/" + attributes[i] + " --\n" + attributes[i+1] + "\n"
	}
	return p
}

// TestOrdinary: what ordinary states of current hardware are called, on trees as kernels show them.
func TestOrdinary(t *testing.T) {
	t.Parallel()
	active := hosttest.HCA{Address: "0000:0c:00.0", Device: "mlx5_0"}
	one := func(h hosttest.HCA) []hosttest.HCA { return []hosttest.HCA{h} }
	port := func(h hosttest.HCA, state, physical string) hosttest.HCA {
		h.State, h.Physical = state, physical
		return h
	}
	second := hosttest.HCA{Address: "0000:0d:00.0", Device: "mlx5_1", Index: 1}
	third := hosttest.HCA{Address: "0000:0d:00.0", Device: "mlx5_2", Index: 2}
	ethernet := second
	ethernet.LinkLayer = "Ethernet"
	ipoib := func(carrier string) part {
		return netdev("0000:0c:00.0", "ib0", "ifindex", "3", "type", "32", "flags", "0x1003", "carrier", carrier)
	}
	card := func(states ...string) (all []hosttest.HCA) {
		for i, state := range states {
			h := hosttest.HCA{Address: "0000:0c:00." + string(rune('0'+i)), Device: "mlx5_" + string(rune('0'+i)), Index: i, State: state}
			if state == "1: DOWN" {
				h.Physical = "2: Polling"
			}
			all = append(all, h)
		}
		return all
	}
	const spare = "nothing is connected"
	for _, test := range []struct {
		name     string
		adapters []hosttest.HCA
		more     part
		check    string
		status   host.Status // of the one finding of the check that has the text
		seen     string
		remedy   string // a part of it
		fails    string // the checks that fail, "" for none
	}{
		{"a VF in a container", []hosttest.HCA{active, {Address: "0000:0c:00.1", Device: "mlx5_2", Index: 1, PF: "0000:0c:00.0", Elsewhere: true}}, part{},
			"adapters", host.Pass, "1 RDMA device; mlx5_2 of 0000:0c:00.1 is in another network namespace", "", ""},
		{"inside of a container", one(hosttest.HCA{Address: "0000:0c:00.0", Device: "mlx5_0", Elsewhere: true}), part{},
			"adapters", host.Fail, "mlx5_0 of 0000:0c:00.0 is in another network namespace", "rdma dev set", "adapters"},
		{"all adapters in containers", one(hosttest.HCA{Address: "0000:0c:00.0", Device: "mlx5_0", Elsewhere: true}), part{files: forContainers},
			"adapters", host.Pass, "no RDMA device here; mlx5_0 of 0000:0c:00.0 is in another network namespace", "", ""},
		{"no device", []hosttest.HCA{active, {Address: "0000:0d:00.0"}}, part{}, "adapters", host.Fail, "0000:0d:00.0 is bound to mlx5_core, but there is no RDMA device of it", "journalctl", "adapters"},
		{"a device of a part", one(active), part{smi, smiPort}, "adapters", host.Pass, "1 RDMA device; smi1 is a device of a part of 0000:0c:00.0", "", ""},

		{"a guest's VF without partition", []hosttest.HCA{port(active, "1: DOWN", "5: LinkUp"), ethernet}, part{},
			"ports", host.Fail, "0000:0c:00.0 (mlx5_0) port 1 is DOWN (LinkUp): the link is up, so no cable is missing", "virt_enabled 2", "gids ports"},
		{"a guest's VF with GUID zero", one(hosttest.HCA{Address: "0000:0c:00.0", Device: "mlx5_0", State: "1: DOWN", NodeGUID: "0000:0000:0000:0000"}), part{},
			"ports", host.Fail, "port 1 is DOWN (LinkUp): its port GUID is zero", "gpustack rdma prepare", "ports"},
		{"GID 0 of zeros", one(hosttest.HCA{Address: "0000:0c:00.0", Device: "mlx5_0", State: "1: DOWN", GIDs: []string{}}), part{},
			"ports", host.Fail, "port 1 is DOWN (LinkUp): its port GUID is zero", "", "ports"},
		{"a cable", one(port(active, "1: DOWN", "2: Polling")), part{}, "ports", host.Fail, "DOWN (Polling): no partner", "check cable", "ports"},
		{"RoCE without carrier", one(port(ethernet, "1: DOWN", "3: Disabled")), netdev("0000:0d:00.0", "eth0", "flags", "0x1003", "carrier", "0"),
			"ports", host.Fail, "port 1 is DOWN (Disabled): eth0 is up and has no carrier", "ethtool eth0", "ports"},
		{"RoCE, interface down", one(port(ethernet, "1: DOWN", "3: Disabled")), netdev("0000:0d:00.0", "eth0", "flags", "0x1002"),
			"ports", host.Fail, "port 1 is DOWN (Disabled): eth0 is down", "ip link set eth0 up", "ports"},
		{"IPoIB without carrier", one(active), ipoib("0"), "rdma_cm", host.Warn,
			"the port has an IPoIB interface without carrier, which has not joined its broadcast group: ib0", "partitions.conf", ""},
		{"IPoIB without carrier, for containers", one(active), ipoib("0").and(forContainers), "rdma_cm", host.Fail,
			"has an IPoIB interface without carrier", "partitions.conf", "rdma_cm"},
		{"IPoIB with carrier", one(active), ipoib("1"), "rdma_cm", host.Pass, "1 port with an interface for rdma_cm", "", ""},

		{"idle ports of one card", card("4: ACTIVE", "1: DOWN", "1: DOWN", "1: DOWN"), part{}, "ports", host.Warn,
			"0000:0c:00.1 (mlx5_1) port 1, 0000:0c:00.2 (mlx5_2) port 1 and 0000:0c:00.3 (mlx5_3) port 1 are DOWN (Polling): " + spare, "", ""},
		{"idle ports of two cards", append(card("4: ACTIVE", "1: DOWN"), port(third, "1: DOWN", "2: Polling")), part{}, "ports", host.Warn,
			"0000:0c:00.1 (mlx5_1) port 1 is DOWN (Polling): " + spare, "", ""},
		{"Omni-Path", one(hosttest.HCA{Address: "0000:0c:00.0", Device: "hfi1_0", Driver: "hfi1", State: "2: INIT", SMLID: "0x0"}), part{},
			"ports", host.Fail, "INIT (LinkUp) with SM LID 0", "systemctl start opafm", "ports"},
		{"ionic's library", one(hosttest.HCA{Address: "0000:0c:00.0", Device: "ionic_0", Driver: "ionic", ID: "1dd8", Product: "1002", LinkLayer: "Ethernet"}), part{files: verbsLibrary},
			"providers", host.Fail, `no file in /etc/libibverbs.d has the line "driver ionic"`, "ibverbs-providers", "gids providers"},
		{"GPUDirect by dma-buf", one(active), gpu("nvidia", "Open Kernel Module for x86_64").and(kernel), "gpudirect", host.Pass, "dma-buf", "", ""},
		{"GPUDirect by nvidia_peermem", one(active), gpu("nvidia",
			"x86_64 Kernel Module").and(loaded[:len("-- proc/modules --\n")] + "nvidia_peermem 1 0 - Live 0x0\n" + loaded[len("-- proc/modules --\n"):]),
			"gpudirect", host.Pass, "nvidia_peermem is loaded", "", ""},
		{"no GPUDirect", one(active), gpu("nvidia", "x86_64 Kernel Module").and(kernel), "gpudirect", host.Warn, "neither", "nvidia_peermem", ""},
		{"no GPUDirect by an old kernel", one(active), gpu("nvidia", "Open Kernel Module for x86_64").and(strings.Replace(kernel, "6.1", "5.4", 1)),
			"gpudirect", host.Warn, "neither", "nvidia_peermem", ""},
		{"a copy without the module's version", one(active), part{gpu("nvidia", "").links, strings.Split(gpu("nvidia", "").files, "-- proc")[0] + kernel}, "gpudirect", host.NA,
			"/proc/driver/nvidia/version is not shown", "", ""},
		{"GPUs of guests", one(active), gpu("vfio-pci", "Open Kernel Module for x86_64").and(kernel), "gpudirect", host.NA, "no GPU", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := hosttest.Lay(t, test.more.links+hosttest.Fabric(test.adapters, loaded+test.more.files))
			c, err := rdmacheck.Check(root, change.Machine(root).Observe())
			hosttest.NoError(t, err)
			var found []host.Finding
			fails := map[string]bool{}
			for _, f := range c.Findings {
				if f.Check == test.check {
					found = append(found, f)
				}
				fails[f.Check] = fails[f.Check] || f.Status == host.Fail
			}
			n := 0
			for _, f := range found {
				if strings.Contains(f.Seen, test.seen) && f.Status == test.status && strings.Contains(f.Remedy.String(), test.remedy) {
					n++
				}
			}
			if n != 1 {
				t.Errorf("want %s %q with %q, got %+v", test.status, test.seen, test.remedy, found)
			}
			for check, failed := range fails {
				hosttest.EqualIn(t, check+" fails", strings.Contains(" "+test.fails+" ", " "+check+" "), failed)
			}
		})
	}
}
