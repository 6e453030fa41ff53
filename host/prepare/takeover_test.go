package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// byHand is a node that was prepared as the talk teaches.
func byHand(more string, args string) string {
	archive := node{CPU: "GenuineIntel", More: "-- etc/initramfs-tools/modules --\n# List of modules\npci_stub ids=10de:11b4,10de:0e0a\n" + more}.Archive()
	return strings.Replace(archive, `GRUB_CMDLINE_LINUX=""`, `GRUB_CMDLINE_LINUX="`+args+`"`, 1)
}

// TestByOtherMeans: what others have written binds the functions whatever gpustack records, so the
// plan names it and promises nothing.
func TestByOtherMeans(t *testing.T) {
	for name, test := range map[string]struct {
		archive string
		opts    selection.Options
		want    []string // parts of warnings
	}{
		"the talk's line": {byHand("", ""), selection.Options{},
			[]string{"/etc/initramfs-tools/modules:2: pci-stub ids=10de:11b4,10de:0e0a, set outside gpustack, binds 0000:01:00.0, 0000:01:00.1, 0000:02:00.0, 0000:02:00.1"}},
		"an identical card remains": {byHand("", ""), selection.Options{Only: hosttest.Selectors(t, "0000:01:00.0")},
			[]string{"0000:02:00.0 remains with the host, but ids=10de:11b4,10de:0e0a of pci-stub, set in /etc/initramfs-tools/modules:2 outside gpustack, matches it"}},
		"the other driver on the command line": {byHand("", "pci-stub.ids=10de:0e0a"), selection.Options{},
			[]string{"kernel arguments: pci-stub ids=10de:0e0a, set outside gpustack, binds 0000:01:00.1, 0000:02:00.1"}},
		"all of a vendor by their class": {byHand("-- etc/modules --\nvfio_pci ids=10de:ffffffff:ffffffff:ffffffff:00030000:ffff00ff\n", ""), selection.Options{},
			[]string{"/etc/modules:1: vfio-pci ids=10de:ffffffff:ffffffff:ffffffff:00030000:ffff00ff, set outside gpustack, binds 0000:01:00.0, 0000:02:00.0 at boot: " +
				"neither gpustack=off nor --none returns them; remove these ids there"}},
		"unsafe interrupts": {byHand("-- etc/modprobe.d/x.conf --\noptions vfio_iommu_type1 allow_unsafe_interrupts=1\n", ""), selection.Options{},
			[]string{"/etc/modprobe.d/x.conf:1 sets allow_unsafe_interrupts=1 outside gpustack"}},
		"taken over": {byHand("", "pci-stub.ids=10de:0e0a,8086:1"), selection.Options{TakeOver: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := plan(t, hosttest.Lay(t, test.archive), test.opts)
			hosttest.NoError(t, err)
			for _, want := range test.want {
				if !slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, want) }) {
					t.Errorf("no %q in %q", want, p.Warnings)
				}
			}
			if promised := len(p.Others) == 0; promised != (test.want == nil) {
				t.Errorf("others: %v", p.Others)
			}
			if test.want == nil && slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, "outside gpustack") }) {
				t.Errorf("%q", p.Warnings)
			}
		})
	}
}

