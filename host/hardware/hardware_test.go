package hardware_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hardware"
	"gpustack/host/hosttest"
	"gpustack/host/snapshot"
)

// server is a machine of two sockets with two dies each, whose cores have the same numbers, and two
// threads of each core: two NUMA nodes of eight CPUs, one of memory alone, a disk, a partition, a
// device of the device mapper, two network interfaces and a bridge.
func server() string {
	var links, files strings.Builder
	file := func(name, text string) { fmt.Fprintf(&files, "-- %s --\n%s\n", name, text) }
	for name, text := range map[string]string{
		"sys_vendor": "Supermicro", "product_name": "AS -4124GO-NART", "product_serial": "SERIAL", "product_uuid": "UUID",
		"bios_vendor": "AMI", "bios_version": "2.5", "bios_date": "09/14/2022",
		"board_vendor": "Supermicro", "board_name": "H12DGO-6", "board_version": "1.01", "board_serial": "SERIAL", "board_asset_tag": "SERIAL",
		"product_family": "x", "product_sku": "x", "product_version": "x",
	} {
		file("sys/class/dmi/id/"+name, text)
	}
	var info strings.Builder
	for n := range 16 {
		node := n / 8
		fmt.Fprintf(&info, "processor\t: %d\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7742\nflags\t\t: svm\naddress sizes\t: 43 bits physical, 48 bits virtual\n\n", n)
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d", n)
		file(dir+"/topology/physical_package_id", fmt.Sprint(node))
		file(dir+"/topology/core_id", fmt.Sprint(n/2%2)) // once more in the second die
		file(dir+"/topology/core_cpus_list", fmt.Sprintf("%d-%d", n/2*2, n/2*2+1))
		if n > 0 {
			file(dir+"/online", "1")
		}
		fmt.Fprintf(&links, "symlink sys/devices/system/node/node%d/cpu%d -> ../../cpu/cpu%d\n", node, n, n)
	}
	links.WriteString("mkdir sys/devices/system/cpu/cpufreq\n")
	file("proc/cpuinfo", info.String()+"\n")
	file("proc/meminfo", "MemTotal:       12000000 kB\nHugetlb:        0 kB\nHugepagesize:       2048 kB")
	file("sys/devices/system/memory/block_size_bytes", "100000000") // 4 GiB
	for n := range 3 {
		dir := fmt.Sprintf("sys/devices/system/node/node%d", n)
		file(dir+"/meminfo", fmt.Sprintf("Node %d MemTotal:       4000000 kB", n))
		file(fmt.Sprintf("sys/devices/system/memory/memory%d/state", n), "online")
		fmt.Fprintf(&links, "symlink %s/memory%d -> ../../memory/memory%d\n", dir, n, n)
		for size, total := range map[int]int{2048: 0, 1 << 20: n * 2} {
			file(fmt.Sprintf("%s/hugepages/hugepages-%dkB/nr_hugepages", dir, size), fmt.Sprint(total))
			file(fmt.Sprintf("%s/hugepages/hugepages-%dkB/free_hugepages", dir, size), fmt.Sprint(total/2))
		}
	}
	for _, size := range []int{2048, 1 << 20} {
		file(fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages", size), "6")
		file(fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB/free_hugepages", size), "3")
	}
	file("sys/devices/system/node/online", "0-2")
	const nvme = "sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0"
	fmt.Fprintf(&links, "symlink sys/block/nvme0n1 -> ../devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1\nsymlink %s/nvme0n1/device -> ../../nvme0\n", nvme)
	file(nvme+"/model", "SAMSUNG MZQL2")
	file(nvme+"/nvme0n1/size", "4000")
	file(nvme+"/nvme0n1/dev", "259:0")
	file(nvme+"/nvme0n1/removable", "0")
	file(nvme+"/nvme0n1/queue/rotational", "0")
	file(nvme+"/nvme0n1/queue/physical_block_size", "512")
	file(nvme+"/nvme0n1/nvme0n1p1/size", "1000")
	file("sys/devices/virtual/block/dm-0/size", "1000")
	links.WriteString("symlink sys/block/dm-0 -> ../devices/virtual/block/dm-0\n")
	file("proc/self/mounts", "/dev/nvme0n1p1 / ext4 rw 0 0")
	for i, name := range []string{"ens1f0", "ens1f1"} {
		function := fmt.Sprintf("sys/devices/pci0000:00/0000:41:00.%d", i)
		file(function+"/net/"+name+"/speed", []string{"100000", "-1"}[i])
		file(function+"/net/"+name+"/address", "aa:bb:cc:dd:ee:ff")
		file(function+"/net/"+name+"/addr_assign_type", "0")
		file(function+"/net/"+name+"/duplex", "full")
		fmt.Fprintf(&links, "symlink sys/class/net/%s -> ../../%s/net/%s\n", name, strings.TrimPrefix(function, "sys/"), name)
		fmt.Fprintf(&links, "symlink %s/net/%s/device -> ../../../0000:41:00.%d\n", function, name, i)
		fmt.Fprintf(&links, "symlink %s/driver -> ../../../bus/pci/drivers/mlx5_core\nsymlink %s/subsystem -> ../../../bus/pci\n", function, function)
	}
	links.WriteString("mkdir sys/bus/pci/drivers/mlx5_core\n")
	file("sys/devices/virtual/net/br0/speed", "10")
	links.WriteString("symlink sys/class/net/br0 -> ../../devices/virtual/net/br0\n")
	file("sys/class/net/bonding_masters", "")
	return links.String() + files.String()
}

// flat returns the facts as a list of "path: value".
func flat(t *testing.T, m hardware.Facts) map[string]string {
	t.Helper()
	text, err := json.Marshal(m)
	hosttest.NoError(t, err)
	var tree any
	hosttest.NoError(t, json.Unmarshal(text, &tree))
	all := map[string]string{}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, of := range v {
				walk(strings.TrimPrefix(at+"."+k, "."), of)
			}
		case []any:
			all[at] = fmt.Sprintf("list of %d", len(v))
			for i, of := range v {
				walk(fmt.Sprintf("%s.%d", at, i), of)
			}
		case float64:
			all[at] = fmt.Sprintf("%.0f", v)
		case nil:
			all[at] = "null"
		default:
			all[at] = fmt.Sprint(v)
		}
	}
	walk("", tree)
	return all
}

