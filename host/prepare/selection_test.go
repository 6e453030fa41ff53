package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"encoding/base64"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/selection"
)

// apply plans and carries out, with the journal.
func apply(t *testing.T, root host.Root, opts selection.Options) prepare.Plan {
	t.Helper()
	p, err := plan(t, root, opts)
	hosttest.NoError(t, err)
	engine := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{change.Files{Root: root}}}
	if len(p.Files.Pending()) > 0 {
		if _, err := engine.Apply(context.Background(), change.Work{Command: "host prepare", About: &change.Topic{Subject: change.OfGuests}, Change: change.Files{Root: root}.New(p.Files)}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func contractOf(t *testing.T, root host.Root) machine.Contract {
	t.Helper()
	c, err := machine.ReadContract(root)
	if err != nil || c == nil {
		t.Fatalf("%v, %v", c, err)
	}
	return *c
}

func addresses(functions []machine.Function) string {
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
		opts              func(*testing.T) selection.Options
		without, recorded string
	}{
		{"nothing", func(*testing.T) selection.Options { return selection.Options{} }, bothCards, firstCard},
		{"--device", func(t *testing.T) selection.Options {
			return selection.Options{Add: hosttest.Selectors(t, "0000:02:00.0")}
		}, secondCard, bothCards},
		{"--vendor", func(*testing.T) selection.Options { return selection.Options{Vendors: []pci.ID{pci.NVIDIA}} }, bothCards, bothCards},
		{"--only another", func(t *testing.T) selection.Options {
			return selection.Options{Only: hosttest.Selectors(t, "0000:02:00.0")}
		}, secondCard, secondCard},
		{"--only the same", func(t *testing.T) selection.Options {
			return selection.Options{Only: hosttest.Selectors(t, "0000:01:00.0")}
		}, firstCard, firstCard},
		{"--only a product", func(t *testing.T) selection.Options {
			return selection.Options{Only: hosttest.Selectors(t, "10de:11b4")}
		}, bothCards, bothCards},
		{"--remove", func(t *testing.T) selection.Options {
			return selection.Options{Remove: hosttest.Selectors(t, "0000:01:00.0")}
		}, "0000:01:00.0: is not selected", ""},
		{"--device and --remove", func(t *testing.T) selection.Options {
			return selection.Options{Add: hosttest.Selectors(t, "10de:11b4"), Remove: hosttest.Selectors(t, "0000:01:00.0")}
		}, secondCard, secondCard},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, recorded := range []bool{false, true} {
				root := hosttest.Lay(t, node{CPU: "GenuineIntel"}.Archive())
				want := test.without
				if recorded {
					apply(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:01:00.0")})
					want = test.recorded
				}
				p, err := plan(t, root, test.opts(t))
				got := addresses(p.Functions)
				if err != nil {
					got = err.Error()
				}
				hosttest.EqualIn(t, fmt.Sprintf("recorded %v", recorded), want, got)
			}
		})
	}
}

// TestOnlyReturns: what --only does not name is returned to the host, though it has gone or
// has become another function, and what was allowed for it is not allowed any more.
func TestOnlyReturns(t *testing.T) {
	root := hosttest.Lay(t, node{CPU: "GenuineIntel", CardGroup: 11, More: inMemory + withSystemd}.Archive())
	nic, _ := pci.ParseAddress("0000:04:00.0")
	apply(t, root, selection.Options{Allow: []pci.Address{nic}})
	for _, f := range []string{"0", "1"} {
		hosttest.NoError(t, os.WriteFile(root.Path("sys/bus/pci/devices/0000:02:00."+f+"/device"), []byte("0x1bb1\n"), 0o644))
	}
	apply(t, root, selection.Options{Only: hosttest.Selectors(t, "0000:01:00.0")})
	c := contractOf(t, root)
	if addresses(c.Functions) != firstCard || len(c.Allowed) > 0 {
		t.Errorf("%s, allowed %v", addresses(c.Functions), c.Allowed)
	}
	if _, err := plan(t, root, selection.Options{Only: hosttest.Selectors(t, "0000:02:00.0")}); err == nil ||
		!strings.Contains(err.Error(), "0000:04:00.0: shares IOMMU group 11") {
		t.Errorf("%v", err)
	}
	if _, err := plan(t, root, selection.Options{Only: hosttest.Selectors(t, "0000:99:00.0")}); !errors.Is(err, selection.ErrNoDevice) {
		t.Errorf("%v", err)
	}
}

