package prepare_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/change"
	"gpustack/host/gate"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/selection"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// out returns what is below etc, but for what was there at first.
func out(t *testing.T, root host.Root, first map[string]string) *txtar.Archive {
	t.Helper()
	a := &txtar.Archive{}
	all := tree(t, root)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		mode, text, isFile := strings.Cut(all[name], "\n")
		if isFile && all[name] != first[name] && !strings.HasPrefix(name, "var/") {
			a.Files = append(a.Files, txtar.File{Name: name + " " + mode, Data: []byte(text)})
		}
	}
	return a
}

// tree returns modes and contents of everything but what the kernel shows.
func tree(t *testing.T, root host.Root) map[string]string {
	t.Helper()
	files := map[string]string{}
	top := root.Path("/")
	err := filepath.WalkDir(top, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below := strings.TrimPrefix(strings.TrimPrefix(name, top), "/")
		if below == "sys" || below == "var/lib/gpustack/journal" {
			return filepath.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files[below] = info.Mode().String()
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(name)
			files[below] += "\n" + string(text)
			return err
		}
		return nil
	})
	hosttest.NoError(t, err)
	return files
}

func observe(root host.Root) machine.Machine {
	return machine.ObservePrepare(root, true)
}

func plan(t *testing.T, root host.Root, opts selection.Options) (prepare.Plan, error) {
	t.Helper()
	observed := prepare.Observe(root, observe(root), opts)
	want, err := prepare.NewWant(observed, opts)
	if err != nil {
		return prepare.Plan{}, err
	}
	return prepare.NewPlan(observed, want)
}

// TestInOut prepares every distribution, for each CPU vendor and driver, with twins or
// none, loadable or built in: the whole tree that comes out is held against testdata, for
// Intel of each distribution, and for Debian of all. Planned again there is nothing to do,
// every entry has the arguments, and taken back the tree is as at first.
func TestInOut(t *testing.T) {
	vendors := map[string]string{"intel": "GenuineIntel", "amd": "AuthenticAMD", "arm": "0x41"}
	for _, distro := range slices.Sorted(maps.Keys(hosttest.Distributions)) {
		for _, cpu := range slices.Sorted(maps.Keys(vendors)) {
			for _, driver := range []string{machine.VFIO, machine.Stub} {
				for _, twins := range []bool{false, true} {
					for _, builtin := range []bool{false, true} {
						name := cpu + "-" + driver
						if twins {
							name += "-twins"
						}
						if builtin {
							name += "-builtin"
						}
						t.Run(distro+"-"+name, func(t *testing.T) {
							t.Parallel() // they wait for the disk
							n := node{Distro: distro, CPU: vendors[cpu], Builtin: builtin}
							opts := selection.Options{Driver: driver}
							if twins {
								opts.Add = hosttest.Selectors(t, "0000:01:00.0")
							}
							root := hosttest.Lay(t, n.Archive())
							p, err := plan(t, root, opts)
							if twins && driver == machine.Stub {
								if !errors.Is(err, selection.ErrStubTwins) {
									t.Errorf("%v", err)
								}
								return
							}
							hosttest.NoError(t, err)
							got := inOut(t, root, p)
							if distro == "debian" || cpu == "intel" {
								hold(t, distro+"-"+name, got)
							}
						})
					}
				}
			}
		}
	}
}

// inOut applies a plan, and returns what came of it.
func inOut(t *testing.T, root host.Root, p prepare.Plan) *txtar.Archive {
	t.Helper()
	first := tree(t, root)
	engine := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{change.Files{Root: root}}}
	if _, err := engine.Apply(context.Background(), change.Work{Change: change.Files{Root: root}.New(p.Files)}); err != nil {
		t.Fatal(err)
	}
	got := out(t, root, first)
	programs := &strings.Builder{}
	for _, program := range p.Programs {
		fmt.Fprintln(programs, program)
	}
	got.Comment = []byte(programs.String())
	again, err := plan(t, root, selection.Options{})
	hosttest.NoError(t, err)
	if pending := again.Files.Pending(); len(pending) > 0 || again.Menu || again.Initramfs {
		t.Errorf("planned again: %s", pending[0].Diff())
	}
	if _, menu := observe(root).Loader.Value.(boot.Grub); !menu { // which update-grub makes
		entries, err := observe(root).Loader.Value.Entries(root)
		if err != nil || len(entries) == 0 {
			t.Errorf("%v, %v", entries, err)
		}
		if err := boot.InEffect(entries, observe(root).Contract.Value.Arguments); err != nil {
			t.Error(err)
		}
	}
	if _, err := engine.Undo(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	last := tree(t, root)
	for _, made := range []string{"var", "var/lib", "var/lib/gpustack"} {
		delete(last, made)
	}
	hosttest.EqualIn(t, "undone", first, last)
	return got
}

