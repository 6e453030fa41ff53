package integration

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"golang.org/x/sys/unix"
)

// inPlace lays out the talk's node with a grub-mkconfig that reads no folder, so
// that preparing it changes a file of somebody else too.
func inPlace(t testing.TB) (root string) {
	t.Helper()
	root = unpack(t, examples(t)["talk-2xk4200.txtar"])
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "usr/sbin/grub-mkconfig"), []byte("#!/bin/sh\n"), 0o755))
	return root
}

// configured returns what is below etc and var, but for the journal, and what starts
// kernels and makes initramfs: modes, owners and contents by name.
func configured(t testing.TB, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, top := range []string{"etc", "boot/loader", "boot/grub2", "boot/efi/loader", "usr/lib/dracut", "var"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(name string, d os.DirEntry, err error) error {
			below := strings.TrimPrefix(name, root)
			if os.IsNotExist(err) && below == "/"+top {
				return nil
			}
			if err != nil {
				return err
			}
			if slices.Contains([]string{"/var", "/var/lib", "/var/lib/gpustack"}, below) {
				return nil // made to hold the journal, which stays
			}
			if below == "/var/lib/gpustack/journal" {
				return filepath.SkipDir
			}
			var stat unix.Stat_t
			if err := unix.Lstat(name, &stat); err != nil {
				return err
			}
			files[below] = fmt.Sprintf("%o %d:%d", stat.Mode, stat.Uid, stat.Gid)
			if d.Type().IsRegular() {
				text, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				files[below] += "\n" + string(text)
			}
			return nil
		})
		hosttest.NoError(t, err)
	}
	return files
}

// mutating are the system calls by which gpustack changes a machine, as Go makes
// them.
var mutating = []string{"mkdirat", "write", "fchmod", "fchown", "fsetxattr", "fsync", "renameat", "unlinkat", "flock"}

// TestKilled ends prepare and undo at each system call that changes something, on three
// distributions. No file is ever torn, the next run puts right what was left, and undo
// restores.
func TestKilled(t *testing.T) {
	for _, machine := range []struct {
		name string
		lay  func(t testing.TB) (root string)
	}{
		{"Ubuntu, in place", inPlace},
		{"RHEL 8", rhel},
		{"Debian with systemd-boot", systemdBootTree},
	} {
		t.Run(machine.name, func(t *testing.T) { killed(t, machine.lay) })
	}
}

// rhel is the talk's node with RHEL 8, where arguments stand in GRUB's environment and
// dracut makes the initramfs.
func rhel(t testing.TB) (root string) {
	t.Helper()
	const environment = "# GRUB Environment Block\nkernelopts=root=/dev/mapper/rhel-root ro intel_iommu=off quiet\n"
	return layTalk(t, map[string]string{
		"etc/os-release":      "ID=rhel\nVERSION_ID=8.10\n",
		"etc/default/grub":    "GRUB_CMDLINE_LINUX=\"quiet\"\nGRUB_ENABLE_BLSCFG=true\n",
		"etc/kernel/cmdline":  "root=/dev/mapper/rhel-root ro quiet\n",
		"boot/grub2/grub.cfg": "blscfg\n",
		"boot/grub2/grubenv":  environment + strings.Repeat("#", 1024-len(environment)),
		"boot/loader/entries/f00d-" + nodeKernel + ".conf": "version " + nodeKernel + "\nlinux /vmlinuz\noptions $kernelopts $tuned_params\n",
		"boot/loader/entries/f00d-kept.conf":               "version 4.4.0-1\nlinux /vmlinuz\noptions root=/dev/mapper/rhel-root ro\n",
		"boot/initramfs-" + nodeKernel + ".img":            "",
		"usr/bin/dracut":                                   "",
	}, "boot/grub", "usr/sbin/grub-mkconfig", "etc/initramfs-tools")
}

// systemdBootTree is the talk's node, started by systemd-boot.
func systemdBootTree(t testing.TB) (root string) {
	t.Helper()
	files := maps.Clone(withSystemdBoot)
	files[nodeEntry] = "machine-id " + nodeMachine + "\nversion " + nodeKernel + "\nlinux /linux\ninitrd /initrd\noptions " + nodeRoot + " ro intel_iommu=off\n"
	return layTalk(t, files, "boot/grub", "etc/default")
}