// TestRemoveLast: without the last device it is as with --none.
func TestRemoveLast(t *testing.T) {
	root := hosttest.Lay(t, node{CPU: "GenuineIntel"}.Archive())
	apply(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:01:00.0")})
	removed, err := plan(t, root, selection.Options{Remove: hosttest.Selectors(t, "0000:01:00.0")})
	none, noneErr := plan(t, root, selection.Options{None: true})
	text := func(p prepare.Plan) (text string) {
		for _, c := range p.Files.Pending() {
			text += fmt.Sprintln(c.Name, c.Action(), c.Diff())
		}
		return text + fmt.Sprint(p.Programs)
	}
	if err != nil || noneErr != nil || !removed.None || text(removed) != text(none) {
		t.Errorf("%v, %v\n%s\n%s", err, noneErr, text(removed), text(none))
	}
}

// TestRemoveForgets: what was allowed for a removed function is refused again.
func TestRemoveForgets(t *testing.T) {
	root := hosttest.Lay(t, node{CPU: "GenuineIntel", CardGroup: 11, More: inMemory + withSystemd}.Archive())
	nic, _ := pci.ParseAddress("0000:04:00.0")
	apply(t, root, selection.Options{Allow: []pci.Address{nic}})
	apply(t, root, selection.Options{Remove: hosttest.Selectors(t, "0000:02:00.0")})
	if c := contractOf(t, root); addresses(c.Functions) != firstCard || len(c.Allowed) > 0 {
		t.Errorf("%s, allowed %v", addresses(c.Functions), c.Allowed)
	}
	if _, err := plan(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:02:00.0")}); err == nil ||
		!strings.Contains(err.Error(), "0000:04:00.0: shares IOMMU group 11") {
		t.Errorf("%v", err)
	}
}

// TestWithoutChanged: what has changed is left out, or all is returned, and either is accepted.
func TestWithoutChanged(t *testing.T) {
	for name, test := range map[string]struct{ cards, want string }{
		"one":  {"02", "leave out what has changed: 0000:01:00.0"},
		"both": {"01 02", "return all functions to the host: "},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, node{CPU: "GenuineIntel"}.Archive())
			apply(t, root, selection.Options{})
			for card := range strings.FieldsSeq(test.cards) {
				hosttest.NoError(t, os.RemoveAll(root.Path("sys/bus/pci/devices/0000:"+card+":00.0")))
			}
			_, err := plan(t, root, selection.Options{})
			hosttest.Equal(t, []string{test.want}, accepted(t, root, err))
		})
	}
}

// accepted returns the other options that an error of a plan names, each of which must be accepted
// on the same machine.
func accepted(t *testing.T, root host.Root, err error) (ways []string) {
	t.Helper()
	var refused *selection.Refused
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	for _, w := range refused.Ways {
		var words []string
		for _, x := range append(w.Options.Add, w.Options.Only...) {
			words = append(words, x.String())
		}
		ways = append(ways, w.Purpose+": "+strings.Join(words, " "))
		if _, err := plan(t, root, w.Options); err != nil {
			t.Errorf("%s: %v", w.Purpose, err)
		}
	}
	return ways
}

// TestReplace: a function that has become another one is selected as what it is now if it is
// removed and added by the same name.
func TestReplace(t *testing.T) {
	root := hosttest.Lay(t, node{CPU: "GenuineIntel"}.Archive())
	apply(t, root, selection.Options{})
	hosttest.NoError(t, os.WriteFile(root.Path("sys/bus/pci/devices/0000:02:00.0/device"), []byte("0x1bb1\n"), 0o644))
	p, err := plan(t, root, selection.Options{Remove: hosttest.Selectors(t, "0000:02:00.0"), Add: hosttest.Selectors(t, "0000:02:00.0")})
	if err != nil || addresses(p.Functions) != bothCards {
		t.Errorf("%v, %v", p.Functions, err)
	}
}

