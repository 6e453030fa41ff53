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
	"gpustack/host/boot"
	"gpustack/host/change"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/prepare"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// node is a machine with two cards of two functions each, 01:00 and 02:00, a disk
// and a network card, on Debian unless its distribution is another.
type node struct {
	distro    string // of distributions; "": debian
	cpu       string // vendor_id, or for arm64 the implementer
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
	key := "vendor_id"
	if strings.HasPrefix(n.cpu, "0x") {
		key = "CPU implementer"
	}
	fmt.Fprintf(&files, "-- proc/cpuinfo --\n%s : %s\n", key, n.cpu)
	if n.distro == "" {
		n.distro = "debian"
	}
	return commands.String() + files.String() + distributions[n.distro] + n.more
}

// distributions are how they start kernels and make initramfs.
var distributions = map[string]string{
	"debian": `-- etc/default/grub --
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX=""
-- usr/sbin/grub-mkconfig --
for x in ${sysconfdir}/default/grub.d/*.cfg ; do
-- boot/initrd.img-6.1.0-28-amd64 --
-- usr/sbin/mkinitramfs --
`,
	"rhel8": `-- etc/os-release --
ID="rhel"
VERSION_ID="8.10"
-- etc/default/grub --
GRUB_CMDLINE_LINUX="crashkernel=auto rhgb quiet"
GRUB_ENABLE_BLSCFG=true
-- boot/grub2/grub.cfg --
blscfg
-- boot/grub2/grubenv --
# GRUB Environment Block
saved_entry=f00d-6.1.0-28-amd64
kernelopts=root=/dev/mapper/rhel-root ro crashkernel=auto iommu=nopt rhgb quiet 
###############################################################################################################################
-- boot/loader/entries/f00d-6.1.0-28-amd64.conf --
version 6.1.0-28-amd64
linux /vmlinuz-6.1.0-28-amd64
initrd /initramfs-6.1.0-28-amd64.img $tuned_initrd
options $kernelopts $tuned_params
-- boot/initramfs-6.1.0-28-amd64.img --
-- usr/bin/dracut --
-- usr/sbin/grub2-mkconfig --
`,
	"rhel9": `-- etc/os-release --
ID="rhel"
VERSION_ID="9.4"
-- etc/default/grub --
GRUB_CMDLINE_LINUX="rhgb quiet"
GRUB_ENABLE_BLSCFG=true
-- boot/grub2/grub.cfg --
blscfg
-- boot/loader/entries/f00d-6.1.0-28-amd64.conf --
version 6.1.0-28-amd64
linux /vmlinuz-6.1.0-28-amd64
initrd /initramfs-6.1.0-28-amd64.img $tuned_initrd
options root=/dev/mapper/rhel-root ro rhgb quiet $tuned_params
-- boot/loader/entries/f00d-0-rescue.conf --
linux /vmlinuz-0-rescue-f00d
options root=/dev/mapper/rhel-root ro
-- boot/initramfs-6.1.0-28-amd64.img --
-- usr/bin/dracut --
-- usr/sbin/grub2-mkconfig --
`,
	"fedora": `-- etc/os-release --
ID=fedora
VERSION_ID=41
-- etc/default/grub --
GRUB_CMDLINE_LINUX="rhgb quiet"
GRUB_ENABLE_BLSCFG=true
-- etc/kernel/cmdline --
root=UUID=12 ro rootflags=subvol=root intel_iommu=off rhgb quiet
-- boot/grub2/grub.cfg --
blscfg
-- boot/loader/entries/f00d-6.1.0-28-amd64.conf --
version 6.1.0-28-amd64
linux /vmlinuz-6.1.0-28-amd64
initrd /initramfs-6.1.0-28-amd64.img
options root=UUID=12 ro rootflags=subvol=root intel_iommu=off rhgb quiet
-- boot/initramfs-6.1.0-28-amd64.img --
-- usr/bin/dracut --
-- usr/sbin/grub2-mkconfig --
`,
	"suse": `-- etc/os-release --
ID="sles"
ID_LIKE="suse"
VERSION_ID="15.6"
-- etc/sysconfig/bootloader --
LOADER_TYPE="grub2-efi"
-- etc/default/grub --
GRUB_CMDLINE_LINUX_DEFAULT="splash=silent mitigations=auto iommu=soft quiet"
GRUB_CMDLINE_LINUX=""
-- boot/grub2/grub.cfg --
menuentry 'SLES' {
	linux /boot/vmlinuz-6.1.0-28-amd64 root=UUID=34 splash=silent
}
-- boot/initrd-6.1.0-28-amd64 --
-- usr/bin/dracut --
-- usr/sbin/grub2-mkconfig --
. ${sysconfdir}/default/grub
`,
	"debian-systemd-boot": `-- etc/os-release --
ID=debian
VERSION_ID="12"
-- etc/machine-id --
cafe
-- boot/efi/EFI/systemd/systemd-bootx64.efi --
-- boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf --
version    6.1.0-28-amd64
machine-id cafe
options    root=UUID=77 ro quiet systemd.machine_id=cafe
linux      /cafe/6.1.0-28-amd64/linux
initrd     /cafe/6.1.0-28-amd64/initrd.img-6.1.0-28-amd64
-- boot/vmlinuz-6.1.0-28-amd64 --
-- usr/sbin/mkinitramfs --
-- usr/bin/kernel-install --
`,
	"fedora-systemd-boot": `-- etc/os-release --
ID=fedora
VERSION_ID=41
-- etc/kernel/cmdline --
root=UUID=12 ro quiet
-- efi/EFI/systemd/systemd-bootx64.efi --
-- efi/loader/entries/beef-6.1.0-28-amd64.conf --
version    6.1.0-28-amd64
options    root=UUID=12 ro quiet
linux      /beef/6.1.0-28-amd64/linux
initrd     /beef/6.1.0-28-amd64/initrd
-- efi/beef/6.1.0-28-amd64/initrd --
-- lib/modules/6.1.0-28-amd64/vmlinuz --
-- usr/bin/dracut --
-- usr/bin/kernel-install --
`,
}

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
	n, err := prepare.Observe(root, guard.Running{})
	if err != nil {
		return prepare.Plan{}, err
	}
	return prepare.New(root, n, opts)
}

