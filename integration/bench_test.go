package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/fleet/fleettest"
	"gpustack/host/hosttest"
	"gpustack/integration/race"
)

// BenchmarkScan times whole processes that list the same functions with names,
// one after the other in each round: gpustack, lspci, and a program that asks ghw;
// and gpustack listing only GPUs and what is in their slots and groups.
// The ratios are gpustack's time to theirs, round by round, the median of them.
func BenchmarkScan(b *testing.B) {
	ghwscan := filepath.Join(scratch, "ghwscan")
	if out, err := exec.Command("go", "build", "-o", ghwscan, "gpustack/integration/ghwscan").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	bench := func(name, root string) {
		addNames(b, root)
		lspci := race.Peer{Name: "lspci", Argv: []string{"lspci", "-D", "-nnk", "-O", "sysfs.path=" + filepath.Join(root, "sys/bus/pci")}}
		b.Run(name+"/all", func(b *testing.B) {
			race.Run(b, lspci,
				race.Peer{Name: "ghw", Argv: []string{ghwscan, root}},
				race.Peer{Name: "gpustack", Argv: []string{gpustack, "host", "scan", "--all", "-o", "json", "--root", root}},
			)
		})
		b.Run(name+"/gpus", func(b *testing.B) {
			race.Run(b, lspci, race.Peer{Name: "gpustack", Argv: []string{gpustack, "host", "scan", "--root", root}})
		})
	}
	for _, functions := range []int{483, 4096} {
		root := filepath.Join(b.TempDir(), "server")
		layServer(b, root, functions)
		bench(fmt.Sprintf("server=%d", functions), root)
	}
	// A real machine of 483 functions.
	const real = "ethanzhf-spr-dmar-tree"
	root := filepath.Join(b.TempDir(), real)
	hosttest.NoError(b, layNode(filepath.Join(nodes, real+".tsv"), root))
	bench(real, root)
}

// BenchmarkStart times a command that does nothing else.
func BenchmarkStart(b *testing.B) {
	race.Run(b, race.Peer{Name: "gpustack", Argv: []string{gpustack, "--version"}})
}

// BenchmarkPrepare times host prepare --dry-run where there is nothing to do, on a
// node with as many modules as a distribution's kernel has, and an Ansible playbook
// that checks the same ten steps.
func BenchmarkPrepare(b *testing.B) {
	root := unpack(b, examples(b)["talk-2xk4200.txtar"])
	modules := filepath.Join(root, "lib/modules/4.4.0-210-generic")
	dep, alias := hosttest.Read(b, filepath.Join(modules, "modules.dep")), hosttest.Read(b, filepath.Join(modules, "modules.alias"))
	for i := range 6000 {
		dep += fmt.Sprintf("kernel/drivers/subsystem/family/module-%d.ko: kernel/drivers/subsystem/core.ko\n", i)
	}
	for i := range 20000 {
		alias += fmt.Sprintf("alias pci:v%08Xd%08Xsv*sd*bc*sc*i* module_%d\n", 0x1000+i%512, i, i%6000)
	}
	write(b, filepath.Join(modules, "modules.dep"), dep)
	write(b, filepath.Join(modules, "modules.alias"), alias)
	run(b, gpustack, "host", "prepare", "--root", root, "--yes")
	// The playbook has a node of its own, with the folders that it does not make.
	other := unpack(b, examples(b)["talk-2xk4200.txtar"])
	for _, dir := range []string{"default/grub.d", "modprobe.d", "modules-load.d", "initramfs-tools/scripts/init-top"} {
		hosttest.NoError(b, os.MkdirAll(filepath.Join(other, "etc", dir), 0o755))
	}
	playbook := []string{"ansible-playbook", "-i", "localhost,", "-e", "root=" + other, "testdata/bench/prepare.yml"}
	run(b, playbook[0], playbook[1:]...)
	race.Run(b,
		race.Peer{Name: "ansible", Argv: playbook},
		race.Peer{Name: "gpustack", Argv: []string{gpustack, "host", "prepare", "--root", root, "--dry-run"}},
	)
}