// TestNone: of each distribution everything goes that host prepare has added, but for the
// journal, and conflicting arguments that were replaced do not come back. Planned again there
// is nothing to do.
func TestNone(t *testing.T) {
	for _, distro := range slices.Sorted(maps.Keys(hosttest.Distributions)) {
		for _, cpu := range []string{"GenuineIntel", "AuthenticAMD", "0x41"} {
			for _, builtin := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s-%s-%v", distro, cpu, builtin), func(t *testing.T) {
					t.Parallel()
					root := hosttest.Lay(t, node{Distro: distro, CPU: cpu, Builtin: builtin,
						More: "-- etc/modprobe.d/vfio.conf --\noptions vfio-pci ids=1234:5678\n"}.Archive())
					first := tree(t, root)
					if p := apply(t, root, selection.Options{None: true}); len(p.Files.Pending()) > 0 || p.Menu || p.Initramfs {
						t.Errorf("nothing is prepared, and yet: %v", p.Files.Pending())
					}
					apply(t, root, selection.Options{Unsafe: true})
					p := apply(t, root, selection.Options{None: true})
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
					hosttest.EqualIn(t, "first and last", first, last, cmp.Transformer("grubenv", withoutPadding))
					if p, err := plan(t, root, selection.Options{None: true}); err != nil || len(p.Files.Pending()) > 0 {
						t.Errorf("again: %v, %v", p.Files.Pending(), err)
					}
					if c, err := machine.ReadContract(root); c != nil || err != nil {
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
		distro := node{Distro: "rhel9", CPU: "GenuineIntel"}.Archive()
		return hosttest.Lay(t, strings.Replace(distro, "ro rhgb quiet $tuned_params", "ro iommu=pt vfio-pci.ids=1234:5678 rhgb quiet $tuned_params", 1))
	}
	options := func(t *testing.T, root host.Root) string {
		t.Helper()
		text := hosttest.Read(t, root.Path(entry))
		_, line, _ := strings.Cut(text, "\noptions ")
		return strings.TrimSuffix(line, "\n")
	}
	root := lay(t)
	before := strings.Fields(options(t, root))
	apply(t, root, selection.Options{})
	if now := options(t, root); !strings.Contains(now, "intel_iommu=on") || !strings.Contains(now, "1234:5678,10de:11b4") {
		t.Fatal(now)
	}
	if p := apply(t, root, selection.Options{None: true}); len(p.Warnings) > 1 {
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
	apply(t, root, selection.Options{})
	text, _ := os.ReadFile(root.Path(entry))
	hosttest.NoError(t, os.WriteFile(root.Path(entry), append(text, "# again\n"...), 0o644))
	if p := apply(t, root, selection.Options{None: true}); len(p.Warnings) > 1 {
		t.Errorf("%q", p.Warnings)
	}
	if now := options(t, root); !strings.Contains(now, " iommu=pt ") || strings.Contains(now, "intel_iommu") || !strings.Contains(now, "vfio-pci.ids=1234:5678") {
		t.Error(now)
	}

	// Without the journal what was there before is unknown.
	root = lay(t)
	apply(t, root, selection.Options{})
	hosttest.NoError(t, os.RemoveAll(root.Path("/var/lib/gpustack/journal")))
	p := apply(t, root, selection.Options{None: true})
	if now := options(t, root); !strings.Contains(now, "intel_iommu=on") || !strings.Contains(now, "vfio-pci.ids=1234:5678") || strings.Contains(now, "10de") {
		t.Error(now)
	}
	const warning = "kernel arguments left in place, since the journal does not show whether they were there before: intel_iommu=on iommu=pt; to remove them: grubby --update-kernel=ALL --remove-args=\"intel_iommu=on iommu=pt\""
	if !slices.Contains(p.Warnings, warning) {
		t.Errorf("%q", p.Warnings)
	}
}

// TestNoneLeavesNoFolder: --none removes the folder of dracut's module too, and its undo makes it
// again.
func TestNoneLeavesNoFolder(t *testing.T) {
	root := hosttest.Lay(t, node{Distro: "rhel9", CPU: "GenuineIntel"}.Archive())
	const dir = "/usr/lib/dracut/modules.d/99gpustack"
	names := func() []string {
		t.Helper()
		names, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			t.Fatal(err)
		}
		return names
	}
	exists := func() bool {
		_, err := os.Stat(root.Path(dir))
		return err == nil
	}
	apply(t, root, selection.Options{})
	prepared := names()
	if len(prepared) != 2 {
		t.Fatalf("%q", prepared)
	}
	hosttest.NoError(t, os.WriteFile(root.Path(dir+"/of-others"), nil, 0o644))
	apply(t, root, selection.Options{None: true})
	if got := names(); !slices.Equal(got, []string{"of-others"}) {
		t.Fatalf("%q", got)
	}
	hosttest.NoError(t, os.Remove(root.Path(dir+"/of-others")))
	apply(t, root, selection.Options{})
	apply(t, root, selection.Options{None: true})
	if exists() {
		t.Error("the folder remains")
	}
	engine := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{change.Files{Root: root}}}
	entries, err := change.List(root)
	hosttest.NoError(t, err)
	if _, err := engine.Undo(context.Background(), entries[len(entries)-1].ID); err != nil {
		t.Fatal(err)
	}
	if got := names(); !slices.Equal(got, prepared) {
		t.Errorf("undone: %q", got)
	}
}

// TestNoneKeepsIDs: ids that the operator had before remain, though the selected functions have
// them too.
func TestNoneKeepsIDs(t *testing.T) {
	for _, distro := range []string{"rhel9", "debian-systemd-boot", "fedora-systemd-boot"} {
		archive := node{Distro: distro, CPU: "GenuineIntel"}.Archive()
		const had = "vfio-pci.ids=10de:11b4,1234:5678"
		root := hosttest.Lay(t, strings.ReplaceAll(strings.ReplaceAll(archive, "ro rhgb", "ro "+had+" rhgb"), "ro quiet", "ro "+had+" quiet"))
		apply(t, root, selection.Options{})
		apply(t, root, selection.Options{None: true})
		if args := observe(root).Loader.Value.Args().String(); !strings.Contains(args+" ", had+" ") || strings.Contains(args, "iommu") {
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
		hosttest.NoError(t, os.WriteFile(root.Path(name), []byte(strings.Replace(string(data), old, text, 1)), 0o644))
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
			hosttest.NoError(t, os.Rename(root.Path(entries+"f00d-6.1.0-28-amd64.conf"), root.Path(entries+"f00d-6.1.0-29-amd64.conf")))
		}, entries + "f00d-6.1.0-29-amd64.conf", "options root=/dev/mapper/rhel-root ro rhgb quiet $tuned_params"},
		{"all of them the operator's own", "rhel9", func(t *testing.T, root host.Root) {
			edit(t, root, entries+"f00d-6.1.0-28-amd64.conf", "ro rhgb", "ro intel_iommu=on iommu=pt rhgb")
			edit(t, root, "etc/default/grub", "rhgb", "intel_iommu=on iommu=pt rhgb")
		}, func(*testing.T, host.Root) {}, entries + "f00d-6.1.0-28-amd64.conf",
			"options root=/dev/mapper/rhel-root ro intel_iommu=on iommu=pt rhgb quiet $tuned_params"},
		{"the operator's own", "rhel9", func(t *testing.T, root host.Root) {
			apply(t, root, selection.Options{})
			apply(t, root, selection.Options{None: true})
			edit(t, root, entries+"f00d-6.1.0-28-amd64.conf", "ro rhgb", "ro iommu=pt rhgb")
		}, func(*testing.T, host.Root) {}, entries + "f00d-6.1.0-28-amd64.conf", "options root=/dev/mapper/rhel-root ro iommu=pt rhgb quiet $tuned_params"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, node{Distro: test.distro, CPU: "GenuineIntel"}.Archive())
			if test.before != nil {
				test.before(t, root)
			}
			apply(t, root, selection.Options{})
			if !strings.HasPrefix(test.name, "all") {
				apply(t, root, selection.Options{Unsafe: true})
			}
			test.after(t, root)
			p := apply(t, root, selection.Options{None: true})
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
	text := strings.ReplaceAll(node{CPU: "GenuineIntel"}.Archive(), "pci:v000010DE", "pci:v00001002")
	for _, test := range []struct {
		name, text string
		opts       selection.Options
		absent     bool
	}{
		{"no GPU of NVIDIA's", text, selection.Options{}, true},
		{"one", node{CPU: "GenuineIntel"}.Archive(), selection.Options{}, false},
		{"the device named", text, selection.Options{Add: hosttest.Selectors(t, "1002:11b4")}, false},
		{"another", text, selection.Options{Add: hosttest.Selectors(t, "0000:99:00.0")}, true},
		{"one of two", text, selection.Options{Add: hosttest.Selectors(t, "0000:99:00.0", "1002:11b4")}, false},
		{"the only one named", text, selection.Options{Only: hosttest.Selectors(t, "0000:99:00.0")}, true},
		{"a vendor", text, selection.Options{Vendors: []pci.ID{0x1234}}, true},
		{"a vendor that cannot be read", strings.Replace(text, "pci:v00001002", "pci:v", 1) + "-- sys/bus/pci/devices/0000:01:00.0/vendor --\n?\n", selection.Options{}, false},
		{"no boot loader either", strings.ReplaceAll(text, "etc/default/grub", "etc/default/x"), selection.Options{}, true},
		{"a record that cannot be read", text + "-- var/lib/gpustack/contract.json --\n{\n", selection.Options{}, false},
	} {
		if err := selection.Absent(observe(hosttest.Lay(t, test.text)), test.opts); (err != nil) != test.absent || err != nil &&
			!errors.Is(err, selection.ErrNoDevice) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if err := selection.Absent(machine.Machine{Devices: machine.Look[pci.Devices]{Err: os.ErrNotExist}}, selection.Options{}); err != nil {
		t.Errorf("nothing was read: %v", err)
	}
}

// TestNVSwitch: which functions go, what is recorded of the choice and what the plan says.
func TestNVSwitch(t *testing.T) {
	const gpus, switches = "0000:21:00.0 0000:22:00.0", "0000:23:00.0 0000:24:00.0"
	const host, guest = machine.SwitchesToHost, machine.SwitchesToGuest
	choose := func(choice machine.NVSwitch, words ...string) selection.Options {
		return selection.Options{Add: hosttest.Selectors(t, words...), NVSwitch: choice}
	}
	for _, test := range []struct {
		name        string
		first, then selection.Options
		want        string
		recorded    machine.NVSwitch
		warns       string
	}{
		{"host", choose(host, "10de:20b2"), selection.Options{}, gpus, host, "nvidia-fabricmanager must be installed, enabled and have FABRIC_MODE=1"},
		{"guest", choose(guest, "0000:21:00.0"), selection.Options{}, gpus + " " + switches, guest,
			"request all NVSwitches of the board in flavors with all of its GPUs: GPU-ALIAS:2,NVSWITCH-ALIAS:2"},
		{"the host gets them after all", choose(guest, "10de:20b2"), selection.Options{NVSwitch: host}, gpus, host,
			"a partition must be activated before a guest with several GPUs starts, which Nova does not do"},
		{"the guest gets them after all", choose(host, "0000:21:00.0"), selection.Options{NVSwitch: guest}, gpus + " " + switches,
			guest, "a guest gets NVSwitches only if its flavor requests them"},
		{"all named, without a choice", choose("", "10de:20b2", "10de:1af1"), selection.Options{}, gpus + " " + switches, "",
			"a guest gets NVSwitches only if its flavor requests them"},
		{"a GPU without NVLink", choose("", "0000:01:00.0"), selection.Options{}, firstCard, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, hosttest.Board())
			apply(t, root, test.first)
			p := apply(t, root, test.then)
			c := contractOf(t, root)
			if addresses(c.Functions) != test.want || c.NVSwitch != test.recorded {
				t.Errorf("%s, %q", addresses(c.Functions), c.NVSwitch)
			}
			if !strings.Contains(strings.Join(p.Warnings, "\n"), test.warns) {
				t.Errorf("%q", p.Warnings)
			}
			text, _ := os.ReadFile(root.Path(machine.ContractFile))
			hosttest.Contains(t, fmt.Sprintf(`"nvswitch": %q`, test.recorded), string(text))
			if p, err := plan(t, root, selection.Options{}); err != nil || len(p.Files.Pending()) > 0 {
				t.Errorf("again: %v, %v", p.Files.Pending(), err)
			}
		})
	}

	// NVIDIA's driver serves the switches that remain with the host.
	root := hosttest.Lay(t, strings.Replace(hosttest.Board(), "kernel/nouveau.ko.xz:\n",
		"kernel/nouveau.ko.xz:\nkernel/nvidia.ko.xz:\nkernel/nvidia-uvm.ko.xz:\n", 1))
	for choice, blacklisted := range map[machine.NVSwitch]bool{host: false, guest: true} {
		p, err := plan(t, root, selection.Options{NVSwitch: choice})
		hosttest.NoError(t, err)
		text := ""
		for _, c := range p.Files {
			if c.After != nil {
				text += string(c.After.Content)
			}
		}
		if strings.Contains(text, "echo 'blacklist nvidia'\n") != blacklisted ||
			strings.Contains(text, "echo 'blacklist nvidia_uvm'\n") != blacklisted || !strings.Contains(text, "echo 'blacklist nouveau'\n") {
			t.Errorf("%s: %s", choice, text)
		}
	}
}

