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

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/journal"
	"gpustack/host/pci"
	"gpustack/host/prepare"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// node is a machine with two cards of two functions each, 01:00 and 02:00, a disk
// and a network card, on Debian.
type node struct {
	cpu       string // vendor_id
	builtin   bool   // the kernel has vfio-pci and pci-stub in itself
	noGroups  bool   // the IOMMU is off
	holds     string // a driver of the host that the kernel has in itself
	aliases   string // more lines of modules.alias
	cardGroup int    // of the network card
	more      string // files of the archive
}

func (n node) archive() string {
	var commands, files strings.Builder
	function := func(address, class, ids, modalias, driver string, group int) {
		dir := "sys/bus/pci/devices/" + address
		fmt.Fprintf(&commands, "symlink %s/driver -> ../../drivers/%s\n", dir, driver)
		if !n.noGroups {
			fmt.Fprintf(&commands, "symlink %s/iommu_group -> ../../../../kernel/iommu_groups/%d\n", dir, group)
		}
		vendor, product, _ := strings.Cut(ids, ":")
		for name, text := range map[string]string{"class": "0x" + class, "vendor": "0x" + vendor, "device": "0x" + product, "modalias": modalias} {
			fmt.Fprintf(&files, "-- %s/%s --\n%s\n", dir, name, text)
		}
	}
	for i, bus := range []string{"01", "02"} {
		function("0000:"+bus+":00.0", "030000", "10de:11b4", "pci:v000010DEd000011B4sv0sd0bc03sc00i00", "nouveau", 10+i)
		function("0000:"+bus+":00.1", "040300", "10de:0e0a", "pci:v000010DEd00000E0Asv0sd0bc04sc03i00", "snd_hda_intel", 10+i)
	}
	function("0000:03:00.0", "010601", "8086:8d02", "pci:v00008086d00008D02sv0sd0bc01sc06i01", "ahci", 12)
	function("0000:04:00.0", "020000", "8086:1533", "pci:v00008086d00001533sv0sd0bc02sc00i00", "igb", n.cardGroup)
	const kernel = "lib/modules/6.1.0-28-amd64/"
	loadable, builtin := "", ""
	for _, m := range []string{"vfio", "vfio_iommu_type1", "vfio-pci", "pci-stub"} {
		if n.builtin {
			builtin += "kernel/drivers/" + m + ".ko\n"
		} else {
			loadable += "kernel/drivers/" + m + ".ko.xz:\n"
		}
	}
	if n.holds != "" {
		builtin += "kernel/" + n.holds + ".ko\n"
	}
	for _, m := range []string{"kvm", "kvm-intel", "kvm-amd", "nouveau", "snd-hda-intel", "ahci", "igb"} {
		loadable += "kernel/" + m + ".ko.xz:\n"
	}
	fmt.Fprintf(&files, "-- %smodules.dep --\n%s-- %smodules.builtin --\n%s", kernel, loadable, kernel, builtin)
	fmt.Fprintf(&files, "-- %smodules.alias --\nalias pci:v000010DEd*sv*sd*bc03sc*i* nouveau\nalias pci:v*d*sv*sd*bc04sc03i00* snd_hda_intel\nalias pci:v00008086d00001533sv*sd*bc*sc*i* igb\n%s", kernel, n.aliases)
	fmt.Fprintf(&files, "-- proc/cpuinfo --\nvendor_id : %s\n", n.cpu)
	files.WriteString("-- etc/default/grub --\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"\"\n")
	files.WriteString("-- usr/sbin/grub-mkconfig --\nfor x in ${sysconfdir}/default/grub.d/*.cfg ; do\n-- usr/sbin/mkinitramfs --\n")
	return commands.String() + files.String() + n.more
}