// TestForeignIDs: a function that remains with the host and that an effective ids= of others
// matches is bound at the next boot as a selected one is, so the gate decides.
func TestForeignIDs(t *testing.T) {
	const refused = "0000:04:00.0: is no GPU: "
	line := func(text string) string { return "-- etc/modprobe.d/vfio.conf --\noptions vfio-pci ids=" + text + "\n" }
	for name, test := range map[string]struct {
		more, args string
		opts       selection.Options
		hint       string // "" if it is accepted
	}{
		"a NIC":                       {more: line("8086:1533"), hint: "from /etc/modprobe.d/vfio.conf:1,"},
		"a NIC and selected GPUs":     {more: line("10de:11b4,8086:1533"), hint: "from /etc/modprobe.d/vfio.conf:1,"},
		"on the kernel command line":  {args: "vfio-pci.ids=8086:1533", hint: "from kernel arguments,"},
		"in another file of the boot": {more: "-- etc/modules --\npci_stub ids=8086:1533\n", hint: "from /etc/modules:1,"},
		"without a GPU by ids": {more: line("8086:1533"), opts: selection.Options{Only: hosttest.Selectors(t, "0000:01:00.0")},
			hint: "from /etc/modprobe.d/vfio.conf:1,"},
		"allowed, but not selected": {more: line("8086:1533"), opts: selection.Options{Allow: []pci.Address{{Bus: 4}}},
			hint: "from /etc/modprobe.d/vfio.conf:1,"},
		"selected with --allow": {more: line("8086:1533"),
			opts: selection.Options{Add: hosttest.Selectors(t, "0000:04:00.0"), Allow: []pci.Address{{Bus: 4}}}},
		"only selected functions":       {more: line("10de:11b4,10de:0e0a")},
		"no function":                   {more: line("1234:5678")},
		"a NIC by its class":            {more: line("8086:ffffffff:ffffffff:ffffffff:00020000:ffff0000"), hint: "from /etc/modprobe.d/vfio.conf:1,"},
		"a NIC by its subsystem":        {more: line("0x8086:0x1533:0:0"), hint: "from /etc/modprobe.d/vfio.conf:1,"},
		"of another class":              {more: line("8086:1533:ffffffff:ffffffff:00030000:ffff0000")},
		"of another subsystem":          {more: line("8086:1533:8086:0001")},
		"an identical GPU that idles":   {more: line("10de:11b4"), opts: selection.Options{Only: hosttest.Selectors(t, "0000:01:00.0")}},
		"a line that another overrides": {more: line("8086:1533") + "-- etc/modprobe.d/w.conf --\noptions vfio-pci ids=1234:5678\n"},
	} {
		t.Run(name, func(t *testing.T) {
			archive := node{CPU: "GenuineIntel", More: inMemory + withSystemd + test.more}.Archive()
			archive = strings.Replace(archive, `GRUB_CMDLINE_LINUX=""`, `GRUB_CMDLINE_LINUX="`+test.args+`"`, 1)
			_, err := plan(t, hosttest.Lay(t, archive), test.opts)
			if test.hint == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var refusal *selection.Refused
			if !errors.As(err, &refusal) || !strings.Contains(err.Error(), refused) || len(refusal.Ways) > 0 {
				t.Fatalf("%v, %v", err, refusal)
			}
			for _, err := range refusal.Errors {
				if hint := host.HintOf(err).String(); strings.Contains(err.Error(), refused) && !strings.Contains(hint, test.hint) {
					t.Errorf("hint %q", hint)
				}
			}
		})
	}
}

// TestForeignIDsOfRoot: where no option lifts the refusal, its hint names none.
func TestForeignIDsOfRoot(t *testing.T) {
	const all = "-- etc/modprobe.d/vfio.conf --\noptions vfio-pci ids=ffffffff:ffffffff\n-- proc/mounts --\n/dev/root / ext4 rw 0 0\n"
	_, err := plan(t, hosttest.Lay(t, node{CPU: "GenuineIntel", More: withSystemd + all}.Archive()), selection.Options{})
	var refusal *selection.Refused
	if !errors.As(err, &refusal) {
		t.Fatal(err)
	}
	for _, err := range refusal.Errors {
		if hint := host.HintOf(err).String(); !strings.HasSuffix(hint, "from /etc/modprobe.d/vfio.conf:1") {
			t.Errorf("%v: %s", err, hint)
		}
	}
}

// TestBlacklistOfOthers: gpustack=off does not disable a blacklist that others have written. It
// leaves a GPU without a driver if it keeps every driver of the host from it.
func TestBlacklistOfOthers(t *testing.T) {
	const nouveau = "-- etc/modprobe.d/blacklist.conf --\n# of the talk\nblacklist nvidia\nblacklist nouveau\n"
	for name, test := range map[string]struct {
		more, aliases, args string
		want                []string
	}{
		"the talk's lines":             {more: nouveau, want: []string{"/etc/modprobe.d/blacklist.conf:3: blacklist nouveau"}},
		"a kernel argument":            {args: "modprobe.blacklist=nouveau", want: []string{"kernel argument modprobe.blacklist=nouveau"}},
		"another driver of the host":   {more: nouveau, aliases: "alias pci:v000010DEd*sv*sd*bc03sc*i* igb\n"},
		"of another module":            {more: "-- etc/modprobe.d/x.conf --\nblacklist igb\n"},
		"gpustack's, for one boot":     {},
		"gpustack's of an earlier run": {more: "-- etc/modprobe.d/zz-gpustack.conf --\nblacklist nouveau\n"},
	} {
		t.Run(name, func(t *testing.T) {
			archive := node{CPU: "GenuineIntel", More: test.more, Aliases: test.aliases}.Archive()
			archive = strings.Replace(archive, `GRUB_CMDLINE_LINUX=""`, `GRUB_CMDLINE_LINUX="`+test.args+`"`, 1)
			p, err := plan(t, hosttest.Lay(t, archive), selection.Options{})
			hosttest.NoError(t, err)
			hosttest.Equal(t, test.want, p.Blacklists)
		})
	}
}

