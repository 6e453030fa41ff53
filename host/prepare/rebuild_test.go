package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"syscall"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/prepare"
)

const (
	menu     = "/boot/grub/grub.cfg"
	menuCopy = "/var/lib/gpustack/kept/boot_grub_grub.cfg"
)

func menuOf(kernels ...string) string {
	var b strings.Builder
	for _, kernel := range kernels {
		b.WriteString("menuentry '" + kernel + "' {\n\tlinux /boot/vmlinuz-" + kernel + " root=UUID=a ro quiet\n}\n")
	}
	return b.String()
}

// TestCopies: what an earlier run that failed or was killed left in /var/lib/gpustack/kept
// replaces a file only if the file is still what that run left. The program fails in each
// case: it is not installed.
func TestCopies(t *testing.T) {
	older, newer := menuOf("6.1.0-1"), menuOf("6.1.0-2", "6.1.0-1")
	for _, test := range []struct {
		name, file, copied string
		want               string
		written            bool
	}{
		{"no copy", newer, "", newer, false},
		{"a copy of the same content", newer, newer, newer, false},
		{"a file that was replaced since", newer, older, newer, false},
		{"a file that the program was killed in", newer[:10], older, older, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := "-- boot/grub/grub.cfg --\n" + test.file
			if test.copied != "" {
				tree += "\n-- var/lib/gpustack/kept/boot_grub_grub.cfg --\n"
			}
			root := hosttest.Lay(t, tree)
			write(menu, test.file)(t, root)
			if test.copied != "" {
				write(menuCopy, test.copied)(t, root)
				stamp, err := edit.Stamp(root, menuCopy)
				hosttest.NoError(t, err)
				write(menuCopy+".json", fmt.Sprintf(`{"file":%q,"before":%q,"after":null}`, menu, stamp))(t, root)
			}
			before := inode(t, root, menu)
			err := prepare.Rebuild(context.Background(), host.Runner{Root: root}, host.Program{Kind: host.UpdateGrub})
			if !errors.Is(err, host.ErrNoProgram) {
				t.Errorf("%v", err)
			}
			text, err := root.ReadFile(menu)
			hosttest.NoError(t, err)
			hosttest.Equal(t, test.want, string(text))
			if written := inode(t, root, menu) != before; written != test.written {
				t.Errorf("written: %t, want %t", written, test.written)
			}
			if names, err := root.ReadDir("/var/lib/gpustack/kept"); !host.IsAbsent(err) {
				t.Errorf("copies are left: %v, %v", names, err)
			}
		})
	}
}

// TestCopyRecords: a copy whose record says what the program left is put back over that and
// over nothing else. What belongs to no file any more goes.
func TestCopyRecords(t *testing.T) {
	older, left := menuOf("6.1.0-1"), strings.ReplaceAll(menuOf("6.1.0-1"), "UUID=a", "/dev/loop0p2")
	const orphan = "/var/lib/gpustack/kept/boot_initrd.img-5.10.0"
	for _, test := range []struct {
		name, file, want string
	}{
		{"what the program left", left, older},
		{"what was there before", older, older},
		{"replaced since", menuOf("6.1.0-2"), menuOf("6.1.0-2")},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, "mkdir boot\n")
			record := func(file string) string {
				write(menu, left)(t, root)
				after, err := edit.Stamp(root, menu)
				hosttest.NoError(t, err)
				write(menu, older)(t, root)
				before, err := edit.Stamp(root, menu)
				hosttest.NoError(t, err)
				return fmt.Sprintf(`{"file":%q,"before":%q,"after":%q}`, file, before, after)
			}
			steps(write(menuCopy, older), write(menuCopy+".json", record(menu)),
				write(orphan, "x"), write(orphan+".json", record("/boot/initrd.img-5.10.0")), write(menu, test.file))(t, root)
			if err := prepare.Rebuild(context.Background(), host.Runner{Root: root}, host.Program{Kind: host.UpdateGrub}); !errors.Is(err, host.ErrNoProgram) {
				t.Errorf("%v", err)
			}
			text, err := root.ReadFile(menu)
			if diff := cmp.Diff(test.want, string(text)); diff != "" || err != nil {
				t.Errorf("(-want +got):\n%s%v", diff, err)
			}
			if names, err := root.ReadDir("/var/lib/gpustack/kept"); !host.IsAbsent(err) {
				t.Errorf("copies are left: %v, %v", names, err)
			}
		})
	}
}

// TestCopyOfMissingFile: a file that is missing is put back if a program that was cut off had it to
// make, and if the run was putting it back: on a full boot partition the file is removed first.
func TestCopyOfMissingFile(t *testing.T) {
	const (
		image = "/boot/initrd.img-6.1.0-28-amd64"
		kept  = "/var/lib/gpustack/kept/boot_initrd.img-6.1.0-28-amd64"
		dir   = "mkdir boot\nmkdir lib/modules/6.1.0-28-amd64\n-- lib/modules/6.1.0-28-amd64/modules.dep --\n"
	)
	for _, test := range []struct {
		name, record string
		program      host.Program
		back         bool
	}{
		{"cut off while it was put back", `"after":"sha256:x 644 0:0","restoring":true`, host.Program{Kind: host.UpdateInitramfs}, true},
		{"the program had removed it", `"after":""`, host.Program{Kind: host.UpdateInitramfs}, true},
		{"removed since", `"after":"sha256:x 644 0:0"`, host.Program{Kind: host.UpdateInitramfs}, false},
		{"the program that makes it was cut off", `"after":null`, host.Program{Kind: host.Dracut, File: image, Release: "6.1.0-28-amd64"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, dir)
			steps(write(kept, "image"), write(kept+".json", fmt.Sprintf(`{"file":%q,"before":"sha256:y 644 0:0",%s}`, image, test.record)))(t, root)
			if err := prepare.Rebuild(context.Background(), host.Runner{Root: root}, test.program); !errors.Is(err, host.ErrNoProgram) {
				t.Errorf("%v", err)
			}
			if text, err := root.ReadFile(image); host.IsAbsent(err) == test.back || test.back && string(text) != "image" {
				t.Errorf("%q, %v", text, err)
			}
			if names, err := root.ReadDir("/var/lib/gpustack/kept"); !host.IsAbsent(err) {
				t.Errorf("copies are left: %v, %v", names, err)
			}
		})
	}
}

func inode(t *testing.T, root host.Root, name string) uint64 {
	t.Helper()
	info, err := os.Stat(root.Path(name))
	hosttest.NoError(t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}