// BenchmarkNovaConfigure times an alias, a spec and the filters written into Debian's
// sample, recorded and synced, beside crudini and Ansible's ini_file, which can write
// one alias and no more, and keep no record.
func BenchmarkNovaConfigure(b *testing.B) {
	root := b.TempDir()
	write(b, filepath.Join(root, "etc/nova/nova.conf"), hosttest.Read(b, sample))
	other := filepath.Join(b.TempDir(), "nova.conf")
	write(b, other, hosttest.Read(b, sample))
	// Each round takes away again what it has written, so that the next has work.
	race.Run(b,
		race.Peer{Name: "crudini", Argv: []string{"sh", "-ec", `
			crudini --set "$0" pci alias '{"name": "K4200", "vendor_id": "10de", "product_id": "11b4"}'
			crudini --set "$0" pci device_spec '{"vendor_id": "10de", "product_id": "11b4"}'
			crudini --set "$0" filter_scheduler enabled_filters ComputeFilter,PciPassthroughFilter
			cp "$1" "$0"`, other, sample}},
		race.Peer{Name: "ini_file", Argv: []string{"sh", "-ec", `ansible-playbook -i localhost, -e "conf=$0" testdata/bench/nova.yml; cp "$1" "$0"`, other,
			sample}},
		race.Peer{Name: "gpustack", Argv: []string{"sh", "-ec", `
			"$0" nova configure --root "$1" --role all --release zed --alias K4200=10de:11b4 --yes >/dev/null 2>&1
			cp "$2" "$1/etc/nova/nova.conf"; rm -r "$1/var"`, gpustack, root, sample}},
	)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// addNames gives a machine the list of names that lspci reads on this one.
func addNames(b testing.TB, root string) {
	list := hosttest.Read(b, "/usr/share/misc/pci.ids")
	write(b, filepath.Join(root, "usr/share/misc/pci.ids"), list)
}

// layServer lays out a server's sysfs: buses of a root port and a card of eight
// functions, GPUs and network cards in turn, until there are enough of them.
func layServer(b testing.TB, root string, functions int) {
	for n := range functions {
		const perBus = 9
		bus, place := n/perBus, n%perBus
		domain, port := bus/256, fmt.Sprintf("%04x:%02x:00.0", bus/256, bus%256)
		dir := fmt.Sprintf("sys/devices/pci%04x:00/%s", domain, port)
		address, class, product, driver := port, "0x060400", "0x10de8086", "pcieport"
		if place > 0 {
			address = fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus%256, 1, place-1)
			dir += "/" + address
			class, product, driver = "0x030000", "0x11b410de", "nouveau"
			if bus%2 == 1 {
				class, product, driver = "0x020000", "0x101915b3", "mlx5_core"
			}
		}
		device, vendor := product[:6], "0x"+product[6:]
		for name, text := range map[string]string{
			"class": class, "vendor": vendor, "device": device,
			"subsystem_vendor": vendor, "subsystem_device": device, "revision": "0xa1", "numa_node": "0",
			"driver_override": "(null)", "reset_method": "flr bus",
			// As the kernel writes it: with upper-case digits.
			"modalias": "pci:v0000" + upper(vendor) + "d0000" + upper(device) + "sv0000" + upper(vendor) + "sd0000" + upper(device) +
				"bc" + upper(class)[:2] + "sc" + upper(class)[2:4] + "i" + upper(class)[4:],
		} {
			write(b, filepath.Join(root, dir, name), text+"\n")
		}
		link(b, filepath.Join(root, dir, "driver"), filepath.Join(root, "sys/bus/pci/drivers", driver))
		link(b, filepath.Join(root, dir, "iommu_group"), filepath.Join(root, fmt.Sprintf("sys/kernel/iommu_groups/%d", n)))
		link(b, filepath.Join(root, "sys/bus/pci/devices", address), filepath.Join(root, dir))
	}
	writeConfigs(b, root)
}

// upper returns a hexadecimal number without its prefix, with upper-case digits.
func upper(number string) string {
	return strings.ToUpper(strings.TrimPrefix(number, "0x"))
}

func write(b testing.TB, path, text string) {
	b.Helper()
	hosttest.NoError(b, os.MkdirAll(filepath.Dir(path), 0o755))
	hosttest.NoError(b, os.WriteFile(path, []byte(text), 0o644))
}

// link makes a relative link at path to target, and target itself a folder.
func link(b testing.TB, path, target string) {
	b.Helper()
	relative, err := filepath.Rel(filepath.Dir(path), target)
	hosttest.NoError(b, err)
	for _, dir := range []string{filepath.Dir(path), target} {
		hosttest.NoError(b, os.MkdirAll(dir, 0o755))
	}
	hosttest.NoError(b, os.Symlink(relative, path))
}

