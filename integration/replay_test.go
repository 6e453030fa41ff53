package integration

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// replays reports where a machine and its unpacked snapshot differ in what host check, host prepare
// --dry-run print of them.
func replays(t *testing.T, root string) {
	t.Helper()
	file, again := filepath.Join(t.TempDir(), "node.txtar"), filepath.Join(t.TempDir(), "again")
	run(t, gpustack, "host", "snapshot", file, "--identity", "--root", root)
	run(t, gpustack, "host", "unpack", file, again)
	commands := []string{"host check -o json", "host prepare --dry-run -o json", "host prepare --dry-run --none -o json", "container check --all"}
	for _, address := range adaptersOf(t, root) {
		of := " --dry-run -o json --device " + address + " --vfs 2 --for "
		commands = append(commands, "rdma prepare"+of+"guests", "rdma prepare"+of+"containers --netns exclusive", "container prepare --dry-run -o json --hca "+address)
	}
	for _, command := range commands {
		hosttest.EqualIn(t, command, shown(t, command, root), shown(t, command, again))
	}
}

// adaptersOf returns the PCI addresses of a machine's RDMA adapters.
func adaptersOf(t *testing.T, root string) (addresses []string) {
	t.Helper()
	devices, err := filepath.Glob(filepath.Join(root, "sys/class/infiniband/*"))
	hosttest.NoError(t, err)
	for _, device := range devices {
		if place, err := filepath.EvalSymlinks(device); err == nil && filepath.Base(filepath.Dir(place)) == "infiniband" {
			addresses = append(addresses, filepath.Base(filepath.Dir(filepath.Dir(place))))
		}
	}
	return addresses
}

// when matches the time of a plan in JSON.
var when = regexp.MustCompile(`"time":"[^"]*"`)

// shown returns what a command prints of a machine, and its exit status.
func shown(t *testing.T, command, root string) []string {
	t.Helper()
	stdout, stderr, status := try(t, exec.Command(gpustack, append(strings.Fields(command), "--root", root)...))
	all := when.ReplaceAllString(strings.ReplaceAll(stdout+stderr, root, "ROOT"), "")
	return append(strings.Split(all, "\n"), string(rune('0'+status)))
}

// TestSnapshotReplays: a snapshot shows the same checks and the same plan as its machine. The
// machines are those of the tables, the examples and servers of every distribution, the latter two
// also after host prepare, and booted since.
func TestSnapshotReplays(t *testing.T) {
	roots, err := layNodes()
	hosttest.NoError(t, err)
	for table, root := range roots {
		t.Run(filepath.Base(table), func(t *testing.T) {
			t.Parallel()
			replays(t, root)
		})
	}
	machines := map[string]func(t *testing.T) string{}
	for name, file := range examples(t) {
		machines[name] = func(t *testing.T) string { return unpack(t, file) }
	}
	for _, distribution := range slices.Sorted(maps.Keys(hosttest.Distributions)) {
		for cpu, vendor := range map[string]string{"intel": "GenuineIntel", "arm": "0x41"} {
			machines[cpu+"/"+distribution] = func(t *testing.T) string {
				return hosttest.Lay(t, hosttest.Server{Distro: distribution, CPU: vendor}.Archive()).Path("/")
			}
		}
	}
	for name, lay := range machines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := lay(t)
			replays(t, root)
			prepare := []string{"host", "prepare", "--root", root, "--yes", "--no-rebuild"}
			if name == "hgx-8xa100.txtar" {
				prepare = append(prepare, "--nvswitch", "host", "--allow", "0000:c3:00.0", "--allow", "0000:c4:00.0")
			}
			if _, _, status := try(t, exec.Command(gpustack, prepare...)); status != 0 {
				return // refused, which the replays compare
			}
			replays(t, root)
			cmdline := filepath.Join(root, "proc/cmdline")
			before, err := os.ReadFile(cmdline)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			hosttest.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(cmdline), 0o755),
				os.WriteFile(cmdline, []byte(strings.TrimSpace(string(before))+" intel_iommu=on iommu=pt\n"), 0o644)))
			drivers, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*/driver"))
			hosttest.NoError(t, err)
			for _, driver := range drivers {
				if target, err := os.Readlink(driver); err == nil && filepath.Base(target) == "nouveau" {
					hosttest.NoError(t, os.Remove(driver))
					hosttest.NoError(t, os.Symlink("/sys/bus/pci/drivers/vfio-pci", driver))
				}
			}
			replays(t, root)
		})
	}
}
