package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// editFile replaces a text in a file, which must contain it.
func editFile(t testing.TB, root, name, from, to string) {
	t.Helper()
	file := filepath.Join(root, name)
	text := hosttest.Read(t, file)
	if !strings.Contains(text, from) {
		t.Fatalf("%s: no %q in %q", name, from, text)
	}
	hosttest.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, from, to)), 0o644))
}

// rewritten is a machine with RHEL 8 that was changed by others: grub-editenv sets variables as
// GRUB and a kernel's package do, an argument is added to kernelopts and to an entry, and a kernel
// is installed.
func rewritten(t testing.TB, root string) {
	t.Helper()
	env := filepath.Join(root, "boot/grub2/grubenv")
	opts := ""
	for line := range strings.Lines(run(t, "grub-editenv", env, "list")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "kernelopts="); ok {
			opts = value
		}
	}
	run(t, "grub-editenv", env, "set", "boot_success=1", "saved_entry=f00d-later", "kernelopts="+opts+" audit=1")
	editFile(t, root, "boot/loader/entries/f00d-kept.conf", " ro", "  ro audit=1")
	later := "version 4.18.0-999\nlinux /vmlinuz-later\noptions " + strings.TrimSpace(hosttest.Read(t, filepath.Join(root, "etc/kernel/cmdline"))) + "\n"
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "boot/loader/entries/f00d-later.conf"), []byte(later), 0o644))
}

// withoutOff removes an argument that conflicts with gpustack's from a machine: one that gpustack
// has replaced comes back at the end of the line.
func withoutOff(t testing.TB) string {
	t.Helper()
	root := rhel(t)
	env := filepath.Join(root, "boot/grub2/grubenv")
	run(t, "grub-editenv", env, "set", "kernelopts=root=/dev/mapper/rhel-root ro quiet")
	return root
}

// TestUndoByValueKilled ends the undo of a machine that others have changed at each system call
// that changes something. GRUB then boots the machine and writes to its environment block, and the
// next run completes the undo. GRUB's own program reads the result.
func TestUndoByValueKilled(t *testing.T) {
	undoIt := func(root string) []string { return []string{gpustack, "undo", "--root", root, "--yes"} }
	lay := func(t testing.TB) string {
		t.Helper()
		root := withoutOff(t)
		run(t, gpustack, "host", "prepare", "--root", root, "--yes")
		rewritten(t, root)
		return root
	}
	untouched := withoutOff(t)
	rewritten(t, untouched)
	booted := func(t testing.TB, root string) string {
		t.Helper()
		env := filepath.Join(root, "boot/grub2/grubenv")
		run(t, "grub-editenv", env, "set", "boot_success=0", "boot_indeterminate=1")
		return run(t, "grub-editenv", env, "list")
	}
	variables := booted(t, untouched)
	want := configured(t, untouched)

	whole := lay(t)
	run(t, gpustack, "undo", "--root", whole, "--yes")
	booted(t, whole)
	if diff := cmp.Diff(want, configured(t, whole)); diff != "" {
		t.Fatalf("undone (-want +got):\n%s", diff)
	}
	for _, place := range trace(t, undoIt, lay(t)) {
		t.Run(fmt.Sprintf("%s %d", place.call, place.nth), func(t *testing.T) {
			t.Parallel()
			root := lay(t)
			argv := append([]string{"-f", "-qq", "-o", "/dev/null", "-e", "trace=" + place.call,
				"-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", place.call, place.nth)}, undoIt(root)...)
			if out, err := exec.Command("strace", argv...).CombinedOutput(); err == nil {
				t.Fatalf("gpustack was not killed: %s", out)
			}
			booted(t, root)
			argv = undoIt(root)
			if _, talk, status := try(t, exec.Command(argv[0], argv[1:]...)); status != 0 && !strings.Contains(talk, "nothing to undo") {
				t.Errorf("undone again: exit status %d, %s", status, talk)
			}
			hosttest.EqualIn(t, "in the end", want, configured(t, root))
			hosttest.EqualIn(t, "GRUB reads", variables, run(t, "grub-editenv", filepath.Join(root, "boot/grub2/grubenv"), "list"))
		})
	}
}
