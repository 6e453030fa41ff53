package change_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

// grubenv returns an environment block of GRUB's size.
func grubenv(variables string) string {
	text := "# GRUB Environment Block\n" + variables
	return text + strings.Repeat("#", 1024-len(text))
}

const (
	defaultsFile = "/etc/default/grub"
	envFile      = "/boot/grub2/grubenv"
	cmdlineFile  = "/etc/kernel/cmdline"
	entryFile    = "/boot/loader/entries/f00d-5.14.0-427.el9.x86_64.conf"
	olderFile    = "/boot/loader/entries/f00d-5.14.0-70.el9.x86_64.conf"
	rescueFile   = "/boot/loader/entries/f00d-0-rescue.conf"
	newerFile    = "/boot/loader/entries/f00d-5.14.0-503.el9.x86_64.conf"
)

// Machines with boot entries.
var (
	rhel9 = `
-- boot/loader/entries/f00d-5.14.0-427.el9.x86_64.conf --
title Red Hat Enterprise Linux (5.14.0-427.el9.x86_64) 9.4 (Plow)
version 5.14.0-427.el9.x86_64
linux /vmlinuz-5.14.0-427.el9.x86_64
initrd /initramfs-5.14.0-427.el9.x86_64.img $tuned_initrd
options root=/dev/mapper/rhel-root ro crashkernel=1G-4G:192M rd.lvm.lv=rhel/root $tuned_params
grub_users $grub_users
-- boot/loader/entries/f00d-5.14.0-70.el9.x86_64.conf --
title Red Hat Enterprise Linux (5.14.0-70.el9.x86_64) 9.0 (Plow)
version 5.14.0-70.el9.x86_64
linux /vmlinuz-5.14.0-70.el9.x86_64
options root=/dev/mapper/rhel-root ro  iommu=pt quiet $tuned_params
-- boot/loader/entries/f00d-0-rescue.conf --
version 0-rescue-f00d
linux /vmlinuz-0-rescue-f00d
options root=/dev/mapper/rhel-root ro
-- boot/grub2/grubenv --
` + grubenv("saved_entry=f00d-5.14.0-427.el9.x86_64\n") + `
-- etc/kernel/cmdline --
# for kernels installed later
root=/dev/mapper/rhel-root ro crashkernel=1G-4G:192M rd.lvm.lv=rhel/root
-- etc/default/grub --
GRUB_TIMEOUT=5
GRUB_CMDLINE_LINUX="crashkernel=1G-4G:192M rd.lvm.lv=rhel/root"
GRUB_ENABLE_BLSCFG=true
`
	rhel8 = strings.NewReplacer("options root=/dev/mapper/rhel-root ro crashkernel=1G-4G:192M rd.lvm.lv=rhel/root", "options $kernelopts",
		"options root=/dev/mapper/rhel-root ro\n", "options $kernelopts\n",
		grubenv("saved_entry=f00d-5.14.0-427.el9.x86_64\n"),
		grubenv("saved_entry=f00d-5.14.0-427.el9.x86_64\nkernelopts=root=/dev/mapper/rhel-root ro iommu=soft rhgb\nboot_success=0\n")).Replace(rhel9)
	plain8   = strings.Replace(rhel8, " iommu=soft", "", 1)
	menuOnly = strings.Replace(rhel8, "kernelopts=root=/dev/mapper/rhel-root ro iommu=soft rhgb\n", "", 1) + `
-- boot/grub2/grub.cfg --
set kernelopts="root=/dev/mapper/rhel-root ro rhgb"
`
	withoutCmdline = strings.NewReplacer("-- etc/kernel/cmdline --", "-- etc/kernel/other --").Replace(rhel9)
	systemdBoot    = `
-- etc/machine-id --
cafe
-- boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf --
title      Debian GNU/Linux 12 (bookworm)
version    6.1.0-28-amd64
machine-id cafe
options    root=UUID=77 ro quiet systemd.machine_id=cafe
linux      /cafe/6.1.0-28-amd64/linux
-- boot/efi/loader/entries/d00d-6.1.0-9-amd64.conf --
title      Another system
version    6.1.0-9-amd64
machine-id d00d
options    root=UUID=99 ro iommu=pt
linux      /d00d/6.1.0-9-amd64/linux
`
	debianInPlace = `
-- etc/default/grub --
# the machine's own
GRUB_TIMEOUT=5
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX="console=tty0 'console=ttyS0'"
-- usr/sbin/update-grub --
-- usr/sbin/grub-mkconfig --
. /etc/default/grub
-- boot/grub/grub.cfg --
`
)