// hgxB200 is a machine with two GPUs of an HGX B200 board, a ConnectX-7 function that manages
// the NVSwitches, and an adapter with the same ids.
func hgxB200(manager string) string {
	commands, files, _ := strings.Cut(node{CPU: "GenuineIntel"}.Archive(), "-- ")
	for address, f := range map[string]struct{ class, vendor, device, group string }{
		"0000:31:00.0": {"030200", "10de", "2901", "31"}, "0000:32:00.0": {"030200", "10de", "2901", "32"},
		"0000:41:00.0": {"020700", "15b3", "1021", "41"}, "0000:42:00.0": {"020700", "15b3", "1021", "42"},
	} {
		at := "sys/bus/pci/devices/" + address
		commands += "symlink " + at + "/iommu_group -> ../../../../kernel/iommu_groups/" + f.group + "\n"
		files += fmt.Sprintf("-- %s/class --\n0x%s\n-- %s/vendor --\n0x%s\n-- %s/device --\n0x%s\n", at, f.class, at, f.vendor, at, f.device)
	}
	data := "\x90\x0f\x00V0\x0cSMDL=" + manager + "x"
	return commands + "base64 sys/bus/pci/devices/0000:41:00.0/vpd\n-- " + files + inMemory + withSystemd +
		"-- sys/bus/pci/devices/0000:41:00.0/vpd --\n" + base64.StdEncoding.EncodeToString([]byte(data)) + "\n"
}

