package integration

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// upgradeKernel is the one kernel of the machines in testdata/upgrade.
const upgradeKernel = "6.1.0-28-amd64"

// An upgrade is a machine that an earlier commit has prepared. In the folder testdata/upgrade/COMMIT
// are NAME.txtar, the machine before, and NAME-prepared.txtar, the files that were different after
//
//	gpustack host prepare --root NAME --device 10de:11b4 --device 0000:04:00.0 --yes
//
// with the binary of that commit. Two GPUs are bound by their ids, and one of two identical network
// cards is bound by its address.
type upgrade struct {
	commit, name string
	arguments    string            // of the kernel, before
	image        string            // in which the generator had put the files
	inImage      map[string]string // its files, by those of the machine
	moves        []string          // files that this commit changes
}

var upgrades = []upgrade{
	{
		"eb4dd60", "debian", "root=UUID=a ro quiet", "boot/initrd.img-" + upgradeKernel, map[string]string{
			"scripts/init-top/gpustack":       "etc/initramfs-tools/scripts/init-top/gpustack",
			"etc/modprobe.d/zz-gpustack.conf": "etc/modprobe.d/zz-gpustack.conf",
		},
		[]string{
			"/etc/modprobe.d/zz-gpustack.conf", "/etc/initramfs-tools/hooks/gpustack", "/etc/initramfs-tools/scripts/init-top/gpustack",
			"/var/lib/gpustack/contract.json",
		},
	},
	{
		"eb4dd60", "rhel9", "root=/dev/mapper/rhel-root ro rhgb quiet", "boot/initramfs-" + upgradeKernel + ".img", map[string]string{
			"usr/lib/dracut/hooks/pre-udev/00-gpustack.sh": "usr/lib/dracut/modules.d/99gpustack/gpustack.sh",
			"etc/modprobe.d/zz-gpustack.conf":              "etc/modprobe.d/zz-gpustack.conf",
		},
		[]string{
			"/etc/modprobe.d/zz-gpustack.conf", "/usr/lib/dracut/modules.d/99gpustack/module-setup.sh", "/usr/lib/dracut/modules.d/99gpustack/gpustack.sh",
			"/var/lib/gpustack/contract.json",
		},
	},
}

// TestUpgrade: a machine that an earlier commit has prepared is ready. The next host prepare changes
// only what this commit does differently. undo restores the machine byte for byte, with that change
// or without.
func TestUpgrade(t *testing.T) {
	for _, u := range upgrades {
		t.Run(u.commit+"-"+u.name, func(t *testing.T) {
			root := u.prepared(t)
			var report struct{ Verdict string }
			out, talk, status := try(t, exec.Command(gpustack, "host", "check", "--root", root, "-o", "json"))
			if err := json.Unmarshal([]byte(out), &report); err != nil || report.Verdict != "ready" || status != 0 {
				t.Errorf("check: exit status %d, %v\n%s%s", status, err, out, talk)
			}
			var plan struct {
				Changes []struct{ File string }
			}
			out, talk, status = try(t, exec.Command(gpustack, "host", "prepare", "--root", root, "--dry-run", "-o", "json"))
			if err := json.Unmarshal([]byte(out), &plan); err != nil || status != 2 {
				t.Fatalf("prepare: exit status %d, %v\n%s%s", status, err, out, talk)
			}
			var moves []string
			for _, c := range plan.Changes {
				moves = append(moves, c.File)
			}
			if diff := cmp.Diff(u.moves, moves); diff != "" {
				t.Errorf("moves (-want +got):\n%s", diff)
			}

			first := u.lay(t)
			prepared := u.files(t, root)
			run(t, gpustack, "undo", "--root", root, "--yes")
			if diff := cmp.Diff(u.files(t, first), u.files(t, root)); diff != "" {
				t.Errorf("undone (-first +last):\n%s", diff)
			}

			root = u.prepared(t)
			run(t, gpustack, "host", "prepare", "--root", root, "--yes")
			run(t, gpustack, "undo", "--root", root, "--yes")
			if diff := cmp.Diff(prepared, u.files(t, root)); diff != "" {
				t.Errorf("the move undone (-before +after):\n%s", diff)
			}
			run(t, gpustack, "undo", "--root", root, "--yes")
			if diff := cmp.Diff(u.files(t, first), u.files(t, root)); diff != "" {
				t.Errorf("both undone (-first +last):\n%s", diff)
			}
		})
	}
}

func (u upgrade) file(suffix string) string {
	return filepath.Join("testdata/upgrade", u.commit, u.name+suffix+".txtar")
}

// lay lays out the machine before.
func (u upgrade) lay(t *testing.T) (root string) {
	t.Helper()
	return unpack(t, u.file(""))
}

// prepared lays out the machine after it was prepared and booted.
func (u upgrade) prepared(t *testing.T) (root string) {
	t.Helper()
	root = u.lay(t)
	archive, err := txtar.ParseFile(u.file("-prepared"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string, mode fs.FileMode) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range archive.Files {
		mode := fs.FileMode(0o644)
		switch {
		case strings.HasPrefix(string(f.Data), "#!"):
			mode = 0o755
		case strings.HasPrefix(f.Name, "var/"):
			mode = 0o600
		}
		write(f.Name, string(f.Data), mode)
	}
	// The boot: the kernel's arguments, when it was, and what holds the functions.
	write("proc/cmdline", u.arguments+" intel_iommu=on iommu=pt\n", 0o644)
	write("proc/stat", "btime 1800000000\n", 0o644)
	if menu := filepath.Join(root, "boot/grub/grub.cfg"); exists(menu) { // which update-grub made
		write("boot/grub/grub.cfg", strings.Replace(read(t, menu), "quiet", "quiet intel_iommu=on iommu=pt", 1), 0o644)
	}
	for _, function := range []string{"01:00.0", "01:00.1", "02:00.0", "02:00.1", "04:00.0"} {
		link := filepath.Join(root, "sys/bus/pci/devices/0000:"+function, "driver")
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../../../bus/pci/drivers/vfio-pci", link); err != nil {
			t.Fatal(err)
		}
	}
	u.compose(t, root)
	return root
}

// compose makes the initramfs as the generator had, as far as gpustack looks at it.
func (u upgrade) compose(t *testing.T, root string) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"init": "", "usr/lib/systemd/systemd": "", "etc/systemd/system/initrd.target.wants/dracut-pre-udev.service": "",
		"scripts/init-top/ORDER": "/scripts/init-top/gpustack \"$@\"\n/scripts/init-top/udev \"$@\"\n",
	}
	for name, from := range u.inImage {
		files[name] = read(t, filepath.Join(root, from))
	}
	for _, module := range []string{"vfio", "vfio_iommu_type1", "vfio-pci"} {
		files["usr/lib/modules/"+upgradeKernel+"/kernel/"+module+".ko"] = ""
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-ec", `find . | cpio --quiet -o -H newc >"$0"`, filepath.Join(root, u.image))
	cmd.Dir = dir
	if _, talk, status := try(t, cmd); status != 0 {
		t.Fatalf("cpio: exit status %d: %s", status, talk)
	}
}

// files returns modes and contents of the files below a root, apart from what the kernel shows, what
// programs make, and gpustack's own state.
func (u upgrade) files(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		switch {
		case err != nil:
			return err
		case name == "sys" || name == "proc" || name == "var":
			return fs.SkipDir
		case name == u.image || name == "boot/grub/grub.cfg":
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files[name] = info.Mode().String()
		if d.Type().IsRegular() {
			files[name] += "\n" + read(t, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