// planBoot plans the IOMMU's arguments with the boot loader of a machine.
func planBoot(t testing.TB, root host.Root, vendor string) edit.Changes {
	t.Helper()
	want, _ := boot.WantIOMMU(vendor, false)
	var loader interface {
		Files() []string
		Plan(files edit.Files, want boot.Want) (edit.Changes, error)
	}
	var err error
	has := func(name string) bool { ok, _ := root.Exists(name); return ok }
	switch {
	case has("/boot/loader/entries"):
		loader, err = boot.ReadBLS(root)
	case has("/boot/efi/loader/entries"):
		loader, err = boot.ReadSystemdBoot(root)
	default:
		loader, err = boot.ReadGrub(root)
	}
	hosttest.NoError(t, err)
	plan, err := loader.Plan(edit.Observe(root, loader.Files()...), want)
	hosttest.NoError(t, err)
	return plan
}

// prepared lays out a machine and prepares it.
func prepared(t testing.TB, tree, vendor string) (engine, host.Root) {
	t.Helper()
	m := &machine{root: hosttest.Lay(t, tree)}
	plan := planBoot(t, m.root, vendor)
	if _, err := m.open().Apply(t.Context(), change.Work{Command: "host prepare", Change: change.Files{Root: m.root}.New(plan)}); err != nil {
		t.Fatal(err)
	}
	return m.open(), m.root
}

// tree returns the files below a root without the journal.
func files(t testing.TB, root host.Root) map[string]string {
	t.Helper()
	all := map[string]string{}
	top := root.Path("/")
	err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "gpustack" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		all["/"+strings.TrimPrefix(strings.TrimPrefix(file, top), "/")] = string(text)
		return err
	})
	hosttest.NoError(t, err)
	return all
}

// rewrite replaces the content of a file, which must exist.
func rewrite(name string, with func(text string) string) func(t testing.TB, root host.Root) {
	return func(t testing.TB, root host.Root) {
		t.Helper()
		text, err := root.ReadFile(name)
		if err == nil {
			err = os.WriteFile(root.Path(name), []byte(with(string(text))), 0o600)
		}
		hosttest.NoError(t, err)
	}
}

func sub(name, pattern, with string) func(t testing.TB, root host.Root) {
	return func(t testing.TB, root host.Root) {
		t.Helper()
		rewrite(name, func(text string) string {
			found := regexp.MustCompile(`(?m)` + pattern)
			if !found.MatchString(text) {
				t.Fatalf("%s: no %s in %q", name, pattern, text)
			}
			return found.ReplaceAllString(text, with)
		})(t, root)
	}
}

func all(steps ...func(t testing.TB, root host.Root)) func(t testing.TB, root host.Root) {
	return func(t testing.TB, root host.Root) {
		t.Helper()
		for _, s := range steps {
			s(t, root)
		}
	}
}

func remove(name string) func(t testing.TB, root host.Root) {
	return func(t testing.TB, root host.Root) {
		t.Helper()
		hosttest.NoError(t, os.Remove(root.Path(name)))
	}
}

// setEnv sets a variable as grub-editenv does.
func setEnv(name, value string) func(t testing.TB, root host.Root) {
	return rewrite(envFile, func(text string) string {
		lines := strings.Split(strings.TrimRight(strings.TrimPrefix(text, "# GRUB Environment Block\n"), "#\n"), "\n")
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+"=") })
		if i < 0 {
			lines, i = append(lines, ""), len(lines)
		}
		lines[i] = name + "=" + value
		return grubenv(strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "\n") + "\n")
	})
}

// booted is what GRUB, systemd and the kernel's packages write to the environment block.
var booted = all(setEnv("boot_success", "1"), setEnv("boot_indeterminate", "0"), setEnv("saved_entry", "f00d-5.14.0-503.el9.x86_64"))

