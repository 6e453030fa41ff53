package prepare_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"gpustack/host/gate"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
	boot "gpustack/host/steps"
)

// nic is the network card of the machine, in the IOMMU group of its first GPU.
const nic = "0000:04:00.0"

// grouped returns a machine whose network card shares the IOMMU group of a GPU. No driver of the
// host binds the card by its address: links and files are added.
func grouped(links, files string) string {
	return "symlink sys/class/net/enp4s0 -> ../../bus/pci/devices/0000:04:00.0/net/enp4s0\n" + links +
		node{CPU: "GenuineIntel", CardGroup: 10, More: inMemory + withSystemd + "-- sys/bus/pci/devices/0000:04:00.0/net/enp4s0/flags --\n0x1002\n" + files}.Archive()
}

// TestMember: an idle function in the group of a GPU leaves only with --allow. It is recorded so, is
// bound by the unit of every boot alone, and returns with its GPU.
func TestMember(t *testing.T) {
	root := hosttest.Lay(t, grouped("", ""))
	a, _ := pci.ParseAddress(nic)
	_, err := plan(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:01:00.0")})
	const want = nic + ": shares IOMMU group 10 with a selected device but is not part of it: NIC enp4s0 (igb)"
	if err == nil || err.Error() != want {
		t.Fatalf("%v, want %s", err, want)
	}
	if ways := accepted(t, root, err); len(ways) != 1 || ways[0] != "let the NIC enp4s0 (igb) leave the host: 0000:01:00.0" {
		t.Errorf("%q", ways)
	}
	_, err = plan(t, root, selection.Options{})
	if ways := accepted(t, root, err); len(ways) != 2 {
		t.Errorf("%q", ways)
	}
	p := apply(t, root, selection.Options{Allow: []pci.Address{a}})
	if !slices.ContainsFunc(p.Warnings, func(w string) bool {
		return strings.HasPrefix(w, nic+": the NIC enp4s0 (igb) leaves the host at the next boot")
	}) {
		t.Errorf("%q", p.Warnings)
	}
	c := contractOf(t, root)
	if f := c.At(a); f == nil || f.By != machine.ByService || !slices.Equal(c.Allowed, []pci.Address{a}) {
		t.Fatalf("recorded %+v, allowed %v", c.At(a), c.Allowed)
	}
	unit := func() bool { ok, err := root.Exists(boot.UnitFile); return ok && err == nil }
	if !unit() {
		t.Error("no unit binds it")
	}
	for name, text := range tree(t, root) {
		early := !strings.HasPrefix(name, "var/") && !strings.HasPrefix(name, "lib/modules") && strings.Contains(name, "gpustack")
		if early && (strings.Contains(text, nic) || strings.Contains(text, "8086:1533") || strings.Contains(text, "igb")) {
			t.Errorf("%s binds it: %s", name, text)
		}
	}
	if p, err := plan(t, root, selection.Options{}); err != nil || len(p.Files.Pending()) > 0 || strings.Contains(strings.Join(p.Warnings, "\n"), "leaves the host") {
		t.Errorf("again: %v, %d changes, %q", err, len(p.Files.Pending()), p.Warnings)
	}
	// After the reboot it has left. What is prepared then keeps it allowed: it is asked about again.
	link := root.Path("sys/bus/pci/devices/" + nic + "/driver")
	was, err := os.Readlink(link)
	for _, name := range []string{"../../drivers/vfio-pci", was} {
		hosttest.NoError(t, errors.Join(err, os.Remove(link), os.Symlink(name, link)))
		apply(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:01:00.0")})
		if c := contractOf(t, root); !slices.Equal(c.Allowed, []pci.Address{a}) {
			t.Errorf("with %s, allowed %v", name, c.Allowed)
		}
	}
	apply(t, root, selection.Options{Remove: hosttest.Selectors(t, "0000:01:00.0")})
	if c := contractOf(t, root); c.At(a) != nil || len(c.Allowed) > 0 || unit() {
		t.Errorf("without its GPU: recorded %+v, allowed %v, unit %v", c.At(a), c.Allowed, unit())
	}
}

// TestStubWays: no command is printed that pci-stub cannot carry out, which binds by ids alone: a
// card of which an identical one stays.
func TestStubWays(t *testing.T) {
	root := hosttest.Lay(t, node{CPU: "GenuineIntel", More: "-- sys/bus/pci/devices/0000:02:00.0/boot_vga --\n1\n"}.Archive())
	_, err := plan(t, root, selection.Options{Driver: machine.Stub})
	if ways := accepted(t, root, err); len(ways) != 1 || !strings.HasPrefix(ways[0], "let the GPU 0000:02:00.0") {
		t.Errorf("%v: %q", err, ways)
	}
}

// TestMembers: what a function in the group of a GPU is decides: whether it stays, leaves with
// --allow, or never leaves.
func TestMembers(t *testing.T) {
	a, _ := pci.ParseAddress(nic)
	const at, driver = "sys/bus/pci/devices/" + nic, "symlink sys/bus/pci/devices/" + nic + "/driver -> ../../drivers/igb\n"
	bound := func(by string) func(string) string {
		return func(archive string) string {
			return strings.Replace(archive, driver, strings.Replace(driver, "drivers/igb", "drivers/"+by, 1), 1)
		}
	}
	for name, test := range map[string]struct {
		links, files string
		change       func(archive string) string // nil for none
		want         string                      // a part of the refusal without --allow, "" for none
		lifted       bool
		recorded     bool // if it is accepted
	}{
		"an interface that is up": {"", "-- " + at + "/net/enp4s0/flags --\n0x1003\n-- " + at + "/net/enp4s0/carrier --\n1\n", nil, "enp4s0 is up", true, true},
		"a slave of a bond": {"symlink " + at + "/net/enp4s0/master -> ../../../../../../virtual/net/bond0\n", "", nil,
			"enp4s0 is a port of bond0", true, true},
		"the default route":                      {"", "-- proc/net/route --\nIface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\nenp4s0 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n", nil, "is not part of it: NIC enp4s0 (igb)", true, true},
		"virtual functions":                      {"", "-- " + at + "/sriov_totalvfs --\n8\n-- " + at + "/sriov_numvfs --\n2\n", nil, "has virtual functions enabled (2)", false, false},
		"a boot over the network":                {"", "-- proc/cmdline --\nroot=/dev/sda1 ip=dhcp\n", nil, "may be the interface that the host boots with", false, false},
		"bound to vfio-pci":                      {"", "", bound("vfio-pci"), "but is not part of it", true, true},
		"without a driver, and a kernel has one": {"", "", func(s string) string { return strings.Replace(s, driver, "", 1) }, "but is not part of it", true, true},
		"without a driver, and no kernel has one": {"", "", func(s string) string {
			return strings.NewReplacer(driver, "", "alias pci:v00008086d00001533sv*sd*bc*sc*i* igb\n", "").Replace(s)
		}, "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			archive := grouped(test.links, test.files)
			if test.change != nil {
				if changed := test.change(archive); changed == archive {
					t.Fatal("nothing is replaced")
				} else {
					archive = changed
				}
			}
			root := hosttest.Lay(t, archive)
			opts := selection.Options{Add: hosttest.Selectors(t, "0000:01:00.0")}
			p, err := plan(t, root, opts)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), nic+": ") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if err != nil {
				opts.Allow = []pci.Address{a}
				if p, err = plan(t, root, opts); (err == nil) != test.lifted {
					t.Errorf("--allow: %v", err)
				}
			}
			if err == nil && slices.ContainsFunc(p.Functions, func(f machine.Function) bool { return f.Address == a }) != test.recorded {
				t.Errorf("recorded: %v", p.Functions)
			}
		})
	}
	// Without the GPU of its group the adapter is no part of the selection.
	root := hosttest.Lay(t, grouped("", ""))
	opts := selection.Options{Add: hosttest.Selectors(t, "0000:02:00.0")}
	if _, err := plan(t, root, opts); err != nil {
		t.Error(err)
	}
	opts.Allow = []pci.Address{a}
	_, err := plan(t, root, opts)
	if !errors.Is(err, gate.ErrStays) || !strings.Contains(err.Error(), nic) {
		t.Errorf("--allow of a function that stays: %v", err)
	}
	var refused *selection.Refused
	if !errors.As(err, &refused) || len(refused.Ways) != 1 || refused.Ways[0].Options.Allow != nil {
		t.Errorf("%+v", refused)
	}
}