// BenchmarkFleet times fleet show and fleet plan of 2,000 nodes with 4,292 GPUs, whose three
// documents each are JSON lines, beside cat, which only reads them.
func BenchmarkFleet(b *testing.B) {
	nodes, services := fleettest.Large(b)
	dir := b.TempDir()
	lines, zones := filepath.Join(dir, "nodes.jsonl"), filepath.Join(dir, "services.json")
	write(b, zones, string(services))
	// One by one: the size of a program includes that of the process that has started it.
	f, err := os.Create(lines)
	hosttest.NoError(b, err)
	for _, n := range nodes {
		if _, err := f.Write(fleettest.Lines(b, n)); err != nil {
			b.Fatal(err)
		}
	}
	hosttest.NoError(b, f.Close())
	cat := race.Peer{Name: "cat", Argv: []string{"cat", lines}}
	b.Run("show", func(b *testing.B) {
		race.Run(b, cat, race.Peer{Name: "gpustack", Argv: []string{gpustack, "fleet", "show", lines}})
	})
	b.Run("plan", func(b *testing.B) {
		show := race.Peer{Name: "show", Argv: []string{gpustack, "fleet", "show", lines}}
		race.Run(b, show, race.Peer{Name: "gpustack", Argv: []string{gpustack, "fleet", "plan", lines, "--keep", "80%", "--map", zones, "--max-age", "1000000h"}})
	})
}

// gidReader is a C program that opens what rdma scan opens of GID tables: each entry, and type and
// interface of entries in use.
const gidReader = `
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int attribute(int dir, const char *name, char *buf) {
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) return -1;
	int n = read(fd, buf, 4096);
	close(fd);
	if (n >= 0) buf[n] = 0;
	return n;
}
int main(int argc, char **argv) {
	char buf[4097], path[4096];
	for (int i = 1; i < argc; i++) {
		snprintf(path, sizeof path, "%s/gids", argv[i]);
		DIR *d = opendir(path);
		snprintf(path, sizeof path, "%s/gid_attrs/types", argv[i]);
		int types = open(path, O_RDONLY | O_DIRECTORY);
		snprintf(path, sizeof path, "%s/gid_attrs/ndevs", argv[i]);
		int ndevs = open(path, O_RDONLY | O_DIRECTORY);
		if (!d || types < 0 || ndevs < 0) return 1;
		for (struct dirent *e; (e = readdir(d));) {
			if (e->d_name[0] == '.') continue;
			if (attribute(dirfd(d), e->d_name, buf) < 0) return 1;
			if (!strncmp(buf, "0000:0000:0000:0000:0000:0000:0000:0000", 39)) continue;
			printf("%s %s", e->d_name, buf);
			if (attribute(types, e->d_name, buf) < 0) return 1;
			printf("%s", buf);
			if (attribute(ndevs, e->d_name, buf) < 0) return 1;
			printf("%s", buf);
		}
		closedir(d);
		close(types);
		close(ndevs);
	}
}
`

// BenchmarkRDMAScan times rdma scan of a server with eight adapters: without GIDs, which should
// take 20 ms at most, and with tables of 1,024 entries beside a C program that opens the same files
// of them and nothing else: to compare at 1.3 times, subtract what the scan takes without GIDs. Of
// each table, few or almost all entries are in use.
func BenchmarkRDMAScan(b *testing.B) {
	program := filepath.Join(b.TempDir(), "gids")
	compile := exec.Command("gcc", "-O2", "-x", "c", "-o", program, "-")
	compile.Stdin = strings.NewReader(gidReader)
	if out, err := compile.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, used := range []int{4, 1024} {
		root, ports := layAdapters(b, used)
		own := func(more ...string) race.Peer {
			return race.Peer{Name: "gpustack", Argv: append([]string{gpustack, "rdma", "scan", "--root", root}, more...)}
		}
		c := race.Peer{Name: "c", Argv: append([]string{program}, ports...)}
		b.Run(fmt.Sprintf("used=%d/gids", used), func(b *testing.B) { race.Run(b, c, own("-o", "json")) })
		b.Run(fmt.Sprintf("used=%d/table", used), func(b *testing.B) { race.Run(b, c, own()) })
	}
}

// layAdapters lays a server with eight adapters and 1,024 GIDs each, and returns the folders of
// their ports.
func layAdapters(b *testing.B, used int) (dir string, ports []string) {
	var adapters []hosttest.HCA
	for i := range 8 {
		h := hosttest.HCA{Address: fmt.Sprintf("0000:%02x:00.0", 0x10*(i+1)), Device: fmt.Sprintf("mlx5_%d", i), Index: i, NUMA: i / 4}
		for n := range 1023 {
			gid := "0000:0000:0000:0000:0000:0000:0000:0000"
			if n < used {
				gid = fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a%02x:%04x", i, n)
			}
			h.GIDs = append(h.GIDs, gid+" RoCE v2 eth0")
		}
		adapters = append(adapters, h)
		ports = append(ports, fmt.Sprintf("sys/class/infiniband/mlx5_%d/ports/1", i))
	}
	root := hosttest.Lay(b, hosttest.Fabric(adapters, "-- sys/devices/pci0000:a0/0000:a0:00.0/class --\n0x030200\n"))
	for i, port := range ports {
		ports[i] = root.Path(port)
	}
	return root.Path("/"), ports
}