// updateArgs has the effect of grubby's option --args: arguments of the same names are removed,
// white space is joined, and the new ones are at the end.
func updateArgs(line string, add ...string) string {
	args := slices.DeleteFunc(strings.Fields(line), func(have string) bool {
		h, _, _ := strings.Cut(have, "=")
		return slices.ContainsFunc(add, func(arg string) bool { a, _, _ := strings.Cut(arg, "="); return a == h })
	})
	return strings.Join(append(args, add...), " ")
}

var assigns = regexp.MustCompile(`(?m)^GRUB_CMDLINE_LINUX=.*$`)

// grubby has the effect of grubby --update-kernel=ALL --args (grubby 8.40, grubby-bls): entries
// without $kernelopts, kernelopts, /etc/kernel/cmdline and every assignment in /etc/default/grub
// are rewritten.
func grubby(add ...string) func(t testing.TB, root host.Root) {
	return func(t testing.TB, root host.Root) {
		t.Helper()
		text := files(t, root)
		for name, content := range text {
			switch {
			case strings.HasPrefix(name, "/boot/loader/entries/"):
				sets := regexp.MustCompile(`(?m)^options\s+(.*)$`).FindStringSubmatch(content)
				if !strings.Contains(sets[1], "$kernelopts") {
					rewrite(name, func(string) string {
						return strings.Replace(content, sets[0], "options "+updateArgs(sets[1], add...), 1)
					})(t, root)
				}
			case name == envFile:
				if _, after, ok := strings.Cut(content, "\nkernelopts="); ok {
					opts, _, _ := strings.Cut(after, "\n")
					setEnv("kernelopts", updateArgs(opts, add...))(t, root)
				}
			case name == cmdlineFile:
				rewrite(name, func(text string) string {
					lines := strings.SplitAfter(text, "\n")
					for i, line := range lines {
						if line != "" && line[0] != '#' {
							lines[i] = updateArgs(line, add...) + "\n"
						}
					}
					return strings.Join(lines, "")
				})(t, root)
			case name == defaultsFile:
				value := ""
				for _, line := range assigns.FindAllString(content, -1) {
					set := strings.Trim(strings.TrimPrefix(line, "GRUB_CMDLINE_LINUX="), `"`)
					value = strings.ReplaceAll(set, "$GRUB_CMDLINE_LINUX", value)
				}
				rewrite(name, func(string) string {
					return assigns.ReplaceAllLiteralString(content, `GRUB_CMDLINE_LINUX="`+updateArgs(value, add...)+`"`)
				})(t, root)
			}
		}
	}
}

// installKernel has the effect of the installation of a kernel: its entry has the arguments of
// /etc/kernel/cmdline.
func installKernel(t testing.TB, root host.Root) {
	t.Helper()
	text := files(t, root)
	_, cmdline, _ := strings.Cut(text[cmdlineFile], "later\n")
	entry := "title new\nversion 5.14.0-503.el9.x86_64\nlinux /vmlinuz-5.14.0-503.el9.x86_64\noptions " + strings.TrimSpace(cmdline) + " $tuned_params\n"
	hosttest.NoError(t, os.WriteFile(root.Path(newerFile), []byte(entry), 0o644))
}