// TestInOut prepares every distribution, for each CPU vendor and driver, with twins or
// none, loadable or built in: the whole tree that comes out is held against testdata, for
// Intel of each distribution, and for Debian of all. Planned again there is nothing to do,
// every entry has the arguments, and taken back the tree is as at first.
func TestInOut(t *testing.T) {
	vendors := map[string]string{"intel": "GenuineIntel", "amd": "AuthenticAMD", "arm": "0x41"}
	for _, distro := range slices.Sorted(maps.Keys(distributions)) {
		for _, cpu := range slices.Sorted(maps.Keys(vendors)) {
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
						t.Run(distro+"-"+name, func(t *testing.T) {
							t.Parallel() // they wait for the disk
							n := node{distro: distro, cpu: vendors[cpu], builtin: builtin}
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
	n, err := prepare.Observe(root, guard.Running{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := prepare.New(root, n, prepare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if pending := again.Files.Pending(); len(pending) > 0 || again.Menu || again.Initramfs {
		t.Errorf("planned again: %s", pending[0].Diff())
	}
	if _, menu := n.Loader.(boot.Grub); !menu { // which update-grub makes
		entries, err := n.Loader.Entries(root)
		if err != nil || len(entries) == 0 {
			t.Errorf("%v, %v", entries, err)
		}
		if err := boot.InEffect(entries, n.Recorded.Arguments); err != nil {
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
	if diff := cmp.Diff(first, last); diff != "" {
		t.Errorf("taken back (-first +last):\n%s", diff)
	}
	return got
}

// hold compares what came out with testdata.
func hold(t *testing.T, name string, archive *txtar.Archive) {
	t.Helper()
	golden := filepath.Join("testdata", name+".txtar")
	got := txtar.Format(archive)
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
		t.Errorf("%s (-want +got):\n%s", name, diff)
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
				const want = "0000:04:00.0: shares IOMMU group 10 with a selected device but is not part of it"
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
			hold(t, test.name, inOut(t, root, p))
		})
	}
}

// board is an HGX board on AMD: two GPUs and two NVSwitches, each behind a bridge.
func board() string {
	text := node{cpu: "AuthenticAMD"}.archive()
	commands, files, _ := strings.Cut(text, "-- ")
	for i, class := range []string{"030200", "030200", "068000", "068000"} {
		at := fmt.Sprintf("sys/devices/pci0000:20/0000:20:0%d.0/0000:2%d:00.0", i, i+1)
		commands += fmt.Sprintf("symlink sys/bus/pci/devices/0000:2%d:00.0 -> ../../../../%s\n", i+1, at)
		product := "0x20b2"
		if class == "068000" {
			product = "0x1af1"
		}
		files += fmt.Sprintf("-- %s/class --\n0x%s\n-- %s/vendor --\n0x10de\n-- %s/device --\n%s\n", at, class, at, at, product)
	}
	return commands + "-- " + files
}

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
		{"GPUs without their switches", board(), []string{"10de:20b2"}, nil, nil,
			separated("0000:21:00.0 0000:22:00.0", "0000:23:00.0 0000:24:00.0")},
		{"switches without their GPUs", board(), []string{"10de:1af1", "0000:21:00.0"}, nil, nil,
			separated("0000:21:00.0 0000:23:00.0 0000:24:00.0", "0000:22:00.0")},
		{"one switch allowed", board(), []string{"10de:20b2"}, nil, []string{"0000:23:00.0"},
			separated("0000:21:00.0 0000:22:00.0", "0000:24:00.0")},
		{"all allowed", board(), []string{"10de:20b2"}, nil, []string{"0000:23:00.0", "0000:24:00.0"}, ""},
		{"a disk of the host", node{cpu: "GenuineIntel", more: "-- proc/mounts --\n/dev/root / ext4 rw 0 0\n"}.archive(), []string{"0000:03:00.0"}, nil, []string{"0000:03:00.0"},
			"0000:03:00.0: the host needs it: may carry /dev/root, mounted at /: its disk is not determined"},
		{"nothing is left", node{cpu: "GenuineIntel"}.archive(), nil, []string{"10de:11b4"}, nil, "nothing is selected"},
		{"no NVIDIA card", strings.ReplaceAll(node{cpu: "GenuineIntel"}.archive(), "0x10de", "0x1002"), nil, nil, nil, "NVIDIA GPUs: no such function"},
		{"no id", strings.Replace(node{cpu: "GenuineIntel"}.archive(), "0x0e0a", "e0a", 1), nil, nil, nil, "0000:01:00.1: its ids cannot be read"},
		{"a kernel without the driver", strings.ReplaceAll(node{cpu: "GenuineIntel"}.archive(), "vfio-pci.ko", "vfio-xpci.ko"), nil, nil, nil, "driver vfio-pci: no installed kernel has it"},
		{"no kernel", strings.ReplaceAll(node{cpu: "GenuineIntel"}.archive(), "lib/modules/6", "lib/mod/6"), nil, nil, nil, "/lib/modules: no installed kernel"},
		{"a bare tree", strings.NewReplacer("usr/sbin/mkinitramfs", "usr/x", "etc/default/grub", "etc/default/x", "usr/sbin/grub-mkconfig", "usr/y").Replace(node{cpu: "GenuineIntel"}.archive()), nil, nil, nil,
			"no boot loader found\nno initramfs maker found"},
		{"an unknown CPU, and systemd-boot without entries", strings.NewReplacer("usr/sbin/mkinitramfs", "usr/bin/dracut", "etc/default/grub", "etc/default/x").Replace(node{cpu: "Zhaoxin", more: "-- efi/EFI/systemd/systemd-bootx64.efi --\n"}.archive()), nil, nil, nil,
			"/efi/loader/entries, /boot/loader/entries, /boot/efi/loader/entries: no boot entries\nCPU zhaoxin: what its IOMMU needs is not known"},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := prepare.Options{Add: selectors(t, test.add...), Remove: selectors(t, test.remove...)}
			for _, a := range test.allow {
				address, err := pci.ParseAddress(a)
				if err != nil {
					t.Fatal(err)
				}
				opts.Allow = append(opts.Allow, address)
			}
			_, err := plan(t, hosttest.Lay(t, test.text), opts)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestReplaced: a card that is no longer what was recorded stops every plan until
// it is removed, and then goes with all its functions.
func TestReplaced(t *testing.T) {
	root := hosttest.Lay(t, node{cpu: "GenuineIntel"}.archive())
	p, err := plan(t, root, prepare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Files.Apply(context.Background(), root); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"0", "1"} {
		if err := os.WriteFile(root.Path("sys/bus/pci/devices/0000:02:00."+f+"/device"), []byte("0x1bb1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, err = plan(t, root, prepare.Options{})
	const want = "0000:02:00.0: is not the function that was recorded (10de:11b4)\n0000:02:00.1: is not the function that was recorded (10de:0e0a)"
	if !errors.Is(err, prepare.ErrChanged) || err.Error() != want {
		t.Errorf("%v", err)
	}
	p, err = plan(t, root, prepare.Options{Remove: selectors(t, "0000:02:00.0")})
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
	root := hosttest.Lay(t, commands+node{cpu: "GenuineIntel", cardGroup: 13, more: files}.archive())
	p, err := plan(t, root, prepare.Options{Add: selectors(t, "0000:04:00.1")})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Functions) != 1 || p.Functions[0].Address.String() != "0000:04:00.1" {
		t.Errorf("%v", p.Functions)
	}
	if _, err = plan(t, root, prepare.Options{Add: selectors(t, "0000:04:00.0")}); !errors.Is(err, prepare.ErrVFs) {
		t.Errorf("%v", err)
	}
}

// TestFirstBoot: groups that a first boot with the IOMMU on has made are no change.
func TestFirstBoot(t *testing.T) {
	root := hosttest.Lay(t, node{cpu: "GenuineIntel", noGroups: true}.archive())
	p, err := plan(t, root, prepare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Files.Apply(context.Background(), root); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"1:00.0", "1:00.1", "2:00.0", "2:00.1"} {
		if err := os.Symlink("../../../../kernel/iommu_groups/1"+f[:1], root.Path("sys/bus/pci/devices/0000:0"+f+"/iommu_group")); err != nil {
			t.Fatal(err)
		}
	}
	if p, err = plan(t, root, prepare.Options{}); err != nil || len(p.Files.Pending()) > 0 {
		t.Errorf("%v, %v", p.Files.Pending(), err)
	}
}

// TestUnguarded: a tree that does not show what is mounted is said to be one.
func TestUnguarded(t *testing.T) {
	const warning = "/proc/mounts: not there, so that the host's disks are not guarded"
	for more, want := range map[string]bool{"": true, "-- proc/mounts --\n": false} {
		p, err := plan(t, hosttest.Lay(t, node{cpu: "GenuineIntel", more: more}.archive()), prepare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(p.Warnings, warning) != want {
			t.Errorf("%q: %q", more, p.Warnings)
		}
	}
}