// TestNVSwitchManagers: functions that manage NVSwitches count as such, are bound by address
// alone, and where they cannot be distinguished from adapters nothing is planned without a choice.
func TestNVSwitchManagers(t *testing.T) {
	const gpus = "0000:31:00.0 0000:32:00.0"
	product := hosttest.Selectors(t, "10de:2901")
	root := hosttest.Lay(t, hgxB200("SW_MNG"))
	if _, err := plan(t, root, selection.Options{Add: product}); fmt.Sprint(err) != separated(gpus, "0000:41:00.0") {
		t.Errorf("%v", err)
	}
	p, err := plan(t, root, selection.Options{Add: product, NVSwitch: machine.SwitchesToHost})
	if err != nil || addresses(p.Functions) != gpus {
		t.Errorf("%s, %v", addresses(p.Functions), err)
	}
	p, err = plan(t, root, selection.Options{Add: product, NVSwitch: machine.SwitchesToGuest})
	if err != nil || addresses(p.Functions) != gpus+" 0000:41:00.0" || p.Functions[2].By != machine.ByAddress {
		t.Errorf("%v, %v", p.Functions, err)
	}
	if !strings.Contains(strings.Join(p.Warnings, "\n"), "a guest gets NVSwitches only if its flavor requests them") {
		t.Errorf("%q", p.Warnings)
	}
	// An adapter with the same ids is no NVSwitch.
	p, err = plan(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:42:00.0"), Allow: []pci.Address{{Bus: 0x42}}})
	if err != nil || p.Functions[0].By != machine.ByService {
		t.Errorf("%v, %v", p.Functions, err)
	}

	root = hosttest.Lay(t, hgxB200("SW_MNG"))
	vpd := root.Path("sys/bus/pci/devices/0000:41:00.0/vpd")
	if err := os.WriteFile(vpd, []byte{0x90, 0xff}, 0o644); err != nil { // as unreadable as a closed file
		t.Fatal(err)
	}
	if _, err := plan(t, root, selection.Options{Add: product}); err == nil ||
		!strings.Contains(err.Error(), "NVSwitches of the selected GPUs may be managed by 0000:41:00.0, whose vital product data cannot be read") {
		t.Errorf("%v", err)
	}
	if _, err := plan(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:41:00.0")}); err == nil ||
		!strings.Contains(err.Error(), "may manage the NVSwitches of this machine") {
		t.Errorf("%v", err)
	}
	if _, err := plan(t, root, selection.Options{Add: product, NVSwitch: machine.SwitchesToHost}); err != nil {
		t.Errorf("%v", err)
	}
}

// TestBoardLeftOut: a board of which a GPU is refused is left out as a whole, and its other GPUs are
// not: --nvswitch guest would select it again.
func TestBoardLeftOut(t *testing.T) {
	const gpu = "sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/"
	root := hosttest.Lay(t, hosttest.Board()+"-- "+gpu+"sriov_totalvfs --\n16\n-- "+gpu+"sriov_numvfs --\n4\n")
	_, err := plan(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:01:00.0", "0000:22:00.0"), NVSwitch: machine.SwitchesToGuest})
	want := []string{"leave 0000:21:00.0 0000:22:00.0 0000:23:00.0 0000:24:00.0 with the host: 0000:01:00.0"}
	hosttest.Equal(t, want, accepted(t, root, err))
}