// TestUndoByValue: whatever other programs have done since, undo leaves the files as they would be
// if gpustack had never changed them.
func TestUndoByValue(t *testing.T) {
	comment := all(sub(defaultsFile, `^GRUB_TIMEOUT=5$`, "# changed by hand\nGRUB_TIMEOUT=1"), rewrite(defaultsFile, func(text string) string { return text + "GRUB_DISABLE_OS_PROBER=true\n" }))
	for _, test := range []struct {
		name, tree, vendor string
		since              func(t testing.TB, root host.Root)
		want               func(t testing.TB, root host.Root) // nil: the same as since
	}{
		{"booted", rhel8, "intel", booted, nil},
		{"booted, kernelopts only in the menu", menuOnly, "intel", booted, nil},
		{"an argument for all kernels", rhel9, "intel", grubby("audit=1"), nil},
		{"an argument for all kernels, with kernelopts", plain8, "amd", all(booted, grubby("audit=1", "mitigations=auto,nosmt")), nil},
		// The arguments that gpustack has replaced come back at the end.
		{"replaced in kernelopts", rhel8, "amd", all(booted, grubby("audit=1")), all(booted, setEnv("kernelopts", "root=/dev/mapper/rhel-root ro rhgb audit=1 iommu=soft"),
			sub(olderFile, `^options.*$`, "options root=/dev/mapper/rhel-root ro iommu=pt quiet $$tuned_params audit=1"),
			sub(cmdlineFile, `lv=rhel/root$`, "lv=rhel/root audit=1"), sub(defaultsFile, `lv=rhel/root`, "lv=rhel/root audit=1"))},
		// In an entry that gpustack did not change, the argument is the operator's.
		{"an argument of ours again", rhel9, "intel", grubby("intel_iommu=on", "nosmt"), all(grubby("nosmt"), sub(rescueFile, " nosmt", " intel_iommu=on nosmt"))},
		{"a kernel installed", rhel9, "intel", installKernel, nil},
		{"a kernel installed after others", rhel9, "intel", all(grubby("audit=1"), installKernel, booted), nil},
		{"kernels installed and removed", rhel9, "intel", all(installKernel, remove(entryFile), grubby("quiet")), nil},
		{"a rescue entry of another name", rhel9, "intel", all(remove(rescueFile), installKernel, func(t testing.TB, root host.Root) {
			hosttest.NoError(t, os.Rename(root.Path(newerFile), root.Path("/boot/loader/entries/f00d-0-rescue-new.conf")))
		}), nil},
		// Its name has another machine's id.
		{"an entry of another system", rhel9, "intel", all(booted, grubby("nosmt"), func(t testing.TB, root host.Root) {
			other := "version 6.11.0-1\nlinux /other\noptions root=/dev/other iommu=pt intel_iommu=on\n"
			hosttest.NoError(t, os.WriteFile(root.Path("/boot/loader/entries/beef-6.11.0-1.conf"), []byte(other), 0o644))
		}), nil},
		// grubby writes the value of kernelopts into an entry whose kernel alone gets an argument.
		{"kernelopts written into entries", rhel8, "intel", func(t testing.TB, root host.Root) {
			value, _, _ := strings.Cut(strings.SplitAfter(files(t, root)[envFile], "kernelopts=")[1], "\n")
			sub(entryFile, `\$kernelopts`, value+" audit=1")(t, root)
			sub(rescueFile, `\$kernelopts`, value+" audit=1")(t, root)
		}, func(t testing.TB, root host.Root) {
			sub(entryFile, `\$kernelopts(.*)`, `root=/dev/mapper/rhel-root ro rhgb audit=1$1 iommu=soft`)(t, root)
			sub(rescueFile, `\$kernelopts`, "root=/dev/mapper/rhel-root ro rhgb audit=1 iommu=soft")(t, root)
		}},
		{"a command line of later kernels created", withoutCmdline, "intel", func(t testing.TB, root host.Root) {
			text := "root=/dev/mapper/rhel-root ro audit=1\n"
			if strings.Contains(files(t, root)[entryFile], "iommu=pt") {
				text = "root=/dev/mapper/rhel-root ro iommu=pt intel_iommu=on audit=1\n"
			}
			hosttest.Write(cmdlineFile, text)(t.(*testing.T), root)
		}, nil},
		{"a command line of later kernels created without ours", withoutCmdline, "intel", all(grubby("nosmt"), func(t testing.TB, root host.Root) {
			hosttest.Write(cmdlineFile, "root=/dev/mapper/rhel-root ro quiet\n")(t.(*testing.T), root)
		}), nil},
		{"repeated, quoted and reordered", rhel9, "intel", all(
			sub(entryFile, `^options.*$`, `options iommu="pt" $$tuned_params ro "intel_iommu=on"	root=/dev/mapper/rhel-root dyndbg="file a.c +p" iommu=pt`)),
			sub(entryFile, `^options.*$`, `options $$tuned_params ro	root=/dev/mapper/rhel-root dyndbg="file a.c +p"`)},
		{"ours removed by hand", rhel9, "intel", all(sub(entryFile, ` iommu=pt`, ""), sub(cmdlineFile, ` intel_iommu=on`, "")), func(testing.TB, host.Root) {}},
		{"defaults edited", rhel9, "intel", comment, nil},
		{"defaults edited, then grubby", rhel9, "intel", all(comment, grubby("audit=1")), nil},
		// The assignment in which gpustack's part leaves out what it replaces has several lines, of which
		// grubby replaces the first.
		{"defaults torn by grubby", strings.Replace(rhel9, `LINUX="crashkernel=1G-4G:192M `, `LINUX="iommu=soft `, 1), "amd", func(t testing.TB, root host.Root) {
			sub(defaultsFile, `^GRUB_CMDLINE_LINUX=.*$`, `GRUB_CMDLINE_LINUX="rd.lvm.lv=rhel/root iommu=pt audit=1"`)(t, root)
		}, func(t testing.TB, root host.Root) {
			sub(defaultsFile, `^GRUB_CMDLINE_LINUX=.*$`, `GRUB_CMDLINE_LINUX="rd.lvm.lv=rhel/root audit=1 iommu=soft"`)(t, root)
		}},
		{"defaults of Debian edited", debianInPlace, "intel", comment, nil},
		{"our part removed by hand", debianInPlace, "intel", rewrite(defaultsFile, func(text string) string {
			theirs, _, _ := strings.Cut(text, "# gpustack begin\n")
			return theirs + "# mine\n"
		}), nil},
		{"an entry of systemd-boot edited", systemdBoot, "intel", sub("/boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf", `\bquiet\b`, "splash"), nil},
		{"another system's entry edited", systemdBoot, "intel", sub("/boot/efi/loader/entries/d00d-6.1.0-9-amd64.conf", `\bro\b`, "rw"), nil},
		// The file stays with what others have added.
		{"the command line that was created edited", systemdBoot, "intel", func(t testing.TB, root host.Root) {
			sub(cmdlineFile, `\bquiet\b`, "splash")(t, root)
		}, func(t testing.TB, root host.Root) {
			hosttest.Write(cmdlineFile, "root=UUID=77 ro splash systemd.machine_id=cafe\n")(t.(*testing.T), root)
		}},
		{"the command line that was created rewritten", systemdBoot, "intel", rewrite0(cmdlineFile, "intel_iommu=on iommu=pt systemd.machine_id=cafe  ro root=UUID=77 quiet\n"), func(testing.TB, host.Root) {}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.want == nil {
				test.want = test.since
			}
			untouched := hosttest.Lay(t, test.tree)
			test.want(t, untouched)
			e, root := prepared(t, test.tree, test.vendor)
			test.since(t, root)
			since := files(t, root)
			plan, err := e.PlanUndo(t.Context(), 1)
			hosttest.NoError(t, err)
			hosttest.EqualIn(t, "changed by the plan", since, files(t, root))
			if len(plan.Rewriting.ByValue)+len(plan.Rewriting.Beside) == 0 && test.name != "kernels removed" {
				byHand := strings.Contains(test.name, "by hand") || strings.Contains(test.name, "another system")
				if !byHand {
					t.Error("no file is undone by value")
				}
			}
			if _, err := e.Undo(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			hosttest.EqualIn(t, "undone", files(t, untouched), files(t, root))
		})
	}
}

