package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