// layTalk lays out the talk's node, without some of its files and with others over it.
func layTalk(t testing.TB, files map[string]string, without ...string) (root string) {
	t.Helper()
	root = unpack(t, examples(t)["talk-2xk4200.txtar"])
	for _, name := range without {
		hosttest.NoError(t, os.RemoveAll(filepath.Join(root, name)))
	}
	for name, text := range files {
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		hosttest.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	return root
}

func killed(t *testing.T, lay func(testing.TB) string) {
	first := lay(t)
	before := configured(t, first)
	prepareIt := func(root string) []string {
		return []string{gpustack, "host", "prepare", "--root", root, "--yes"}
	}
	undoIt := func(root string) []string { return []string{gpustack, "undo", "--root", root, "--yes"} }
	do := func(t testing.TB, argv []string) { run(t, argv[0], argv[1:]...) }
	prepared := lay(t)
	do(t, prepareIt(prepared))
	after := configured(t, prepared)

	for _, stage := range []struct {
		name    string
		argv    func(root string) []string
		lay     func(t testing.TB) string
		further func(t *testing.T, root string)
	}{
		{"prepare", prepareIt, lay, func(t *testing.T, root string) {
			do(t, prepareIt(root))
			hosttest.EqualIn(t, "prepared again", after, configured(t, root))
			do(t, undoIt(root))
		}},
		{"undo", undoIt, func(t testing.TB) string {
			root := lay(t)
			do(t, prepareIt(root))
			return root
		}, func(t *testing.T, root string) {
			argv := undoIt(root)
			if _, talk, status := try(t, exec.Command(argv[0], argv[1:]...)); status != 0 && !strings.Contains(talk, "nothing to undo") {
				t.Errorf("undone again: exit status %d, %s", status, talk)
			}
		}},
	} {
		places := trace(t, stage.argv, stage.lay(t))
		t.Logf("%s: %d places", stage.name, len(places))
		if len(places) < 40 {
			t.Errorf("%s: %d places", stage.name, len(places))
		}
		for _, place := range places {
			t.Run(fmt.Sprintf("%s at %s %d", stage.name, place.call, place.nth), func(t *testing.T) {
				t.Parallel()
				root := stage.lay(t)
				argv := append([]string{"-f", "-qq", "-o", "/dev/null", "-e", "trace=" + place.call,
					"-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", place.call, place.nth)}, stage.argv(root)...)
				cmd := exec.Command("strace", argv...)
				if out, err := cmd.CombinedOutput(); err == nil {
					t.Fatalf("it was not killed: %s", out)
				}
				for name, text := range configured(t, root) {
					if base := filepath.Base(name); strings.HasPrefix(base, ".gpustack-") {
						if !strings.HasSuffix(base, "~") {
							t.Errorf("%s could be read by another program", name)
						}
						continue
					}
					if text != before[name] && text != after[name] {
						t.Errorf("torn: %s\n%s", name, text)
					}
				}
				stage.further(t, root)
				hosttest.EqualIn(t, "in the end", before, configured(t, root))
			})
		}
	}
}

// place is the nth time that one system call is made.
type place struct {
	call string
	nth  int
}

// trace returns every place at which a run changes something, and makes sure that
// it is always one thread that does: strace counts by thread.
func trace(t *testing.T, argv func(string) []string, root string) []place {
	t.Helper()
	log := filepath.Join(t.TempDir(), "trace")
	run(t, "strace", append([]string{"-f", "-qq", "-o", log, "-e", "trace=" + strings.Join(mutating, ",")}, argv(root)...)...)
	var places []place
	counts := map[string]int{}
	threads := map[string]bool{}
	for line := range strings.Lines(hosttest.Read(t, log)) {
		m := regexp.MustCompile(`^(\d+) +(\w+)\((\d*)`).FindStringSubmatch(line)
		if m == nil || !slices.Contains(mutating, m[2]) {
			continue
		}
		thread, call, fd := m[1], m[2], m[3]
		if call == "write" && (fd == "1" || fd == "2") || call == "write" && strings.Contains(line, `"\1\0\0\0\0\0\0\0"`) {
			continue // talk, and the Go runtime waking itself
		}
		threads[thread] = true
		counts[thread+call]++
		places = append(places, place{call, counts[thread+call]})
	}
	if len(threads) != 1 || len(places) < 10 {
		t.Fatalf("%d places in threads %v", len(places), slices.Collect(maps.Keys(threads)))
	}
	return places
}