// hold compares what came out with testdata.
func hold(t *testing.T, name string, archive *txtar.Archive) {
	t.Helper()
	golden := filepath.Join("testdata", name+".txtar")
	got := txtar.Format(archive)
	if *update {
		hosttest.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want := hosttest.Read(t, golden)
	hosttest.EqualIn(t, name, want, string(got))
}

// TestVariations are machines that differ from the usual one in a single thing.
func TestVariations(t *testing.T) {
	for _, test := range []struct {
		name string
		node node
		opts selection.Options
	}{
		{"no-groups", node{CPU: "GenuineIntel", NoGroups: true}, selection.Options{}},
		{"foreign-ids", node{CPU: "GenuineIntel", More: "-- etc/modprobe.d/vfio.conf --\noptions vfio_pci disable_vga=1 ids=1234:5678\n"}, selection.Options{}},
		{"foreign-ids-last", node{CPU: "GenuineIntel", More: "-- etc/modprobe.d/zzz.conf --\noptions vfio-pci ids=1234:5678,10de:11b4\n"}, selection.Options{}},
		{"unsafe-interrupts", node{CPU: "GenuineIntel"}, selection.Options{Unsafe: true}},
		{"held-by-the-kernel", node{CPU: "AuthenticAMD", Holds: "snd-hda-intel",
			More: "-- lib/modules/6.1.0-28-amd64/modules.builtin.modinfo --\nsnd_hda_intel.alias=pci:v*d*sv*sd*bc04sc03i00*\x00\n"}, selection.Options{}},
		{"variant", node{CPU: "GenuineIntel", Aliases: "alias vfio_pci:v000010DEd000011B4sv*sd*bc*sc*i* k4200_vfio_pci\nalias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n"}, selection.Options{}},
		{"foreign-member-allowed", node{CPU: "GenuineIntel", CardGroup: 10, More: inMemory + withSystemd}, selection.Options{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := test.node.Archive()
			if test.node.CardGroup == 10 {
				_, err := plan(t, hosttest.Lay(t, text), test.opts)
				const want = "0000:04:00.0: shares IOMMU group 10 with a selected device but is not part of it: "
				if err == nil || !strings.HasPrefix(err.Error(), want) {
					t.Fatalf("%v, want %s", err, want)
				}
				a, _ := pci.ParseAddress("0000:04:00.0")
				test.opts.Allow = []pci.Address{a}
			}
			root := hosttest.Lay(t, text)
			if test.name == "variant" {
				const dep = "lib/modules/6.1.0-28-amd64/modules.dep"
				text, err := root.ReadFile(dep)
				hosttest.NoError(t, err)
				write(dep, string(text)+"kernel/k4200_vfio_pci.ko:\n")(t, root)
			}
			p, err := plan(t, root, test.opts)
			hosttest.NoError(t, err)
			hold(t, test.name, inOut(t, root, p))
		})
	}
}

// inMemory is the mount table of a machine whose root file system needs no disk.
const inMemory = "-- proc/mounts --\ntmpfs / tmpfs rw 0 0\n"

// withSystemd is what a machine has that repeats steps at every boot.
const withSystemd = "-- run/systemd/system/.keep --\n-- usr/lib/systemd/systemd --\n-- usr/sbin/gpustack --\n"

// separated is the one refusal of a divided board.
func separated(selected, not string) string {
	return "GPUs and NVSwitches of one board would be separated: " + selected + " selected, " + not + " not: choose which side gets the NVSwitches"
}

// TestRefusals: what must not go to guests is named, all of it at once.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		name, text  string
		add, remove []string
		allow       []string
		want        string
	}{
		{"GPUs without their switches", hosttest.Board(), []string{"10de:20b2"}, nil, nil,
			separated("0000:21:00.0 0000:22:00.0", "0000:23:00.0 0000:24:00.0")},
		{"switches without their GPUs", hosttest.Board(), []string{"10de:1af1", "0000:21:00.0"}, nil, nil,
			separated("0000:21:00.0 0000:23:00.0 0000:24:00.0", "0000:22:00.0")},
		{"the switches allowed", hosttest.Board(), []string{"10de:20b2"}, nil, []string{"0000:23:00.0", "0000:24:00.0"},
			"0000:23:00.0: --allow names a function that does not leave the host\n0000:24:00.0: --allow names a function that does not leave the host\n" +
				separated("0000:21:00.0 0000:22:00.0", "0000:23:00.0 0000:24:00.0")},
		{"a disk of the host", node{CPU: "GenuineIntel", More: "-- proc/mounts --\n/dev/root / ext4 rw 0 0\n"}.Archive(), []string{"0000:03:00.0"}, nil, []string{"0000:03:00.0"},
			"0000:03:00.0: may carry what the host boots from: /dev/root, mounted at / (ext4): the kernel does not list which disks it is on"},
		{"a tree that does not show what is mounted", node{CPU: "GenuineIntel"}.Archive(), []string{"0000:03:00.0"}, nil, []string{"0000:03:00.0"},
			"0000:03:00.0: may carry what the host boots from: no file shows what is mounted at /"},
		{"nothing is recorded to remove", node{CPU: "GenuineIntel"}.Archive(), nil, []string{"10de:11b4"}, nil, "10de:11b4: is not selected"},
		{"no NVIDIA card", strings.ReplaceAll(node{CPU: "GenuineIntel"}.Archive(), "pci:v000010DE", "pci:v00001002"), nil, nil, nil, "this machine has no NVIDIA GPU"},
		{"no id", strings.NewReplacer("0x0e0a", "e0a", "d00000E0Asv0", "dE0Asv0").Replace(node{CPU: "GenuineIntel"}.Archive()), []string{"0000:01:00.0"}, nil, nil, "0000:01:00.1: vendor and product id cannot be read"},
		{"a kernel without the driver", strings.ReplaceAll(node{CPU: "GenuineIntel"}.Archive(), "vfio-pci.ko", "vfio-xpci.ko"), nil, nil, nil, "driver vfio-pci: no installed kernel has it"},
		{"no kernel", strings.ReplaceAll(node{CPU: "GenuineIntel"}.Archive(), "lib/modules/6", "lib/mod/6"), nil, nil, nil, "/lib/modules: no installed kernel"},
		{"a bare tree", strings.NewReplacer("usr/sbin/mkinitramfs", "usr/x", "etc/default/grub", "etc/default/x", "usr/sbin/grub-mkconfig", "usr/y").Replace(node{CPU: "GenuineIntel"}.Archive()), nil, nil, nil,
			"no boot loader found\nno initramfs generator found"},
		{"an unknown CPU, and systemd-boot without entries", strings.NewReplacer("usr/sbin/mkinitramfs", "usr/bin/dracut", "etc/default/grub", "etc/default/x").Replace(node{CPU: "Zhaoxin", More: "-- efi/EFI/systemd/systemd-bootx64.efi --\n"}.Archive()), nil, nil, nil,
			"/efi/loader/entries, /boot/loader/entries, /boot/efi/loader/entries: no boot entries\nCPU zhaoxin: IOMMU requirements unknown"},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := selection.Options{Add: hosttest.Selectors(t, test.add...), Remove: hosttest.Selectors(t, test.remove...)}
			for _, a := range test.allow {
				address := hosttest.Address(t, a)
				opts.Allow = append(opts.Allow, address)
			}
			_, err := plan(t, hosttest.Lay(t, test.text), opts)
			got := ""
			if err != nil {
				got = err.Error()
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

// TestReplaced: a card that is no longer what was recorded stops every plan until
// it is removed, and then goes with all its functions.
func TestReplaced(t *testing.T) {
	root := hosttest.Lay(t, node{CPU: "GenuineIntel"}.Archive())
	p, err := plan(t, root, selection.Options{})
	hosttest.NoError(t, err)
	hosttest.NoError(t, p.Files.Apply(context.Background(), root))
	for _, f := range []string{"0", "1"} {
		hosttest.NoError(t, os.WriteFile(root.Path("sys/bus/pci/devices/0000:02:00."+f+"/modalias"),
			[]byte("pci:v000010DEd00001BB1sv00000000sd00000000bc03sc00i00\n"), 0o644))
	}
	_, err = plan(t, root, selection.Options{})
	const want = "0000:02:00.0: is not the function that was recorded (10de:11b4)\n0000:02:00.1: is not the function that was recorded (10de:0e0a)"
	if !errors.Is(err, selection.ErrChanged) || err.Error() != want {
		t.Errorf("%v", err)
	}
	p, err = plan(t, root, selection.Options{Remove: hosttest.Selectors(t, "0000:02:00.0")})
	if err != nil || len(p.Functions) != 2 {
		t.Errorf("%v, %v", p.Functions, err)
	}
}

// TestVirtualFunction: one goes alone, and its physical function remains with the host though
// they share a slot; a physical function with virtual ones is refused, as host bind refuses it.
func TestVirtualFunction(t *testing.T) {
	commands := "symlink sys/bus/pci/devices/0000:04:00.0/virtfn0 -> ../0000:04:00.1\nsymlink sys/bus/pci/devices/0000:04:00.1/physfn -> ../0000:04:00.0\n" +
		"symlink sys/bus/pci/devices/0000:04:00.1/iommu_group -> ../../../../kernel/iommu_groups/20\n"
	files := "-- sys/bus/pci/devices/0000:04:00.0/sriov_totalvfs --\n4\n-- sys/bus/pci/devices/0000:04:00.0/sriov_numvfs --\n1\n"
	for name, text := range map[string]string{"class": "0x020000", "vendor": "0x8086", "device": "0x1520"} {
		files += "-- sys/bus/pci/devices/0000:04:00.1/" + name + " --\n" + text + "\n"
	}
	root := hosttest.Lay(t, commands+node{CPU: "GenuineIntel", CardGroup: 13, More: inMemory + withSystemd + files}.Archive())
	allow := []pci.Address{{Bus: 4, Function: 1}}
	p, err := plan(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:04:00.1"), Allow: allow})
	hosttest.NoError(t, err)
	if len(p.Functions) != 1 || p.Functions[0].Address.String() != "0000:04:00.1" {
		t.Errorf("%v", p.Functions)
	}
	if _, err = plan(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:04:00.0")}); !errors.Is(err, gate.ErrVFs) {
		t.Errorf("%v", err)
	}
}

// TestFirstBoot: groups that a first boot with the IOMMU on has made are no change.
func TestFirstBoot(t *testing.T) {
	root := hosttest.Lay(t, node{CPU: "GenuineIntel", NoGroups: true}.Archive())
	p, err := plan(t, root, selection.Options{})
	hosttest.NoError(t, err)
	hosttest.NoError(t, p.Files.Apply(context.Background(), root))
	for _, f := range []string{"1:00.0", "1:00.1", "2:00.0", "2:00.1"} {
		hosttest.NoError(t, os.Symlink("../../../../kernel/iommu_groups/1"+f[:1], root.Path("sys/bus/pci/devices/0000:0"+f+"/iommu_group")))
	}
	if p, err = plan(t, root, selection.Options{}); err != nil || len(p.Files.Pending()) > 0 {
		t.Errorf("%v, %v", p.Files.Pending(), err)
	}
}

// TestConfUnread: nothing is planned where a file of modprobe's configuration leads nowhere: it may
// have had ids= lines, which the plan must repeat.
func TestConfUnread(t *testing.T) {
	const more = "symlink etc/modprobe.d/vfio.conf -> nowhere\n-- etc/modprobe.d/other.conf --\noptions vfio-pci ids=1234:5678\n"
	if p, err := plan(t, hosttest.Lay(t, more+node{CPU: "GenuineIntel"}.Archive()), selection.Options{}); err == nil || !strings.Contains(err.Error(), "/etc/modprobe.d/vfio.conf: ") {
		t.Errorf("%v, planned %v", err, p.Files.Pending())
	}
}