// TestBuiltinStubWins: a pci-stub of the kernel binds before vfio-pci is loaded.
func TestBuiltinStubWins(t *testing.T) {
	archive := byHand("", "pci-stub.ids=10de:11b4")
	archive = strings.Replace(archive, "kernel/drivers/pci-stub.ko.xz:\n", "", 1)
	archive = strings.Replace(archive, "modules.builtin --\n", "modules.builtin --\nkernel/drivers/pci-stub.ko\n", 1)
	_, err := plan(t, hosttest.Lay(t, archive), selection.Options{})
	hosttest.Contains(t, "pci-stub is built into kernel", fmt.Sprint(err))
	root := hosttest.Lay(t, archive)
	apply(t, root, selection.Options{TakeOver: true})
	if c := contractOf(t, root); !c.TakeOver {
		t.Error("not recorded")
	}
}

// TestTakeOver: the ids go from every place, a second run plans nothing, and undo restores it all.
func TestTakeOver(t *testing.T) {
	root := hosttest.Lay(t, byHand("-- etc/modules --\npci_stub ids=10de:11b4\nloop\n-- etc/modprobe.d/x.conf --\noptions vfio-pci ids=10de:11b4,1234:5678\n",
		"pci-stub.ids=10de:0e0a,8086:1 vfio-pci.ids=10de:11b4"))
	before := tree(t, root)
	p := apply(t, root, selection.Options{TakeOver: true})
	for name, want := range map[string]string{
		"/etc/initramfs-tools/modules": "# List of modules\n", "/etc/modules": "loop\n", "/etc/modprobe.d/x.conf": "options vfio-pci ids=1234:5678\n",
	} {
		if got, err := os.ReadFile(root.Path(name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if !p.Initramfs {
		t.Error("no initramfs is regenerated")
	}
	if drop, add := p.Arguments.Drop.String(), p.Arguments.Add.String(); drop != "pci-stub.ids=10de:0e0a,8086:1 vfio-pci.ids=10de:11b4" || !strings.Contains(add, "pci-stub.ids=8086:1") || strings.Contains(add, "10de") {
		t.Errorf("drop %q, add %q", drop, add)
	}
	if c := contractOf(t, root); !c.TakeOver {
		t.Error("not recorded")
	}
	ours, err := os.ReadFile(root.Path("/etc/modprobe.d/zz-gpustack.conf"))
	if err != nil || !strings.Contains(string(ours), "options vfio-pci ids=1234:5678,10de:11b4,10de:0e0a\n") {
		t.Errorf("%s %v", ours, err)
	}
	if again, err := plan(t, root, selection.Options{}); err != nil || len(again.Files.Pending()) > 0 {
		t.Errorf("again: %v, %v", again.Files.Pending(), err)
	}
	engine := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{change.Files{Root: root}}}
	entries, err := change.List(root)
	hosttest.NoError(t, err)
	if _, err := engine.Undo(context.Background(), entries[len(entries)-1].ID); err != nil {
		t.Fatal(err)
	}
	after := tree(t, root)
	for name := range after {
		if strings.HasPrefix(name, "var/lib/gpustack") || name == "var" || name == "var/lib" {
			delete(after, name)
		}
	}
	hosttest.EqualIn(t, "before and undone", before, after)
}

// TestTakeOverOfOthers: --take-over does not return functions to the host that are not selected and
// that the removed ids have bound.
func TestTakeOverOfOthers(t *testing.T) {
	const stays = "0000:02:00.0: is bound to vfio-pci by ids= in /etc/modprobe.d/vfio.conf:1, which --take-over removes"
	first := hosttest.Selectors(t, "0000:01:00.0")
	for name, test := range map[string]struct {
		ids, driver string
		opts        selection.Options
		want        string // a part of the refusal, or without --take-over of the warning; "" for none
	}{
		"another GPU is bound":       {"10de:11b4", "vfio-pci", selection.Options{Only: first, TakeOver: true}, stays},
		"another GPU is of the host": {"10de:11b4", "nouveau", selection.Options{Only: first, TakeOver: true}, ""},
		"the line is kept": {"10de:11b4", "vfio-pci", selection.Options{Only: first},
			"--take-over, with --device for 0000:02:00.0, removes these ids there"},
		"the line is kept, and removable": {"10de:11b4", "nouveau", selection.Options{Only: first}, "--take-over removes these ids there"},
		"both GPUs are selected":          {"10de:11b4", "vfio-pci", selection.Options{TakeOver: true}, ""},
		"another product, whose ids remain": {"10de:0e0a", "vfio-pci",
			selection.Options{Only: hosttest.Selectors(t, "0000:04:00.0"), Allow: []pci.Address{{Bus: 4}}, TakeOver: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, node{CPU: "GenuineIntel", More: inMemory + withSystemd + "-- etc/modprobe.d/vfio.conf --\noptions vfio-pci ids=" + test.ids + "\n"}.Archive())
			link := root.Path("sys/bus/pci/devices/0000:02:00.0/driver")
			hosttest.NoError(t, errors.Join(os.Remove(link), os.Symlink("../../drivers/"+test.driver, link)))
			p, err := plan(t, root, test.opts)
			if (err != nil) != (test.opts.TakeOver && test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
			warnings := strings.Join(p.Warnings, "\n") + "\n"
			if !test.opts.TakeOver && !strings.Contains(warnings, "; "+test.want+"\n") {
				t.Error(warnings)
			}
		})
	}
}

// TestPrevented: a driver that is not loaded binds nothing, and the host has no driver either.
func TestPrevented(t *testing.T) {
	for name, test := range map[string]struct {
		more, args string
		builtin    bool
		want       string // "" if it is accepted
	}{
		"install": {more: "install vfio-pci /bin/true",
			want: "/etc/modprobe.d/a.conf:1: install vfio_pci keeps the driver for guests from being loaded at boot"},
		"install of what it needs": {more: "install vfio_iommu_type1 /bin/false", want: "/etc/modprobe.d/a.conf:1: install vfio_iommu_type1 keeps"},
		"blacklist":                {more: "blacklist vfio_pci"}, // of aliases: the scripts load it by its name
		"its kernel argument":      {args: "modprobe.blacklist=vfio_pci"},
		"a kernel argument":        {args: "module_blacklist=vfio_pci", want: "module_blacklist=vfio_pci keeps"},
		"built in":                 {more: "install vfio-pci /bin/true", builtin: true},
		"another driver":           {more: "install pci-stub /bin/true"},
		"install of a program":     {more: "install vfio-pci /sbin/modprobe --ignore-install vfio-pci"},
	} {
		t.Run(name, func(t *testing.T) {
			archive := node{CPU: "GenuineIntel", Builtin: test.builtin, More: "-- etc/modprobe.d/a.conf --\n" + test.more + "\n"}.Archive()
			archive = strings.Replace(archive, `GRUB_CMDLINE_LINUX=""`, `GRUB_CMDLINE_LINUX="`+test.args+`"`, 1)
			_, err := plan(t, hosttest.Lay(t, archive), selection.Options{})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestDriverctl: a file of driverctl is named, and --take-over removes it, as the diff shows.
func TestDriverctl(t *testing.T) {
	const file = "/etc/driverctl.d/pci-0000:01:00.0"
	root := hosttest.Lay(t, node{CPU: "GenuineIntel", More: "-- etc/driverctl.d/pci-0000:01:00.0 --\nnvidia\n"}.Archive())
	for _, takeOver := range []bool{false, true} {
		p, err := plan(t, root, selection.Options{TakeOver: takeOver})
		hosttest.NoError(t, err)
		named := slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.HasPrefix(w, file+": driverctl binds 0000:01:00.0 to nvidia ") })
		removed := slices.ContainsFunc(p.Files, func(c edit.Change) bool { return c.Name == file && c.Before != nil && c.After == nil })
		if named == takeOver || removed != takeOver {
			t.Errorf("--take-over %v: named %v, removed %v", takeOver, named, removed)
		}
	}
}
