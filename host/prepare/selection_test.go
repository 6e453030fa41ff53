package prepare_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/prepare"
)

// apply plans and carries out, with the change.
func apply(t *testing.T, root host.Root, opts prepare.Options) prepare.Plan {
	t.Helper()
	p, err := plan(t, root, opts)
	if err != nil {
		t.Fatal(err)
	}
	engine := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{change.Files{Root: root}}}
	if len(p.Files.Pending()) > 0 {
		if _, err := engine.Apply(context.Background(), change.Work{Command: "host prepare", Change: change.Files{Root: root}.New(p.Files)}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func contractOf(t *testing.T, root host.Root) prepare.Contract {
	t.Helper()
	c, err := prepare.ReadContract(root)
	if err != nil || c == nil {
		t.Fatalf("%v, %v", c, err)
	}
	return *c
}

func addresses(functions []prepare.Function) string {
	var words []string
	for _, f := range functions {
		words = append(words, f.Address.String())
	}
	return strings.Join(words, " ")
}

const firstCard, secondCard, bothCards = "0000:01:00.0 0000:01:00.1", "0000:02:00.0 0000:02:00.1", "0000:01:00.0 0000:01:00.1 0000:02:00.0 0000:02:00.1"

// TestSelect: what each way of naming functions selects, without a record and with one of the
// first card.
func TestSelect(t *testing.T) {
	for _, test := range []struct {
		name              string
		opts              func(*testing.T) prepare.Options
		without, recorded string
	}{
		{"nothing", func(*testing.T) prepare.Options { return prepare.Options{} }, bothCards, firstCard},
		{"--device", func(t *testing.T) prepare.Options { return prepare.Options{Add: selectors(t, "0000:02:00.0")} }, secondCard, bothCards},
		{"--vendor", func(*testing.T) prepare.Options { return prepare.Options{Vendors: []pci.ID{pci.NVIDIA}} }, bothCards, bothCards},
		{"--only another", func(t *testing.T) prepare.Options { return prepare.Options{Only: selectors(t, "0000:02:00.0")} }, secondCard, secondCard},
		{"--only the same", func(t *testing.T) prepare.Options { return prepare.Options{Only: selectors(t, "0000:01:00.0")} }, firstCard, firstCard},
		{"--only a product", func(t *testing.T) prepare.Options { return prepare.Options{Only: selectors(t, "10de:11b4")} }, bothCards, bothCards},
		{"--remove", func(t *testing.T) prepare.Options { return prepare.Options{Remove: selectors(t, "0000:01:00.0")} }, secondCard, "nothing is selected"},
		{"--device and --remove", func(t *testing.T) prepare.Options {
			return prepare.Options{Add: selectors(t, "10de:11b4"), Remove: selectors(t, "0000:01:00.0")}
		}, secondCard, secondCard},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, recorded := range []bool{false, true} {
				root := hosttest.Lay(t, node{cpu: "GenuineIntel"}.archive())
				want := test.without
				if recorded {
					apply(t, root, prepare.Options{Add: selectors(t, "0000:01:00.0")})
					want = test.recorded
				}
				p, err := plan(t, root, test.opts(t))
				got := addresses(p.Functions)
				if err != nil {
					got = err.Error()
				}
				if got != want {
					t.Errorf("recorded %v: %s, want %s", recorded, got, want)
				}
			}
		})
	}
}

