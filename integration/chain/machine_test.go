package chain

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// TestMachine takes compute nodes of Debian's to GPU instances and back: they boot from the disk
// that was prepared, are ready, and stay so when they reboot; libvirt knows the functions of their
// GPUs; nova's users reach each other's host once they are let in; undone, a node boots as it did
// at first.
func TestMachine(t *testing.T) {
	hosts, err := Pair()
	hosttest.NoError(t, err)
	if a, b := hosts[0], hosts[1]; a.Wire != b.Peer || b.Wire != a.Peer || a.mac() == b.mac() || a.uuid() == b.uuid() || a.MyIP == b.MyIP {
		t.Errorf("hosts with the same name or address, or no cable: %+v and %+v", a, b)
	}
	// The cache finds a prepared disk by its machine, whose ports differ each time.
	again, err := Pair()
	hosttest.NoError(t, err)
	one, err := hosts[0].recipe()
	if other, otherErr := again[0].recipe(); err != nil || otherErr != nil || one != other || !strings.Contains(one, "event_idx=off") {
		t.Errorf("%v, %v: %s and %s", err, otherErr, one, other)
	}
	if !*full {
		return // the rest takes minutes
	}
	server := prepared(t)
	server.isPrepared(t)
	machines := start(t, server.Overlay, "qcow2", hosts[0], hosts[1])
	first, second := machines[0], machines[1]
	second.isReady(server)
	devices := strings.Fields(second.run("virsh", "nodedev-list", "--cap", "pci"))
	for _, want := range []string{"pci_0000_01_00_0", "pci_0000_01_00_1", "pci_0000_02_00_0", "pci_0000_02_00_1"} {
		if !slices.Contains(devices, want) {
			t.Errorf("libvirt does not list %s: %q", want, devices)
		}
	}
	hosttest.NoError(t, second.Reboot(t.Context(), "systemctl", "reboot"))
	second.isReady(server)

	login := []string{"su", "nova", "-c", "ssh -o BatchMode=yes " + second.Host.MyIP + " hostname"}
	if out, err := first.Run(t.Context(), login...); err == nil || !strings.Contains(err.Error(), "Host key verification failed") {
		t.Errorf("gpu1 logs in to gpu2, which lets nobody in: %v, %s", err, out)
	}
	hosttest.NoError(t, second.LetIn(t.Context(), first.Machine))
	hosttest.EqualIn(t, "gpu1 logs in to", "gpu2\n", first.run(login...))
	if err := second.Undo(t.Context(), server.Before); err != nil {
		t.Error(err)
	}
}

// isPrepared: the kernel arguments and the drivers of the four functions changed, nothing else did.
func (s Server) isPrepared(t *testing.T) {
	t.Helper()
	want := State{Arguments: s.Before.Arguments + " intel_iommu=on iommu=pt", Drivers: maps.Clone(s.Before.Drivers)}
	for _, gpu := range Addresses {
		audio := strings.TrimSuffix(gpu, "0") + "1"
		hosttest.EqualIn(t, gpu+": drivers before host prepare", " snd_hda_intel", s.Before.Drivers[gpu]+" "+s.Before.Drivers[audio])
		want.Drivers[gpu], want.Drivers[audio] = "vfio-pci", "vfio-pci"
	}
	hosttest.EqualIn(t, "after host prepare", want, s.After)
}

// isReady: the machine booted as it did when it was prepared, and host check finds it ready.
func (m machine) isReady(s Server) {
	m.t.Helper()
	state, err := m.State(m.t.Context())
	hosttest.NoError(m.t, err)
	if diff := cmp.Diff(s.After, state); diff != "" {
		m.t.Errorf("%s boots differently (-prepared +now):\n%s", m.Host.Name, diff)
	}
	if err := m.Ready(m.t.Context()); err != nil {
		m.t.Error(err)
	}
}

// TestForget: the cache keeps what was prepared this week, and what is not of this kind.
func TestForget(t *testing.T) {
	cache := t.TempDir()
	old := time.Now().Add(-8 * 24 * time.Hour)
	for _, name := range []string{"prepared-old", "prepared-new", "compute-old"} {
		dir := filepath.Join(cache, name)
		hosttest.NoError(t, os.Mkdir(dir, 0o755))
		if strings.HasSuffix(name, "old") {
			hosttest.NoError(t, os.Chtimes(dir, old, old))
		}
	}
	hosttest.NoError(t, forget(cache))
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || !slices.Equal(left, []string{filepath.Join(cache, "compute-old"), filepath.Join(cache, "prepared-new")}) {
		t.Errorf("left: %q, %v", left, err)
	}
}