func rewrite0(name, text string) func(t testing.TB, root host.Root) {
	return rewrite(name, func(string) string { return text })
}

// TestUndoRefused: a value that was changed by hand is named with its line, all of them at once,
// and nothing is changed.
func TestUndoRefused(t *testing.T) {
	for _, test := range []struct {
		name, tree string
		since      func(t testing.TB, root host.Root)
		want       []string
	}{
		{"values of entries", rhel9, all(sub(entryFile, `\biommu=pt\b`, "iommu=on"), sub(olderFile, `intel_iommu=on`, "intel_iommu=on,sm_on"), sub(cmdlineFile, ` iommu=pt`, " iommu=strict")), []string{
			cmdlineFile + ":2: iommu=strict was set since, gpustack set iommu=pt",
			olderFile + ":4: intel_iommu=on,sm_on was set since, gpustack set intel_iommu=on",
			entryFile + ":5: iommu=on was set since, gpustack set iommu=pt",
		}},
		{"a kernel installed since", rhel9, all(installKernel, sub(newerFile, `\biommu=pt`, "iommu=nopt")), []string{
			newerFile + ":4: iommu=nopt was set since, gpustack set iommu=pt",
		}},
		{"a second value", rhel9, sub(entryFile, `iommu=pt`, "iommu=pt iommu=soft"), []string{
			entryFile + ":5: iommu=pt iommu=soft was set since, gpustack set iommu=pt",
		}},
		{"kernelopts", rhel8, setEnv("kernelopts", "root=/dev/mapper/rhel-root ro intel_iommu=on"), []string{
			envFile + ":3: iommu=pt is not set any more, gpustack set it instead of iommu=soft",
		}},
		{"defaults", rhel9, all(sub(defaultsFile, ` iommu=pt`, " iommu=on")), []string{
			defaultsFile + ":6: iommu=on was set since, gpustack set iommu=pt",
		}},
		{"an argument in our part", rhel9, all(sub(defaultsFile, ` iommu=pt`, " iommu=pt audit=1")), []string{
			defaultsFile + ": GRUB_CMDLINE_LINUX would change from \"crashkernel=1G-4G:192M rd.lvm.lv=rhel/root audit=1\" to \"crashkernel=1G-4G:192M rd.lvm.lv=rhel/root\": " +
				"arguments were added to gpustack's part of the file",
		}},
		{"not an environment block", rhel8, rewrite0(envFile, "torn"), []string{envFile + ": not a GRUB environment block"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, root := prepared(t, test.tree, "intel")
			test.since(t, root)
			before := files(t, root)
			for range 2 {
				_, err := e.Undo(t.Context(), 1)
				var texts, hints []string
				for _, err := range host.Split(err) {
					texts = append(texts, err.Error())
					if hint := hintOf(err); hint != "" {
						hints = append(hints, hint)
					}
				}
				if diff := cmp.Diff(test.want, texts); diff != "" || len(hints) < len(texts)-1 {
					t.Errorf("%q (-want +got):\n%s", hints, diff)
				}
			}
			hosttest.EqualIn(t, "before and after", before, files(t, root))
		})
	}
}