// differences returns what differs between two maps, as "path: value" of the second.
func differences(a, b map[string]string) string {
	var all []string
	for k, v := range b {
		if a[k] != v {
			all = append(all, k+": "+v)
		}
	}
	for k := range a {
		if _, there := b[k]; !there && !strings.Contains(k, "s.") {
			all = append(all, k+": gone")
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func TestRead(t *testing.T) {
	m, warnings := hardware.Read(hosttest.Lay(t, server()))
	if len(warnings) > 0 {
		t.Errorf("%q", warnings)
	}
	got := flat(t, m)
	for path, want := range map[string]string{
		"vendor": "Supermicro", "product": "AS -4124GO-NART", "bios.vendor": "AMI", "bios.version": "2.5", "bios.date": "09/14/2022",
		"board.vendor": "Supermicro", "board.product": "H12DGO-6", "board.version": "1.01",
		"cpu.model": "AMD EPYC 7742", "cpu.address_bits": "43", "cpu.sockets": "2", "cpu.cores": "8", "cpu.threads": "16", // ghw counts 4 cores
		"memory.total_bytes": "12884901888", "memory.usable_bytes": "12288000000", "memory.hugepages": "list of 2",
		"memory.hugepages.0.size_bytes": "2097152", "memory.hugepages.1.size_bytes": "1073741824", "memory.hugepages.1.total": "6", "memory.hugepages.1.free": "3",
		"numa_nodes": "list of 3", "numa_nodes.1.id": "1", "numa_nodes.1.cores": "4", "numa_nodes.1.threads": "8",
		"numa_nodes.1.memory.total_bytes": "4294967296", "numa_nodes.1.memory.usable_bytes": "4096000000",
		"numa_nodes.1.memory.hugepages.1.total": "2", "numa_nodes.1.memory.hugepages.1.free": "1",
		"numa_nodes.2.cores": "0", "numa_nodes.2.memory.usable_bytes": "4096000000",
		"disks": "list of 1", "disks.0.name": "nvme0n1", "disks.0.size_bytes": "2048000", "disks.0.model": "SAMSUNG MZQL2",
		"disks.0.rotational": "false", "disks.0.removable": "false", "disks.0.controller": "nvme",
		"nics": "list of 2", "nics.0.name": "ens1f0", "nics.0.pci_address": "0000:41:00.0", "nics.0.driver": "mlx5_core", "nics.0.speed_mbps": "100000",
		"nics.1.pci_address": "0000:41:00.1", "nics.1.speed_mbps": "null",
	} {
		hosttest.EqualIn(t, path, want, got[path])
	}
	if text, _ := json.Marshal(m); strings.Contains(string(text), "SERIAL") || strings.Contains(string(text), "UUID") || strings.Contains(string(text), "aa:bb") {
		t.Errorf("identifies the machine: %s", text)
	}
}

// TestHoles: what is missing, unreadable or odd is null, with a warning that names it, and nothing
// else is.
func TestHoles(t *testing.T) {
	whole, _ := hardware.Read(hosttest.Lay(t, server()))
	before := flat(t, whole)
	const node1 = "sys/devices/system/node/node1"
	for _, c := range []struct {
		name    string
		hole    hosttest.Step
		nulls   string // what differs
		warning string
	}{
		{"no DMI", hosttest.Remove("sys/class/dmi"), "bios.date: null\nbios.vendor: null\nbios.version: null\nboard.product: null\nboard.vendor: null\nboard.version: null\nproduct: null\nvendor: null",
			"/sys/class/dmi/id is missing: product, BIOS and board are unknown"},
		{"one table", hosttest.Remove("sys/class/dmi/id/bios_version"), "bios.version: null", "/sys/class/dmi/id/bios_version: no such file or directory"},
		{"an unreadable serial number", hosttest.Remove("sys/class/dmi/id/product_serial"), "", ""},
		{"no cpuinfo", hosttest.Remove("proc/cpuinfo"), "cpu.address_bits: null\ncpu.model: null", "/proc/cpuinfo: shows no model of the CPU"},
		{"cpuinfo of one CPU", hosttest.Write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 7742\n\n"), "cpu.address_bits: null", ""},
		{"odd sizes of addresses", hosttest.Write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 7742\naddress sizes\t: wide\n\n"), "cpu.address_bits: null",
			`/proc/cpuinfo: not a size of addresses: "wide"`},
		{"a core of a CPU", hosttest.Steps(hosttest.Remove("sys/devices/system/cpu/cpu9/topology/core_cpus_list")),
			"cpu.cores: null\ncpu.sockets: null\ncpu.threads: null\nnuma_nodes.0.cores: null\nnuma_nodes.0.threads: null\n" +
				"numa_nodes.1.cores: null\nnuma_nodes.1.threads: null\nnuma_nodes.2.cores: null\nnuma_nodes.2.threads: null",
			"/sys/devices/system/cpu/cpu9/topology/thread_siblings_list: no such file or directory"},
		{"a CPU that is off", hosttest.Write("sys/devices/system/cpu/cpu9/online", "0\n"), "cpu.threads: 15\nnuma_nodes.1.threads: 7", ""},
		{"no CPUs", hosttest.Remove("sys/devices/system/cpu"), "cpu.address_bits: null\ncpu.cores: null\ncpu.model: null\ncpu.sockets: null\ncpu.threads: null\n" +
			"numa_nodes.0.cores: null\nnuma_nodes.0.threads: null\nnuma_nodes.1.cores: null\nnuma_nodes.1.threads: null\nnuma_nodes.2.cores: null\nnuma_nodes.2.threads: null",
			"/sys/devices/system/cpu: no such file or directory: the CPUs are unknown"},
		{"no meminfo", hosttest.Remove("proc/meminfo"), "memory.hugepages: null\nmemory.total_bytes: null\nmemory.usable_bytes: null\n" +
			"numa_nodes.0.memory.total_bytes: null\nnuma_nodes.1.memory.total_bytes: null\nnuma_nodes.2.memory.total_bytes: null",
			"/proc/meminfo: no such file or directory"},
		{"an odd meminfo", hosttest.Write("proc/meminfo", "MemTotal: much\nHugetlb: 0 kB\nHugepagesize: 2048 kB\n"), "memory.hugepages: null\nmemory.total_bytes: null\nmemory.usable_bytes: null",
			`/proc/meminfo: not a size in kB: "much"`},
		{"a memory block", hosttest.Remove("sys/devices/system/memory/memory1/state"), "memory.total_bytes: null\nnuma_nodes.1.memory.total_bytes: null",
			"/sys/devices/system/memory/memory1/state: no such file or directory"},
		{"no memory blocks", hosttest.Remove("sys/devices/system/memory"),
			"memory.total_bytes: null\nnuma_nodes.0.memory.total_bytes: null\nnuma_nodes.1.memory.total_bytes: null\nnuma_nodes.2.memory.total_bytes: null",
			"/sys/devices/system/memory/block_size_bytes: no such file or directory"},
		{"Linux 3.10", hosttest.Write("proc/meminfo", "MemTotal:       12000000 kB\nHugepagesize:       2048 kB\n"),
			"numa_nodes.0.memory.total_bytes: null\nnuma_nodes.1.memory.total_bytes: null\nnuma_nodes.2.memory.total_bytes: null", "/" + node1 + ": failed to find 'Hugetlb' entry"},
		{"memory of a node", hosttest.Remove(node1 + "/meminfo"), "numa_nodes.1.memory.hugepages: null\nnuma_nodes.1.memory.total_bytes: null\nnuma_nodes.1.memory.usable_bytes: null",
			"/" + node1 + "/meminfo: no such file or directory"},
		{"a pool that is none", hosttest.Write(node1+"/hugepages/odd/nr_hugepages", "1\n"), "numa_nodes.1.memory.hugepages: null\nnuma_nodes.1.memory.total_bytes: null",
			"/" + node1 + `/hugepages/odd: not a pool of huge pages: "odd"`},
		{"odd pages", hosttest.Write(node1+"/hugepages/hugepages-2048kB/nr_hugepages", "many\n"), "numa_nodes.1.memory.hugepages: null\nnuma_nodes.1.memory.total_bytes: null",
			"/" + node1 + `/hugepages/hugepages-2048kB/nr_hugepages: not a number: "many"`},
		{"no nodes", hosttest.Remove("sys/devices/system/node"), "numa_nodes: null", "/sys/devices/system/node: no such file or directory: the NUMA nodes are unknown"},
		{"an odd node", hosttest.Write("sys/devices/system/node/node3x/meminfo", "x"), "numa_nodes: null", `/sys/devices/system/node/node3x: not a NUMA node: "node3x"`},
		{"the size of a disk", hosttest.Write("sys/block/nvme0n1/size", "big\n"), "disks.0.size_bytes: null", `/sys/block/nvme0n1/size: not a number: "big"`},
		{"rotation of a disk", hosttest.Remove("sys/block/nvme0n1/queue/rotational"), "disks.0.rotational: null", "/sys/block/nvme0n1/queue/rotational: no such file or directory"},
		{"the model of a disk", hosttest.Remove("sys/block/nvme0n1/device/model"), "disks.0.model: null", ""},
		{"an empty line of mounts", hosttest.Write("proc/self/mounts", "\n"), "disks: null", "/proc/self/mounts: has an empty line: the disks are unknown"},
		{"no mounts", hosttest.Remove("proc/self/mounts"), "", ""},
		{"no disks", hosttest.Remove("sys/block"), "disks: null", "/sys/block: no such file or directory: the disks are unknown"},
		{"no interfaces", hosttest.Remove("sys/class/net"), "nics: null", "/sys/class/net: no such file or directory: the network interfaces are unknown"},
		{"no driver", hosttest.Remove("sys/devices/pci0000:00/0000:41:00.0/driver"), "nics.0.driver: null", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := hosttest.Lay(t, server())
			c.hole(t, root)
			m, warnings := hardware.Read(root)
			hosttest.Equal(t, c.nulls, differences(before, flat(t, m)))
			if all := strings.Join(warnings, "\n"); !strings.Contains(all, c.warning) || (c.warning == "") != (len(warnings) == 0) {
				t.Errorf("%q, want %q", warnings, c.warning)
			}
		})
	}
}

// TestEmptyRoot: nothing of the machine that the test runs on is in the facts of an empty root, and
// no variable of ghw's environment matters.
func TestEmptyRoot(t *testing.T) {
	t.Setenv("GHW_CHROOT", "/")
	t.Setenv("GHW_LOG_LEVEL", "debug")
	m, warnings := hardware.Read(hosttest.Lay(t, "mkdir etc\n"))
	for path, value := range flat(t, m) {
		hosttest.EqualIn(t, path, "null", value)
	}
	if len(warnings) < 6 {
		t.Errorf("%q", warnings)
	}
}

// TestNothingOutside: the files of each kind, in turn, are links that lead out of the root, to a
// file with another content, or pipes. Nothing is read there, and nothing waits.
func TestNothingOutside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	hosttest.NoError(t, os.WriteFile(outside, []byte("processor\t: 0\nmodel name\t: OUTSIDE\n\n"), 0o644))
	root := hosttest.Lay(t, server())
	kinds := map[string]map[string]string{} // contents of files by name without digits
	digits := regexp.MustCompile("[0-9]+")
	err := filepath.WalkDir(root.Path("/"), func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		kind := digits.ReplaceAllString(strings.TrimPrefix(name, root.Path("/")), "#")
		if kinds[kind] == nil {
			kinds[kind] = map[string]string{}
		}
		kinds[kind][name] = string(text)
		return err
	})
	if err != nil || len(kinds) < 40 {
		t.Fatalf("%d, %v", len(kinds), err)
	}
	for kind, files := range kinds {
		for with, lay := range map[string]func(name string) error{
			"link": func(name string) error { return os.Symlink(outside, name) },
			"pipe": func(name string) error { return syscall.Mkfifo(name, 0o600) },
		} {
			for name := range files {
				hosttest.NoError(t, errors.Join(os.Remove(name), lay(name)))
			}
			read := make(chan hardware.Facts, 1)
			go func() {
				m, _ := hardware.Read(root)
				read <- m
			}()
			select {
			case m := <-read:
				if got, _ := json.Marshal(m); strings.Contains(string(got), "OUTSIDE") {
					t.Errorf("%s, a %s: %s", kind, with, got)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: waits for a %s", kind, with)
			}
		}
		for name, text := range files {
			hosttest.NoError(t, errors.Join(os.Remove(name), os.WriteFile(name, []byte(text), 0o644)))
		}
	}
}

// TestSnapshotHasTheFacts: an unpacked snapshot of what was read has the same facts, and nothing
// that identifies the machine.
func TestSnapshotHasTheFacts(t *testing.T) {
	root := hosttest.Lay(t, server())
	var tree snapshot.Tree
	want, _ := hardware.Read(root.Recorded(&tree))
	dir := t.TempDir()
	hosttest.NoError(t, tree.Unpack(dir))
	again, err := host.NewRoot(dir)
	hosttest.NoError(t, err)
	got, warnings := hardware.Read(again)
	if diff := cmp.Diff(want, got); diff != "" || len(warnings) > 0 {
		t.Errorf("%q, (-machine +snapshot):\n%s", warnings, diff)
	}
	err = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		if strings.Contains(string(text), "SERIAL") || strings.Contains(string(text), "UUID") || strings.Contains(string(text), "aa:bb") {
			t.Errorf("%s: %s", name, text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