// out returns what is below etc, but for what was there at first.
func out(t *testing.T, root host.Root, first map[string]string) *txtar.Archive {
	t.Helper()
	a := &txtar.Archive{}
	all := tree(t, root)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		mode, text, isFile := strings.Cut(all[name], "\n")
		if isFile && all[name] != first[name] && strings.HasPrefix(name, "etc/") {
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
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func selectors(t *testing.T, words ...string) (list []pci.Selector) {
	t.Helper()
	for _, w := range words {
		s, err := pci.ParseSelector(w)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

func plan(t *testing.T, root host.Root, opts prepare.Options) (prepare.Plan, error) {
	t.Helper()
	n, err := prepare.Observe(root)
	if err != nil {
		return prepare.Plan{}, err
	}
	return prepare.New(root, n, opts)
}

// TestInOut holds the whole tree that comes out against testdata, for each CPU
// vendor, driver, twins or none, loadable or built in. Planned again there is
// nothing to do, and taken back the tree is as at first.
func TestInOut(t *testing.T) {
	for _, cpu := range []string{"intel", "amd"} {
		for _, driver := range []string{prepare.VFIO, prepare.Stub} {
			for _, twins := range []bool{false, true} {
				for _, builtin := range []bool{false, true} {
					name := cpu + "-" + driver
					if twins {
						name += "-twins"
					}
					if builtin {
						name += "-builtin"
					}
					t.Run(name, func(t *testing.T) {
						n := node{cpu: map[string]string{"intel": "GenuineIntel", "amd": "AuthenticAMD"}[cpu], builtin: builtin}
						opts := prepare.Options{Driver: driver}
						if twins {
							opts.Add = selectors(t, "0000:01:00.0")
						}
						root := hosttest.Lay(t, n.archive())
						p, err := plan(t, root, opts)
						if twins && driver == prepare.Stub {
							if !errors.Is(err, prepare.ErrStubTwins) {
								t.Errorf("%v", err)
							}
							return
						}
						if err != nil {
							t.Fatal(err)
						}
						inOut(t, root, p, name)
					})
				}
			}
		}
	}
}

func inOut(t *testing.T, root host.Root, p prepare.Plan, name string) {
	t.Helper()
	first := tree(t, root)
	j, err := journal.Open(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := j.Apply(context.Background(), journal.Work{Files: p.Files}); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", name+".txtar")
	got := txtar.Format(out(t, root, first))
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again, err := plan(t, root, prepare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if pending := again.Files.Pending(); len(pending) > 0 || again.Menu || again.Initramfs {
		t.Errorf("planned again: %s", pending[0].Diff())
	}
	if _, err := j.Undo(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	last := tree(t, root)
	for _, made := range []string{"var", "var/lib", "var/lib/gpustack"} {
		delete(last, made)
	}
	if diff := cmp.Diff(first, last); diff != "" {
		t.Errorf("taken back (-first +last):\n%s", diff)
	}
}

// TestVariations are machines that differ from the usual one in a single thing.
func TestVariations(t *testing.T) {
	for _, test := range []struct {
		name string
		node node
		opts prepare.Options
	}{
		{"no-groups", node{cpu: "GenuineIntel", noGroups: true}, prepare.Options{}},
		{"foreign-ids", node{cpu: "GenuineIntel", more: "-- etc/modprobe.d/vfio.conf --\noptions vfio_pci disable_vga=1 ids=1234:5678\n"}, prepare.Options{}},
		{"foreign-ids-last", node{cpu: "GenuineIntel", more: "-- etc/modprobe.d/zzz.conf --\noptions vfio-pci ids=1234:5678,10de:11b4\n"}, prepare.Options{}},
		{"unsafe-interrupts", node{cpu: "GenuineIntel"}, prepare.Options{Unsafe: true}},
		{"held-by-the-kernel", node{cpu: "AuthenticAMD", holds: "snd-hda-intel", more: "-- lib/modules/6.1.0-28-amd64/modules.builtin.modinfo --\nsnd_hda_intel.alias=pci:v*d*sv*sd*bc04sc03i00*\x00\n"}, prepare.Options{}},
		{"variant", node{cpu: "GenuineIntel", aliases: "alias vfio_pci:v000010DEd000011B4sv*sd*bc*sc*i* k4200_vfio_pci\nalias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n"}, prepare.Options{}},
		{"foreign-member-allowed", node{cpu: "GenuineIntel", cardGroup: 10}, prepare.Options{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := test.node.archive()
			if test.node.cardGroup == 10 {
				_, err := plan(t, hosttest.Lay(t, text), test.opts)
				const want = "0000:04:00.0: is no part of a selected card, but in IOMMU group 10 with one"
				if err == nil || err.Error() != want {
					t.Fatalf("%v, want %s", err, want)
				}
				a, _ := pci.ParseAddress("0000:04:00.0")
				test.opts.Allow = []pci.Address{a}
			}
			root := hosttest.Lay(t, text)
			p, err := plan(t, root, test.opts)
			if err != nil {
				t.Fatal(err)
			}
			inOut(t, root, p, test.name)
		})
	}
}