func hintOf(err error) string {
	var hinted interface{ Hint() string }
	if !errors.As(err, &hinted) {
		return ""
	}
	return hinted.Hint()
}

// TestUndoOrder: an entry whose files a later one changed is undone after that one.
func TestUndoOrder(t *testing.T) {
	e, root := prepared(t, rhel9, "amd")
	before := files(t, root)
	if _, err := e.Apply(t.Context(), change.Work{Command: "host prepare --device 1:0", Change: change.Files{Root: root}.New(planBoot(t, root, "intel"))}); err != nil {
		t.Fatal(err)
	}
	booted(t, root)
	_, err := e.Undo(t.Context(), 1)
	var later *change.LaterChange
	want := "entry 2 (host prepare --device 1:0) changed " + strings.Join([]string{entryFile, cmdlineFile, defaultsFile}, ", ") + " later: undo entry 2 first"
	if !errors.As(err, &later) || err.Error() != want || hintOf(err) != "gpustack undo 2" {
		t.Errorf("%v\nwant %s", err, want)
	}
	if _, err := e.Undo(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	installKernel(t, root)
	if _, err := e.Undo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	untouched := hosttest.Lay(t, rhel9)
	all(booted, installKernel)(t, untouched)
	if diff := cmp.Diff(files(t, untouched), files(t, root)); diff != "" || maps.Equal(before, files(t, root)) {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUndoOrderOfReverted: an entry whose change a later one has reverted is undone after that one,
// which would make the change again.
func TestUndoOrderOfReverted(t *testing.T) {
	m := lay(t)
	if _, err := m.open().Apply(t.Context(), m.work()); err != nil {
		t.Fatal(err)
	}
	c, err := edit.Observe(m.root, "/etc/new.d/new").Remove("/etc/new.d/new")
	hosttest.NoError(t, err)
	if _, err := m.open().Apply(t.Context(), change.Work{Command: "test --none", Change: change.Files{Root: m.root}.New(edit.Changes{c})}); err != nil {
		t.Fatal(err)
	}
	_, err = m.open().Undo(t.Context(), 1)
	if want := "entry 2 (test --none) changed /etc/new.d/new later: undo entry 2 first"; err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if _, err := m.open().Undo(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := m.open().Undo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}

// TestUndoOfMode: a file of which only the permissions were changed since is restored byte for
// byte, and keeps them.
func TestUndoOfMode(t *testing.T) {
	e, root := prepared(t, strings.Replace(rhel9, "ro crashkernel", "ro  iommu=soft crashkernel", 1), "amd")
	hosttest.NoError(t, os.Chmod(root.Path(entryFile), 0o600))
	if _, err := e.Undo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	f, err := edit.Read(root, entryFile)
	if err != nil || f.Mode != 0o600 || !strings.Contains(string(f.Content), "ro  iommu=soft crashkernel") {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestUndoByValueInterrupted: a run that was killed at any file of an undo by value, and a machine
// that was booted since, which changes the environment block again.
func TestUndoByValueInterrupted(t *testing.T) {
	for made := range 6 {
		for _, status := range []change.Status{change.Applying, change.Undoing, change.Unbuilding} {
			e, root := prepared(t, plain8, "intel")
			all(grubby("audit=1"), installKernel)(t, root)
			plan, err := e.PlanUndo(t.Context(), 1)
			hosttest.NoError(t, err)
			back, err := plan.Change.(*change.FileChange).Back()
			hosttest.NoError(t, err)
			pending := back.Pending()
			if status == change.Unbuilding {
				made = len(pending)
			}
			for i := range min(made, len(pending)) {
				hosttest.NoError(t, pending[i].Apply(root))
			}
			setStatus(t, root, status)
			booted(t, root)
			if _, err := e.Recover(t.Context()); err != nil {
				t.Fatalf("%s, %d files: %v", status, made, err)
			}
			untouched := hosttest.Lay(t, plain8)
			all(grubby("audit=1"), installKernel, booted)(t, untouched)
			hosttest.EqualIn(t, fmt.Sprintf("%s, %d files", status, made), files(t, untouched), files(t, root))
		}
	}
}

// setStatus gives the first entry a status.
func setStatus(t testing.TB, root host.Root, status change.Status) {
	t.Helper()
	rewrite("/var/lib/gpustack/journal/0001.json", func(text string) string {
		return regexp.MustCompile(`"status": "[a-z]*"`).ReplaceAllString(text, `"status": "`+string(status)+`"`)
	})(t, root)
}

// FuzzUndoByValue: after random edits of everything but gpustack's values, undo leaves the files as
// these edits alone would.
func FuzzUndoByValue(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, "audit=1", " x")
	}
	f.Add(uint64(7), "iommux=pt,on", "gpustack end")
	f.Add(uint64(12345), "intel-iommu.x", "options iommu=pt")
	argForm := regexp.MustCompile(`^[a-z][A-Za-z0-9_.-]*(=[A-Za-z0-9:,./_+-]*)?$`)
	f.Fuzz(func(t *testing.T, seed uint64, arg, comment string) {
		name, _, _ := strings.Cut(arg, "=")
		ours := slices.Contains([]string{"iommu", "intel_iommu", "iommu.passthrough"}, strings.ReplaceAll(name, "-", "_"))
		if !argForm.MatchString(arg) || ours || len(arg) > 100 || strings.ContainsFunc(comment, unicode.IsControl) || comment == "# gpustack begin" || comment == "# gpustack end" {
			return
		}
		edits := func(t testing.TB, root host.Root) {
			random := rand.New(rand.NewPCG(seed, 0))
			for _, file := range []string{entryFile, olderFile, cmdlineFile, envFile, defaultsFile} {
				text := files(t, root)[file]
				for range random.IntN(4) {
					lines := strings.SplitAfter(text, "\n")
					at := random.IntN(3) // there are as many lines and arguments, with gpustack's or without
					if line := "#" + comment + "\n"; random.IntN(2) == 0 && file != envFile && line != "# gpustack begin\n" && line != "# gpustack end\n" {
						text = strings.Join(slices.Insert(lines, min(at, 1), line), "")
						continue
					}
					for i, line := range lines {
						front, args, ok := strings.Cut(line, " ") // after the first argument or the key
						if ok && (strings.Contains(front, "options") || strings.Contains(front, "root=") || strings.HasPrefix(front, "GRUB_CMDLINE_LINUX=\"crash")) {
							lines[i] = front + strings.Repeat(" ", at+1) + arg + " " + args
						}
					}
					text = strings.Join(lines, "")
				}
				if file == envFile {
					text = grubenv(strings.TrimPrefix(strings.TrimRight(text, "#\n")+"\n", "# GRUB Environment Block\n"))
				}
				rewrite0(file, text)(t, root)
			}
		}
		untouched := hosttest.Lay(t, plain8)
		edits(t, untouched)
		e, root := prepared(t, plain8, "intel")
		edits(t, root)
		if _, err := e.Undo(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		hosttest.Equal(t, files(t, untouched), files(t, root))
	})
}