// TestOnlyReturns: what --only does not name is returned to the host, though it has gone or
// has become another function, and what was allowed for it is not allowed any more.
func TestOnlyReturns(t *testing.T) {
	root := hosttest.Lay(t, node{cpu: "GenuineIntel", cardGroup: 11}.archive())
	nic, _ := pci.ParseAddress("0000:04:00.0")
	apply(t, root, prepare.Options{Allow: []pci.Address{nic}})
	for _, f := range []string{"0", "1"} {
		if err := os.WriteFile(root.Path("sys/bus/pci/devices/0000:02:00."+f+"/device"), []byte("0x1bb1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, root, prepare.Options{Only: selectors(t, "0000:01:00.0")})
	c := contractOf(t, root)
	if addresses(c.Functions) != firstCard || len(c.Allowed) > 0 {
		t.Errorf("%s, allowed %v", addresses(c.Functions), c.Allowed)
	}
	if _, err := plan(t, root, prepare.Options{Only: selectors(t, "0000:02:00.0")}); err == nil || !strings.Contains(err.Error(), "0000:04:00.0: shares IOMMU group 11") {
		t.Errorf("%v", err)
	}
	if _, err := plan(t, root, prepare.Options{Only: selectors(t, "0000:99:00.0")}); !errors.Is(err, prepare.ErrNoDevice) {
		t.Errorf("%v", err)
	}
}

// TestRemoveForgets: what was allowed for a removed function is refused again.
func TestRemoveForgets(t *testing.T) {
	root := hosttest.Lay(t, node{cpu: "GenuineIntel", cardGroup: 11}.archive())
	nic, _ := pci.ParseAddress("0000:04:00.0")
	apply(t, root, prepare.Options{Allow: []pci.Address{nic}})
	apply(t, root, prepare.Options{Remove: selectors(t, "0000:02:00.0")})
	if c := contractOf(t, root); addresses(c.Functions) != firstCard || len(c.Allowed) > 0 {
		t.Errorf("%s, allowed %v", addresses(c.Functions), c.Allowed)
	}
	if _, err := plan(t, root, prepare.Options{Add: selectors(t, "0000:02:00.0")}); err == nil || !strings.Contains(err.Error(), "0000:04:00.0: shares IOMMU group 11") {
		t.Errorf("%v", err)
	}
}

// TestSuggestRenumbered: recorded functions that have other addresses now are suggested in place of
// those that have changed, unless there are more identical devices than that.
func TestSuggestRenumbered(t *testing.T) {
	for _, test := range []struct {
		name     string
		recorded prepare.Options
		moves    map[string]string
		want     []string
	}{
		{"all", prepare.Options{}, map[string]string{"01": "05", "02": "06"}, []string{"select identical devices at other addresses: 0000:05:00.0 0000:06:00.0", "return all functions to the host: "}},
		{"one", prepare.Options{}, map[string]string{"02": "06"}, []string{"select identical devices at other addresses: 0000:01:00.0 0000:06:00.0", "leave out what has changed: 0000:01:00.0"}},
		{"one of two that are identical", prepare.Options{Add: selectors(t, "0000:01:00.0")}, map[string]string{"01": "05", "02": "06"}, []string{"return all functions to the host: "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, node{cpu: "GenuineIntel"}.archive())
			apply(t, root, test.recorded)
			for from, to := range test.moves {
				for _, f := range []string{"0", "1"} {
					at := "sys/bus/pci/devices/0000:"
					if err := os.Rename(root.Path(at+from+":00."+f), root.Path(at+to+":00."+f)); err != nil {
						t.Fatal(err)
					}
				}
			}
			_, err := plan(t, root, prepare.Options{})
			var refused *prepare.Refused
			if !errors.As(err, &refused) {
				t.Fatal(err)
			}
			var got []string
			for _, w := range refused.Ways {
				var words []string
				for _, x := range w.Options.Only {
					words = append(words, x.String())
				}
				got = append(got, w.Purpose+": "+strings.Join(words, " "))
				if _, err := plan(t, root, w.Options); err != nil {
					t.Errorf("%s: %v", w.Purpose, err)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestReplace: a function that has become another one is selected as what it is now if it is
// removed and added by the same name.
func TestReplace(t *testing.T) {
	root := hosttest.Lay(t, node{cpu: "GenuineIntel"}.archive())
	apply(t, root, prepare.Options{})
	if err := os.WriteFile(root.Path("sys/bus/pci/devices/0000:02:00.0/device"), []byte("0x1bb1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := plan(t, root, prepare.Options{Remove: selectors(t, "0000:02:00.0"), Add: selectors(t, "0000:02:00.0")})
	if err != nil || addresses(p.Functions) != bothCards {
		t.Errorf("%v, %v", p.Functions, err)
	}
}

// TestNone: of each distribution everything goes that host prepare has added, but for the
// journal, and conflicting arguments that were replaced do not come back. Planned again there
// is nothing to do.
func TestNone(t *testing.T) {
	for _, distro := range slices.Sorted(maps.Keys(distributions)) {
		for _, cpu := range []string{"GenuineIntel", "AuthenticAMD", "0x41"} {
			for _, builtin := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s-%s-%v", distro, cpu, builtin), func(t *testing.T) {
					t.Parallel()
					root := hosttest.Lay(t, node{distro: distro, cpu: cpu, builtin: builtin, more: "-- etc/modprobe.d/vfio.conf --\noptions vfio-pci ids=1234:5678\n"}.archive())
					first := tree(t, root)
					if p := apply(t, root, prepare.Options{None: true}); len(p.Files.Pending()) > 0 || p.Menu || p.Initramfs {
						t.Errorf("nothing is prepared, and yet: %v", p.Files.Pending())
					}
					apply(t, root, prepare.Options{Unsafe: true})
					p := apply(t, root, prepare.Options{None: true})
					if len(p.Functions) > 0 || !p.Initramfs || len(p.Warnings) > 1 { // of /proc/mounts
						t.Errorf("%v, %q", p.Functions, p.Warnings)
					}
					last := tree(t, root)
					for name := range last {
						if _, ok := first[name]; !ok && strings.HasPrefix(last[name], "d") {
							delete(last, name) // folders remain
						}
					}
					for name, text := range first {
						for _, conflict := range []string{" iommu=nopt", " intel_iommu=off", " iommu=soft"} {
							if cpu == "0x41" || cpu == "AuthenticAMD" && conflict == " intel_iommu=off" || strings.HasSuffix(name, "default/grub") {
								continue
							}
							text = strings.ReplaceAll(text, conflict, "")
						}
						first[name] = text
					}
					if diff := cmp.Diff(first, last, cmp.Transformer("grubenv", withoutPadding)); diff != "" {
						t.Errorf("(-first +last):\n%s", diff)
					}
					if p, err := plan(t, root, prepare.Options{None: true}); err != nil || len(p.Files.Pending()) > 0 {
						t.Errorf("again: %v, %v", p.Files.Pending(), err)
					}
					if c, err := prepare.ReadContract(root); c != nil || err != nil {
						t.Errorf("%v, %v", c, err)
					}
				})
			}
		}
	}
}

// withoutPadding takes what fills a grubenv out of a file.
func withoutPadding(text string) string {
	return strings.TrimRight(strings.ReplaceAll(text, " \n#", "\n#"), "#\n ")
}

// TestNoneKeepsArguments: arguments that the operator had before remain, and without a journal
// all are left in place with a warning.
func TestNoneKeepsArguments(t *testing.T) {
	const entry = "boot/loader/entries/f00d-6.1.0-28-amd64.conf"
	lay := func(t *testing.T) host.Root {
		distro := node{distro: "rhel9", cpu: "GenuineIntel"}.archive()
		return hosttest.Lay(t, strings.Replace(distro, "ro rhgb quiet $tuned_params", "ro iommu=pt vfio-pci.ids=1234:5678 rhgb quiet $tuned_params", 1))
	}
	options := func(t *testing.T, root host.Root) string {
		t.Helper()
		text, err := os.ReadFile(root.Path(entry))
		if err != nil {
			t.Fatal(err)
		}
		_, line, _ := strings.Cut(string(text), "\noptions ")
		return strings.TrimSuffix(line, "\n")
	}
	root := lay(t)
	before := strings.Fields(options(t, root))
	apply(t, root, prepare.Options{})
	if now := options(t, root); !strings.Contains(now, "intel_iommu=on") || !strings.Contains(now, "1234:5678,10de:11b4") {
		t.Fatal(now)
	}
	if p := apply(t, root, prepare.Options{None: true}); len(p.Warnings) > 1 {
		t.Errorf("%q", p.Warnings)
	}
	after := strings.Fields(options(t, root))
	slices.Sort(before)
	slices.Sort(after)
	if !slices.Equal(before, after) {
		t.Errorf("%q, want %q", after, before)
	}

	// Changed by others since: the lines that the change replaced tell.
	root = lay(t)
	apply(t, root, prepare.Options{})
	text, _ := os.ReadFile(root.Path(entry))
	if err := os.WriteFile(root.Path(entry), append(text, "# again\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	if p := apply(t, root, prepare.Options{None: true}); len(p.Warnings) > 1 {
		t.Errorf("%q", p.Warnings)
	}
	if now := options(t, root); !strings.Contains(now, " iommu=pt ") || strings.Contains(now, "intel_iommu") || !strings.Contains(now, "vfio-pci.ids=1234:5678") {
		t.Error(now)
	}

	// Without the journal what was there before is unknown.
	root = lay(t)
	apply(t, root, prepare.Options{})
	if err := os.RemoveAll(root.Path("/var/lib/gpustack/journal")); err != nil {
		t.Fatal(err)
	}
	p := apply(t, root, prepare.Options{None: true})
	if now := options(t, root); !strings.Contains(now, "intel_iommu=on") || !strings.Contains(now, "vfio-pci.ids=1234:5678") || strings.Contains(now, "10de") {
		t.Error(now)
	}
	const warning = "kernel arguments left in place, since the journal does not show whether they were there before: intel_iommu=on iommu=pt; to remove them: grubby --update-kernel=ALL --remove-args=\"intel_iommu=on iommu=pt\""
	if !slices.Contains(p.Warnings, warning) {
		t.Errorf("%q", p.Warnings)
	}
}

// TestNoneKeepsIDs: ids that the operator had before remain, though the selected functions have
// them too.
func TestNoneKeepsIDs(t *testing.T) {
	for _, distro := range []string{"rhel9", "debian-systemd-boot", "fedora-systemd-boot"} {
		archive := node{distro: distro, cpu: "GenuineIntel"}.archive()
		const had = "vfio-pci.ids=10de:11b4,1234:5678"
		root := hosttest.Lay(t, strings.ReplaceAll(strings.ReplaceAll(archive, "ro rhgb", "ro "+had+" rhgb"), "ro quiet", "ro "+had+" quiet"))
		apply(t, root, prepare.Options{})
		apply(t, root, prepare.Options{None: true})
		n, err := prepare.Observe(root, guard.Running{})
		if err != nil {
			t.Fatal(err)
		}
		if args := n.Loader.Args().String(); !strings.Contains(args+" ", had+" ") || strings.Contains(args, "iommu") {
			t.Errorf("%s: %s", distro, args)
		}
	}
}

// TestNoneLater: arguments are removed although, since host prepare, GRUB has rewritten its
// environment, other kernels have replaced the first, or the operator has added arguments
// between an earlier --none and host prepare.
func TestNoneLater(t *testing.T) {
	const entries, env = "boot/loader/entries/", "boot/grub2/grubenv"
	edit := func(t *testing.T, root host.Root, name, old, text string) {
		t.Helper()
		data, err := os.ReadFile(root.Path(name))
		if err != nil || !strings.Contains(string(data), old) {
			t.Fatalf("%v: %s", err, data)
		}
		if err := os.WriteFile(root.Path(name), []byte(strings.Replace(string(data), old, text, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, distro  string
		before, after func(*testing.T, host.Root)
		file, line    string
	}{
		{"booted since", "rhel8", nil, func(t *testing.T, root host.Root) {
			edit(t, root, env, "saved_entry", "boot_success=1\nsaved_entry")
		}, env, "kernelopts=root=/dev/mapper/rhel-root ro crashkernel=auto rhgb quiet"},
		{"another kernel", "rhel9", nil, func(t *testing.T, root host.Root) {
			if err := os.Rename(root.Path(entries+"f00d-6.1.0-28-amd64.conf"), root.Path(entries+"f00d-6.1.0-29-amd64.conf")); err != nil {
				t.Fatal(err)
			}
		}, entries + "f00d-6.1.0-29-amd64.conf", "options root=/dev/mapper/rhel-root ro rhgb quiet $tuned_params"},
		{"all of them the operator's own", "rhel9", func(t *testing.T, root host.Root) {
			edit(t, root, entries+"f00d-6.1.0-28-amd64.conf", "ro rhgb", "ro intel_iommu=on iommu=pt rhgb")
			edit(t, root, "etc/default/grub", "rhgb", "intel_iommu=on iommu=pt rhgb")
		}, func(*testing.T, host.Root) {}, entries + "f00d-6.1.0-28-amd64.conf", "options root=/dev/mapper/rhel-root ro intel_iommu=on iommu=pt rhgb quiet $tuned_params"},
		{"the operator's own", "rhel9", func(t *testing.T, root host.Root) {
			apply(t, root, prepare.Options{})
			apply(t, root, prepare.Options{None: true})
			edit(t, root, entries+"f00d-6.1.0-28-amd64.conf", "ro rhgb", "ro iommu=pt rhgb")
		}, func(*testing.T, host.Root) {}, entries + "f00d-6.1.0-28-amd64.conf", "options root=/dev/mapper/rhel-root ro iommu=pt rhgb quiet $tuned_params"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, node{distro: test.distro, cpu: "GenuineIntel"}.archive())
			if test.before != nil {
				test.before(t, root)
			}
			apply(t, root, prepare.Options{})
			if !strings.HasPrefix(test.name, "all") {
				apply(t, root, prepare.Options{Unsafe: true})
			}
			test.after(t, root)
			p := apply(t, root, prepare.Options{None: true})
			data, err := os.ReadFile(root.Path(test.file))
			is := func(line string) bool { return strings.TrimRight(line, " ") == test.line }
			if err != nil || !slices.ContainsFunc(strings.Split(string(data), "\n"), is) {
				t.Errorf("%v: %s", err, data)
			}
			if len(p.Warnings) > 1 { // of /proc/mounts
				t.Errorf("%q", p.Warnings)
			}
		})
	}
}

// TestAbsent: only a machine that shows all of its functions has none of them for certain.
func TestAbsent(t *testing.T) {
	text := strings.ReplaceAll(node{cpu: "GenuineIntel"}.archive(), "0x10de", "0x1002")
	for _, test := range []struct {
		name, text string
		opts       prepare.Options
		absent     bool
	}{
		{"no GPU of NVIDIA's", text, prepare.Options{}, true},
		{"one", node{cpu: "GenuineIntel"}.archive(), prepare.Options{}, false},
		{"the device named", text, prepare.Options{Add: selectors(t, "1002:11b4")}, false},
		{"another", text, prepare.Options{Add: selectors(t, "0000:99:00.0")}, true},
		{"one of two", text, prepare.Options{Add: selectors(t, "0000:99:00.0", "1002:11b4")}, false},
		{"the only one named", text, prepare.Options{Only: selectors(t, "0000:99:00.0")}, true},
		{"a vendor", text, prepare.Options{Vendors: []pci.ID{0x1234}}, true},
		{"a vendor that cannot be read", strings.Replace(text, "0x1002", "?", 1), prepare.Options{}, false},
		{"no boot loader either", strings.ReplaceAll(text, "etc/default/grub", "etc/default/x"), prepare.Options{}, true},
		{"a record that cannot be read", text + "-- var/lib/gpustack/contract.json --\n{\n", prepare.Options{}, false},
	} {
		n, _ := prepare.Observe(hosttest.Lay(t, test.text), guard.Running{})
		if err := n.Absent(test.opts); (err != nil) != test.absent || err != nil && !errors.Is(err, prepare.ErrNoDevice) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if err := (prepare.Node{}).Absent(prepare.Options{}); err != nil {
		t.Errorf("nothing was read: %v", err)
	}
}

// TestNVSwitch: which functions go, what is recorded of the choice and what the plan says.
func TestNVSwitch(t *testing.T) {
	const gpus, switches = "0000:21:00.0 0000:22:00.0", "0000:23:00.0 0000:24:00.0"
	const host, guest = prepare.SwitchesToHost, prepare.SwitchesToGuest
	choose := func(choice prepare.NVSwitch, words ...string) prepare.Options {
		return prepare.Options{Add: selectors(t, words...), NVSwitch: choice}
	}
	for _, test := range []struct {
		name        string
		first, then prepare.Options
		want        string
		recorded    prepare.NVSwitch
		warns       string
	}{
		{"host", choose(host, "10de:20b2"), prepare.Options{}, gpus, host, "nvidia-fabricmanager must be installed, enabled and have FABRIC_MODE=1"},
		{"guest", choose(guest, "0000:21:00.0"), prepare.Options{}, gpus + " " + switches, guest,
			`device_spec = {"vendor_id": "10de", "product_id": "1af1"}; alias = {"name": "NVSwitch", "vendor_id": "10de", "product_id": "1af1", "device_type": "type-PCI"}`},
		{"the host gets them after all", choose(guest, "10de:20b2"), prepare.Options{NVSwitch: host}, gpus, host, "a partition must be activated before a guest with several GPUs starts, which Nova does not do"},
		{"the guest gets them after all", choose(host, "0000:21:00.0"), prepare.Options{NVSwitch: guest}, gpus + " " + switches, guest, "Nova offers the NVSwitches only"},
		{"all named, without a choice", choose("", "10de:20b2", "10de:1af1"), prepare.Options{}, gpus + " " + switches, "", "Nova offers the NVSwitches only"},
		{"a GPU without NVLink", choose("", "0000:01:00.0"), prepare.Options{}, firstCard, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, board())
			apply(t, root, test.first)
			p := apply(t, root, test.then)
			c := contractOf(t, root)
			if addresses(c.Functions) != test.want || c.NVSwitch != test.recorded {
				t.Errorf("%s, %q", addresses(c.Functions), c.NVSwitch)
			}
			if !strings.Contains(strings.Join(p.Warnings, "\n"), test.warns) {
				t.Errorf("%q", p.Warnings)
			}
			text, _ := os.ReadFile(root.Path(prepare.ContractFile))
			if strings.Contains(string(text), "nvswitch") != (test.recorded != "") {
				t.Errorf("%s", text)
			}
			if p, err := plan(t, root, prepare.Options{}); err != nil || len(p.Files.Pending()) > 0 {
				t.Errorf("again: %v, %v", p.Files.Pending(), err)
			}
		})
	}

	// NVIDIA's driver serves the switches that remain with the host.
	root := hosttest.Lay(t, strings.Replace(board(), "kernel/nouveau.ko.xz:\n", "kernel/nouveau.ko.xz:\nkernel/nvidia.ko.xz:\nkernel/nvidia-uvm.ko.xz:\n", 1))
	for choice, blacklisted := range map[prepare.NVSwitch]bool{host: false, guest: true} {
		p, err := plan(t, root, prepare.Options{NVSwitch: choice})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, c := range p.Files {
			if c.After != nil {
				text += string(c.After.Content)
			}
		}
		if strings.Contains(text, "echo 'blacklist nvidia'\n") != blacklisted || strings.Contains(text, "echo 'blacklist nvidia_uvm'\n") != blacklisted || !strings.Contains(text, "echo 'blacklist nouveau'\n") {
			t.Errorf("%s: %s", choice, text)
		}
	}
}

// hgxB200 is a machine with two GPUs of an HGX B200 board, a ConnectX-7 function that manages
// the NVSwitches, and an adapter with the same ids.
func hgxB200(manager string) string {
	commands, files, _ := strings.Cut(node{cpu: "GenuineIntel"}.archive(), "-- ")
	for address, f := range map[string]struct{ class, vendor, device, group string }{
		"0000:31:00.0": {"030200", "10de", "2901", "31"}, "0000:32:00.0": {"030200", "10de", "2901", "32"},
		"0000:41:00.0": {"020700", "15b3", "1021", "41"}, "0000:42:00.0": {"020700", "15b3", "1021", "42"},
	} {
		at := "sys/bus/pci/devices/" + address
		commands += "symlink " + at + "/iommu_group -> ../../../../kernel/iommu_groups/" + f.group + "\n"
		files += fmt.Sprintf("-- %s/class --\n0x%s\n-- %s/vendor --\n0x%s\n-- %s/device --\n0x%s\n", at, f.class, at, f.vendor, at, f.device)
	}
	data := "\x90\x0f\x00V0\x0cSMDL=" + manager + "x"
	return commands + "base64 sys/bus/pci/devices/0000:41:00.0/vpd\n-- " + files +
		"-- sys/bus/pci/devices/0000:41:00.0/vpd --\n" + base64.StdEncoding.EncodeToString([]byte(data)) + "\n"
}

// TestNVSwitchManagers: functions that manage NVSwitches count as such, are bound by address
// alone, and where they cannot be distinguished from adapters nothing is planned without a choice.
func TestNVSwitchManagers(t *testing.T) {
	const gpus = "0000:31:00.0 0000:32:00.0"
	product := selectors(t, "10de:2901")
	root := hosttest.Lay(t, hgxB200("SW_MNG"))
	if _, err := plan(t, root, prepare.Options{Add: product}); fmt.Sprint(err) != separated(gpus, "0000:41:00.0") {
		t.Errorf("%v", err)
	}
	p, err := plan(t, root, prepare.Options{Add: product, NVSwitch: prepare.SwitchesToHost})
	if err != nil || addresses(p.Functions) != gpus {
		t.Errorf("%s, %v", addresses(p.Functions), err)
	}
	p, err = plan(t, root, prepare.Options{Add: product, NVSwitch: prepare.SwitchesToGuest})
	if err != nil || addresses(p.Functions) != gpus+" 0000:41:00.0" || p.Functions[2].By != prepare.ByAddress {
		t.Errorf("%v, %v", p.Functions, err)
	}
	if !strings.Contains(strings.Join(p.Warnings, "\n"), `device_spec = {"address": "0000:41:00.0"}; alias = {"name": "NVSwitch", "vendor_id": "15b3", "product_id": "1021"`) {
		t.Errorf("%q", p.Warnings)
	}
	// An adapter with the same ids goes by its address too.
	p, err = plan(t, root, prepare.Options{Add: selectors(t, "0000:42:00.0")})
	if err != nil || p.Functions[0].By != prepare.ByAddress {
		t.Errorf("%v, %v", p.Functions, err)
	}

	root = hosttest.Lay(t, hgxB200("SW_MNG"))
	vpd := root.Path("sys/bus/pci/devices/0000:41:00.0/vpd")
	if err := os.WriteFile(vpd, []byte{0x90, 0xff}, 0o644); err != nil { // as unreadable as a closed file
		t.Fatal(err)
	}
	if _, err := plan(t, root, prepare.Options{Add: product}); err == nil || !strings.Contains(err.Error(), "NVSwitches of the selected GPUs may be managed by 0000:41:00.0, whose vital product data cannot be read") {
		t.Errorf("%v", err)
	}
	if _, err := plan(t, root, prepare.Options{Add: selectors(t, "0000:41:00.0")}); err == nil || !strings.Contains(err.Error(), "may manage the NVSwitches of this machine") {
		t.Errorf("%v", err)
	}
	if _, err := plan(t, root, prepare.Options{Add: product, NVSwitch: prepare.SwitchesToHost}); err != nil {
		t.Errorf("%v", err)
	}
}

// TestFabric: GPUs whose NVSwitches remain with the host need NVIDIA's Fabric Manager.
func TestFabric(t *testing.T) {
	const config, unit = "usr/share/nvidia/nvswitch/fabricmanager.cfg", "lib/systemd/system/nvidia-fabricmanager.service"
	const enabled = "etc/systemd/system/multi-user.target.wants/nvidia-fabricmanager.service"
	for _, test := range []struct {
		name   string
		choice prepare.NVSwitch
		files  map[string]string
		status host.Status
		seen   string
	}{
		{"not installed", prepare.SwitchesToHost, nil, host.Fail, "nvidia-fabricmanager.service is not installed"},
		{"not enabled", prepare.SwitchesToHost, map[string]string{unit: "", config: "FABRIC_MODE=1\n"}, host.Fail, "nvidia-fabricmanager.service is not enabled"},
		{"no mode", prepare.SwitchesToHost, map[string]string{unit: "", enabled: "", config: "# FABRIC_MODE=1\n"}, host.Fail, "/usr/share/nvidia/nvswitch/fabricmanager.cfg does not set FABRIC_MODE"},
		{"another mode", prepare.SwitchesToHost, map[string]string{unit: "", enabled: "", config: "FABRIC_MODE=0\n"}, host.Fail, "/usr/share/nvidia/nvswitch/fabricmanager.cfg sets FABRIC_MODE=0"},
		{"all of it", prepare.SwitchesToHost, map[string]string{unit: "", enabled: "", config: "FABRIC_MODE = 1\n"}, host.Pass, "nvidia-fabricmanager.service is enabled in shared NVSwitch mode"},
		{"for a guest", prepare.SwitchesToGuest, nil, host.Pass, "NVSwitches are assigned to guests"},
	} {
		root := hosttest.Lay(t, board())
		apply(t, root, prepare.Options{Add: selectors(t, "10de:20b2"), NVSwitch: test.choice})
		for name, text := range test.files {
			file := root.Path(name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		findings, _ := check(t, root)
		i := slices.IndexFunc(findings, func(f host.Finding) bool { return f.Check == "fabric" })
		if f := findings[i]; f.Status != test.status || f.Seen != test.seen {
			t.Errorf("%s: %s %s", test.name, f.Status, f.Seen)
		}
	}
}