// TestDisks: what the disk refuses is one clear error, and nothing is changed.
func TestDisks(t *testing.T) {
	for _, test := range []struct {
		name, mount string // shell, in a mount namespace of its own, with $ROOT
		want        string // of what is said
	}{
		{"full below etc", `cp -a $ROOT/etc $ROOT/../etc; mount -t tmpfs -o size=64k tmpfs $ROOT/etc; cp -a $ROOT/../etc/. $ROOT/etc; fill $ROOT/etc`,
			"/etc/default/grub: no space left on device"},
		{"full where the journal is", `mount -t tmpfs -o size=16k tmpfs $ROOT/var; fill $ROOT/var`,
			"/var/lib/gpustack/journal/0001.json: no space left on device"},
		{"read only", `mount --bind $ROOT $ROOT; mount -o remount,ro,bind $ROOT`, "/var/lib/gpustack: read-only file system"},
		{"a file that is mounted", `mount --bind $ROOT/etc/default/grub $ROOT/etc/default/grub`, "/etc/default/grub: is a mount point, and cannot be replaced"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := inPlace(t)
			before := configured(t, root)
			cmd := exec.Command("unshare", "--mount", "sh", "-ec", `
				# fill FOLDER, which must be a small file system of its own.
				fill() {
					mountpoint -q "$1"
					dd if=/dev/zero of="$1/fill" bs=1k count=1k 2>/dev/null && exit 98
					true
				}
				`+test.mount+`
				set +e
				find $ROOT/etc $ROOT/var 2>/dev/null | sort > $ROOT/../first
				`+gpustack+` host prepare --root $ROOT --yes -o json
				status=$?
				find $ROOT/etc $ROOT/var 2>/dev/null | sort | cmp - $ROOT/../first || exit 99
				exit $status`)
			cmd.Env = append(os.Environ(), "ROOT="+root)
			_, talk, status := try(t, cmd)
			if status != 1 || !strings.HasPrefix(talk, "gpustack: error: "+test.want+"\n") {
				t.Errorf("exit status %d, %s, want %s", status, talk, test.want)
			}
			if strings.Contains(test.mount, "tmpfs $ROOT/etc") {
				return // what was there is gone with the mount
			}
			hosttest.EqualIn(t, "before and after", before, configured(t, root))
		})
	}
}

// TestLockHeld: while one gpustack works on a machine, another does not.
func TestLockHeld(t *testing.T) {
	root := inPlace(t)
	dir := filepath.Join(root, "var/lib/gpustack/journal")
	hosttest.NoError(t, os.MkdirAll(dir, 0o700))
	held, err := os.Open(dir)
	hosttest.NoError(t, err)
	defer held.Close()
	hosttest.NoError(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	before := configured(t, root)
	_, talk, status := try(t, exec.Command(gpustack, "host", "prepare", "--root", root, "--yes"))
	want := "gpustack: error: /var/lib/gpustack/journal: another gpustack is changing this machine\ngpustack: hint: wait until it has ended\n"
	if status != 1 || talk != want {
		t.Errorf("exit status %d, %s", status, talk)
	}
	hosttest.EqualIn(t, "before and after", before, configured(t, root))
}

// TestAsked: on a terminal the plan is shown and then asked for; only yes goes on.
func TestAsked(t *testing.T) {
	for answer, done := range map[string]bool{"y": true, "yes": true, "n": false, "": false} {
		root := inPlace(t)
		out, status := onTerminal(t, answer+"\n", "host", "prepare", "--root", root)
		plan, after, asked := strings.Cut(out, "gpustack: apply this plan? [y/n/d/?] ")
		if !asked || !strings.Contains(plan, "+++ /etc/default/grub") || (status == 0) != done {
			t.Errorf("%q: exit status %d:\n%s", answer, status, out)
		}
		want := "gpustack: nothing was changed"
		if done {
			want = "gpustack: done, recorded as entry 1"
		}
		if _, err := os.Stat(filepath.Join(root, "var/lib/gpustack")); !strings.Contains(after, want) || (err == nil) != done {
			t.Errorf("%q: %s, %v", answer, after, err)
		}
	}
}