// TestMemberWithoutUnit: where no unit can bind what --allow lets leave, the refusal says so at once,
// and prints no command with it.
func TestMemberWithoutUnit(t *testing.T) {
	_, err := plan(t, hosttest.Lay(t, strings.Replace(grouped("", ""), withSystemd, "", 1)), selection.Options{})
	var refused *selection.Refused
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), nic+": shares IOMMU group") || !errors.Is(err, boot.ErrNoSystemd) {
		t.Fatal(err)
	}
	if len(refused.Ways) != 1 || refused.Ways[0].Options.Allow != nil {
		t.Errorf("%+v", refused.Ways)
	}
}

// TestOtherDevice: --allow is recorded with the function: another one at its address is not allowed.
func TestOtherDevice(t *testing.T) {
	root := hosttest.Lay(t, grouped("", ""))
	a, _ := pci.ParseAddress(nic)
	apply(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:01:00.0"), Allow: []pci.Address{a}})
	for name, text := range map[string]string{"device": "0x1521\n", "modalias": "pci:v00008086d00001521sv00000000sd00000000bc02sc00i00\n"} {
		hosttest.NoError(t, os.WriteFile(root.Path("sys/bus/pci/devices/"+nic+"/"+name), []byte(text), 0o644))
	}
	if _, err := plan(t, root, selection.Options{}); err == nil || !strings.Contains(err.Error(), nic) {
		t.Errorf("%v, want a refusal", err)
	}
}

// TestStubOfMember: pci-stub cannot bind one function by its address.
func TestStubOfMember(t *testing.T) {
	a, _ := pci.ParseAddress(nic)
	opts := selection.Options{Add: hosttest.Selectors(t, "0000:01:00.0", "0000:02:00.0"), Allow: []pci.Address{a}, Driver: machine.Stub}
	if _, err := plan(t, hosttest.Lay(t, grouped("", "")), opts); err == nil || !strings.Contains(err.Error(), nic+": "+selection.ErrStubTwins.Error()) {
		t.Errorf("%v", err)
	}
}

// TestOrdinaryServer: RAID, LVM, a bond, containers and kdump that no selected function is part of
// are no refusal and need no --allow.
func TestOrdinaryServer(t *testing.T) {
	const disk = "devices/pci0000:00/0000:03:00.0/ata1/host0/block/sda"
	links := "symlink sys/class/net/enp4s0 -> ../../bus/pci/devices/0000:04:00.0/net/enp4s0\nsymlink sys/devices/virtual/net/bond0/lower_enp4s0 -> ../enp4s0\nsymlink sys/class/net/bond0 -> ../../devices/virtual/net/bond0\n" +
		"symlink sys/bus/pci/devices/0000:04:00.0/net/enp4s0/master -> ../../../../../../virtual/net/bond0\nmkdir sys/class/iommu\n" +
		"symlink sys/class/block/sda -> ../../" + disk + "\nsymlink sys/class/block/sda1 -> ../../" + disk + "/sda1\nmkdir sys/" + disk + "/sda1\n" +
		"symlink sys/class/block/md0 -> ../../devices/virtual/block/md0\nmkdir sys/devices/virtual/block/md0/slaves/sda1\n" +
		"symlink sys/class/block/dm-0 -> ../../devices/virtual/block/dm-0\nmkdir sys/devices/virtual/block/dm-0/slaves/md0\n"
	files := "-- sys/devices/virtual/block/dm-0/dm/name --\nvg-root\n-- proc/mounts --\n/dev/mapper/vg-root / xfs rw 0 0\noverlay /var/lib/docker/overlay2/a/merged overlay rw 0 0\n" +
		"-- proc/swaps --\nFilename Type Size Used Priority\n/dev/dm-0 partition 1 0 -2\n-- sys/kernel/kexec_crash_loaded --\n1\n" +
		"-- proc/net/route --\nIface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\nbond0 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n"
	root := hosttest.Lay(t, links+node{CPU: "GenuineIntel", CardGroup: 13, More: files}.Archive())
	p, err := plan(t, root, selection.Options{})
	if err != nil || addresses(p.Functions) != bothCards || len(p.Warnings) > 0 {
		t.Errorf("%s, %v, %q", addresses(p.Functions), err, p.Warnings)
	}
	for name, want := range map[string]string{"0000:03:00.0": "carries /dev/mapper/vg-root, mounted at /",
		nic: "is no GPU: NIC enp4s0 (igb); enp4s0 is a port of bond0"} {
		opts := selection.Options{Add: hosttest.Selectors(t, name)}
		if _, err := plan(t, root, opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
