package containerprepare_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/container/containerprepare"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/steps"
)

// everyOption are options with every flag that a command with --static repeats.
func everyOption(t *testing.T) containerprepare.Options {
	t.Helper()
	return containerprepare.Options{
		GPUs: []pci.Address{hosttest.Address(t, gpu0), hosttest.Address(t, gpu1)}, HCAs: []pci.Address{hosttest.Address(t, hca)}, UMAD: new(true),
		LibraryPath: new(false),
	}
}

const everyFlag = "gpustack container prepare --device 0000:84:00.0 --device 0000:88:00.0 --hca 0000:0c:00.1 --umad=true " +
	"--library-path=false --static"

// TestStaticHint: without systemd, the hint is the command that was given, with --static.
func TestStaticHint(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	hosttest.NoError(t, os.Remove(n.root.Path("/usr/lib/systemd/systemd")))
	w, err := containerprepare.NewWant(n.machine(), everyOption(t))
	hosttest.NoError(t, err)
	_, err = n.plan(t, n.machine(), w)
	if hint := host.HintOf(err).String(); !errors.Is(err, steps.ErrNoSystemd) || !strings.HasSuffix(hint, "yourself: "+everyFlag) {
		t.Errorf("%v, hint %q", err, hint)
	}
}

// TestDriverContainer: a driver container starts after the unit that would write the specs of its
// GPUs, so these are static.
func TestDriverContainer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.machine()
	m.Driver.Container = "/run/nvidia/driver"
	own := m.Driver.Libraries
	own[0].Version = m.Driver.Loaded.Version
	contained := append(own[:0:0], own...)
	for i := range contained {
		contained[i].Folder = m.Driver.Container + contained[i].Folder
	}
	m.Driver.Libraries = contained
	_, err := containerprepare.NewWant(m, everyOption(t))
	if hint := host.HintOf(err).String(); !errors.Is(err, containerprepare.ErrDriverContainer) || !strings.Contains(err.Error(), "/run/nvidia/driver") ||
		!strings.HasSuffix(hint, "once: "+everyFlag) {
		t.Errorf("%v, hint %q", err, hint)
	}
	static := everyOption(t)
	static.Static = new(true)
	w, err := containerprepare.NewWant(m, static)
	if err != nil || !strings.HasPrefix(w.Specs.GPU.ContainerEdits.Mounts[0].HostPath, "/run/nvidia/driver/") {
		t.Errorf("static: %v, %+v", err, w.Specs.GPU)
	}
	recorded := m
	recorded.Recorded = &w.Record
	for name, o := range map[string]containerprepare.Options{
		"as recorded": {}, "none": {None: true},
		"the GPUs removed": {Remove: []pci.Address{hosttest.Address(t, gpu0), hosttest.Address(t, gpu1)}, Static: new(false)},
	} {
		if _, err := containerprepare.NewWant(recorded, o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	recorded.Driver.GPUs, recorded.Driver.Libraries, recorded.Driver.Loaded = nil, nil, nil // after a boot
	if _, err := containerprepare.NewWant(recorded, containerprepare.Options{Static: new(false)}); !errors.Is(err, containerprepare.ErrDriverContainer) {
		t.Errorf("recorded, before the container runs: %v", err)
	}
	m.Driver.Libraries = own
	if _, err := containerprepare.NewWant(m, everyOption(t)); err != nil {
		t.Errorf("the machine's own libraries, of the loaded module: %v", err)
	}
}

// TestOtherLibrary: a library of another version than libcuda is not mounted: container check has it.
func TestOtherLibrary(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.driver.Libraries[0].Version, n.driver.Libraries[1].Version = "550.163.01", "535.54.03"
	w, err := containerprepare.NewWant(n.machine(), containerprepare.Options{GPUs: []pci.Address{hosttest.Address(t, gpu0)}})
	hosttest.NoError(t, err)
	for _, m := range w.Specs.GPU.ContainerEdits.Mounts {
		if strings.HasSuffix(m.HostPath, "libnvidia-ml.so.1") {
			t.Errorf("%+v", m)
		}
	}
}
