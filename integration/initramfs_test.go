package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// makeInitramfs makes an initramfs of a prepared node with initramfs-tools' own
// programs, in a mount namespace where the node's modules and configuration are the
// machine's, and unpacks it.
func makeInitramfs(t *testing.T, root, kernel string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "initramfs")
	cmd := exec.Command("unshare", "--mount", "sh", "-ec", `
		mount -t tmpfs tmpfs /mnt
		mkdir /mnt/upper /mnt/work
		# The machine's own folders, with what the node has put over them.
		mount -t overlay overlay -o lowerdir=/etc/initramfs-tools,upperdir=/mnt/upper,workdir=/mnt/work /etc/initramfs-tools
		cp -a "$ROOT/etc/initramfs-tools/hooks" "$ROOT/etc/initramfs-tools/scripts" /etc/initramfs-tools
		mount --bind "$ROOT/etc/modprobe.d" /etc/modprobe.d
		mkdir /mnt/modules /mnt/lib /mnt/boot
		mount -t overlay overlay -o lowerdir=/lib,upperdir=/mnt/modules,workdir=/mnt/lib /lib
		mkdir -p /lib/modules
		cp -r "$ROOT/lib/modules/$KERNEL" /lib/modules
		touch "/lib/modules/$KERNEL/modules.order"
		mount --bind /mnt/boot /boot
		echo CONFIG_RD_GZIP=y > "/boot/config-$KERNEL"
		mkinitramfs -c gzip -o /boot/initrd.img "$KERNEL"
		unmkinitramfs /boot/initrd.img "$DIR"`)
	cmd.Env = append(os.Environ(), "ROOT="+root, "KERNEL="+kernel, "DIR="+dir)
	if _, talk, status := try(t, cmd); status != 0 {
		t.Fatalf("exit status %d: %s", status, talk)
	}
	return dir
}

// TestInitramfs: initramfs-tools takes our files as they are, and runs our script
// before udev's. In the initramfs' own shell the script takes just the functions
// that are still what they were, and nothing with gpustack=off.
func TestInitramfs(t *testing.T) {
	root := unpack(t, examples(t)["workstation-twins.txtar"])
	run(t, gpustack, "host", "prepare", "--root", root, "--device", "0000:65:00.0", "--yes")
	dir := makeInitramfs(t, root, "6.1.0-28-amd64")

	order := read(t, filepath.Join(dir, "scripts/init-top/ORDER"))
	ours, udev := strings.Index(order, "/scripts/init-top/gpustack "), strings.Index(order, "/scripts/init-top/udev ")
	if ours < 0 || udev < 0 || udev < ours {
		t.Errorf("order:\n%s", order)
	}
	if got, want := read(t, filepath.Join(dir, "etc/modprobe.d/zz-gpustack.conf")), read(t, filepath.Join(root, "etc/modprobe.d/zz-gpustack.conf")); got != want {
		t.Errorf("modprobe.d in the initramfs:\n%s", got)
	}

	for _, test := range []struct {
		name, cmdline, device string
		want                  map[string]string // files that the script writes
	}{
		{"as recorded", "quiet", "0x1eb1", map[string]string{
			"65:00.0/driver_override": "vfio-pci", "65:00.0/driver/unbind": "0000:65:00.0",
			"65:00.1/driver_override": "vfio-pci", "65:00.2/driver_override": "vfio-pci", "65:00.3/driver_override": "vfio-pci",
			"drivers_probe": "0000:65:00.3",
		}},
		{"renumbered", "quiet", "0x1533", map[string]string{
			"65:00.0/driver_override": "(null)", "65:00.0/driver/unbind": "",
			"65:00.1/driver_override": "vfio-pci", "65:00.2/driver_override": "vfio-pci", "65:00.3/driver_override": "vfio-pci",
			"drivers_probe": "0000:65:00.3",
			"kmsg":          "gpustack: 0000:65:00.0 is not 0x10de:0x1eb1, left alone",
		}},
		{"switched off", "quiet gpustack=off splash", "0x1eb1", map[string]string{
			"65:00.0/driver_override": "(null)", "65:00.0/driver/unbind": "",
			"65:00.1/driver_override": "(null)", "65:00.2/driver_override": "(null)", "65:00.3/driver_override": "(null)",
			"off": "options vfio-pci ids=",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			devices := "sys/bus/pci/devices"
			files := map[string]string{"proc/cmdline": test.cmdline, "dev/kmsg": "", "sys/bus/pci/drivers_probe": ""}
			for f, product := range map[string]string{"0": test.device, "1": "0x10f8", "2": "0x1ad8", "3": "0x1ad9"} {
				at := devices + "/0000:65:00." + f
				files[at+"/vendor"], files[at+"/device"], files[at+"/driver_override"] = "0x10de\n", product+"\n", "(null)\n"
			}
			files[devices+"/0000:65:00.0/driver/unbind"] = ""
			for name, text := range files {
				file := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if _, talk, status := try(t, exec.Command("chroot", dir, "sh", "/scripts/init-top/gpustack")); status != 0 {
				t.Fatalf("exit status %d: %s", status, talk)
			}
			got := map[string]string{}
			for short, name := range map[string]string{
				"65:00.0/driver_override": devices + "/0000:65:00.0/driver_override", "65:00.0/driver/unbind": devices + "/0000:65:00.0/driver/unbind",
				"65:00.1/driver_override": devices + "/0000:65:00.1/driver_override", "65:00.2/driver_override": devices + "/0000:65:00.2/driver_override",
				"65:00.3/driver_override": devices + "/0000:65:00.3/driver_override",
				"drivers_probe":           "sys/bus/pci/drivers_probe", "kmsg": "dev/kmsg", "off": "run/modprobe.d/zzzzz-gpustack-off.conf",
			} {
				text, err := os.ReadFile(filepath.Join(dir, name))
				if _, wanted := test.want[short]; err == nil && (wanted || len(text) > 0) {
					got[short] = strings.TrimSpace(string(text))
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
