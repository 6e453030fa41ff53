package chain

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMachine takes a compute node of Debian's to GPU instances and back: it boots from the disk
// that was prepared, is ready, and stays so when it reboots; libvirt knows the functions of its
// GPUs; undone, it boots as it did at first.
func TestMachine(t *testing.T) {
	hosts, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	if a, b := hosts[0], hosts[1]; a.Wire != b.Peer || b.Wire != a.Peer || a.mac() == b.mac() || a.uuid() == b.uuid() || a.MyIP == b.MyIP {
		t.Errorf("hosts that cannot be told apart, or no cable: %+v and %+v", a, b)
	}
	if !*full {
		return // the rest takes minutes
	}
	server := prepared(t)
	for _, address := range Addresses {
		for function, before := range map[string]string{address: "", strings.TrimSuffix(address, "0") + "1": "snd_hda_intel"} {
			if got := [2]string{server.Before.Drivers[function], server.After.Drivers[function]}; got != [2]string{before, "vfio-pci"} {
				t.Errorf("%s: drivers %q before and after host prepare, want %q and vfio-pci", function, got, before)
			}
		}
	}
	if want := server.Before.Arguments + " intel_iommu=on iommu=pt"; server.After.Arguments != want {
		t.Errorf("kernel arguments %q, want %q", server.After.Arguments, want)
	}

	m := start(t, server, hosts[1])[0]
	asPrepared := func() {
		t.Helper()
		state, err := m.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(server.After, state); diff != "" {
			t.Errorf("it boots differently (-prepared +now):\n%s", diff)
		}
		if err := m.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	}
	asPrepared()
	if got := strings.TrimSpace(m.run("hostname")); got != "gpu2" {
		t.Errorf("host name %q", got)
	}
	devices := strings.Fields(m.run("virsh", "nodedev-list", "--cap", "pci"))
	for _, want := range []string{"pci_0000_01_00_0", "pci_0000_01_00_1", "pci_0000_02_00_0", "pci_0000_02_00_1"} {
		if !slices.Contains(devices, want) {
			t.Errorf("libvirt does not list %s: %q", want, devices)
		}
	}
	if err := m.Reboot(t.Context(), "systemctl", "reboot"); err != nil {
		t.Fatal(err)
	}
	asPrepared()
	if err := m.Undo(t.Context(), server.Before); err != nil {
		t.Error(err)
	}
}

// TestForget: the cache keeps what was prepared this week, and what is not of this kind.
func TestForget(t *testing.T) {
	cache := t.TempDir()
	old := time.Now().Add(-8 * 24 * time.Hour)
	for _, name := range []string{"prepared-old", "prepared-new", "compute-old"} {
		dir := filepath.Join(cache, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "old") {
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := forget(cache); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || !slices.Equal(left, []string{filepath.Join(cache, "compute-old"), filepath.Join(cache, "prepared-new")}) {
		t.Errorf("left: %q, %v", left, err)
	}
}
