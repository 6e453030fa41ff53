package containerprepare_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/container/containerprepare"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host/container"
)

// machine returns what a plan depends on, with nothing recorded.
func (n *node) machine() containerprepare.Observed {
	n.driver.Loaded = &nvidia.Module{Version: "550.163.01"}
	return containerprepare.Observed{Devices: n.devices, Driver: n.driver, Stack: n.stack}
}

// plan plans what is wanted of a machine with the files that the node has now.
func (n *node) plan(t *testing.T, m containerprepare.Observed, want containerprepare.Want) (containerprepare.Plan, error) {
	t.Helper()
	now, err := containerprepare.Observe(n.root, machine.ObserveRecord(n.root, nil, true))
	hosttest.NoError(t, err)
	m.Files, m.Unit, m.Limits, m.Toolkit, m.NodeMaker = now.Files, now.Unit, now.Limits, now.Toolkit, now.NodeMaker
	return containerprepare.NewPlan(m, want)
}

// TestLAG: an adapter whose port the RDMA device of another function serves is refused by what it
// lacks, and by the function to name.
func TestLAG(t *testing.T) {
	t.Parallel()
	text := hosttest.Read(t, "../../../integration/testdata/shapes/roce-lag.txtar")
	devices, stack, err := rdma.Scan(hosttest.Lay(t, text), rdma.Options{})
	hosttest.NoError(t, err)
	m := containerprepare.Observed{Devices: devices, Stack: stack}
	_, err = containerprepare.NewWant(m, containerprepare.Options{HCAs: []pci.Address{hosttest.Address(t, "0000:3b:00.1")}})
	const want = "0000:3b:00.1: has no RDMA device of its own: mlx5_bond_0 of 0000:3b:00.0 serves its port"
	if err == nil || err.Error() != want || host.HintOf(err).String() != "name 0000:3b:00.0" {
		t.Errorf("%v, %q", err, host.HintOf(err))
	}
}

// TestRefusals: each obstacle has its error, and all are reported at once.
func TestRefusals(t *testing.T) {
	t.Parallel()
	gpu, adapter := hosttest.Address(t, gpu0), hosttest.Address(t, hca)
	both := containerprepare.Options{GPUs: []pci.Address{gpu}, HCAs: []pci.Address{adapter}}
	for name, test := range map[string]struct {
		change  func(*containerprepare.Observed, *containerprepare.Options)
		refusal error
	}{
		"a GPU of guests":      {func(m *containerprepare.Observed, _ *containerprepare.Options) { m.Guests = guests(gpu) }, containerprepare.ErrForGuests},
		"an adapter of guests": {func(m *containerprepare.Observed, _ *containerprepare.Options) { m.Guests = guests(adapter) }, containerprepare.ErrForGuests},
		"VFs of guests": {func(m *containerprepare.Observed, _ *containerprepare.Options) {
			m.RDMA = &rdma.Record{Adapters: []rdma.Prepared{{Address: adapter, Use: rdma.ForGuests}}}
		}, containerprepare.ErrVFsForGuests},
		"a VF that is not made yet": {func(m *containerprepare.Observed, o *containerprepare.Options) {
			vf := hosttest.Address(t, "0000:0c:00.2")
			m.RDMA, o.HCAs = &rdma.Record{Adapters: []rdma.Prepared{{Address: adapter, Use: rdma.ForContainers, VFs: []rdma.PreparedVF{{Address: vf}}}}}, []pci.Address{vf}
		}, containerprepare.ErrNotMade},
		"a manager of NVSwitches": {func(m *containerprepare.Observed, _ *containerprepare.Options) {
			m.Devices.At(adapter).NVSwitchManager = host.Yes
		}, gate.ErrSwitchManager},
		"MIG": {func(m *containerprepare.Observed, _ *containerprepare.Options) {
			m.Driver.MIG = map[pci.Address]bool{gpu: true}
		}, containerprepare.ErrMIG},
		"unbound":   {func(m *containerprepare.Observed, _ *containerprepare.Options) { m.Driver.GPUs = nil }, containerprepare.ErrUnbound},
		"no module": {func(m *containerprepare.Observed, _ *containerprepare.Options) { m.Driver.Loaded = nil }, containerprepare.ErrNoModule},
		"blacklist": {func(m *containerprepare.Observed, _ *containerprepare.Options) {
			m.Blacklists = []modprobe.Line{{File: "/etc/modprobe.d/gpustack.conf", Number: 3, Command: "blacklist", Module: "nvidia"}}
		}, containerprepare.ErrBlacklisted},
		"a blacklist in the kernel's arguments": {func(m *containerprepare.Observed, _ *containerprepare.Options) {
			m.Blacklists = []modprobe.Line{{File: modprobe.CmdlineFile, Command: "modprobe.blacklist", Module: "nvidia"}}
		}, containerprepare.ErrBlacklisted},
		"our blacklist": {func(m *containerprepare.Observed, _ *containerprepare.Options) {
			m.Blacklists = []modprobe.Line{{File: modprobe.OwnFiles()[0], Number: 3, Command: "blacklist", Module: "nvidia"}}
		}, containerprepare.ErrBlacklisted},
		"a kind of another program": {func(m *containerprepare.Observed, _ *containerprepare.Options) {
			m.Folders.Files = []cdi.File{{Path: "/run/cdi/nvidia.yaml", Spec: &specs.Spec{Kind: cdi.GPUKind}}}
		}, containerprepare.ErrKindTaken},
		"an adapter as a GPU": {func(_ *containerprepare.Observed, o *containerprepare.Options) {
			o.GPUs = []pci.Address{adapter}
			o.HCAs = nil
		}, containerprepare.ErrNoGPU},
		"a GPU as an adapter": {func(_ *containerprepare.Observed, o *containerprepare.Options) { o.HCAs = []pci.Address{gpu} }, rdma.ErrNoDevice},
		"not recorded": {func(_ *containerprepare.Observed, o *containerprepare.Options) {
			o.Remove = []pci.Address{hosttest.Address(t, gpu1)}
		}, container.ErrNotRecorded},
	} {
		m, o := newNode(t).machine(), both
		if _, err := containerprepare.NewWant(m, o); err != nil {
			t.Fatal(err)
		}
		test.change(&m, &o)
		if _, err := containerprepare.NewWant(m, o); !errors.Is(err, test.refusal) {
			t.Errorf("%s: %v, want %v", name, err, test.refusal)
		}
	}

	m := newNode(t).machine()
	m.Guests = guests(gpu, adapter)
	both.Remove = []pci.Address{hosttest.Address(t, gpu1)}
	_, err := containerprepare.NewWant(m, both)
	for _, want := range []string{gpu0 + ": is for guests", hca + ": is for guests", gpu1 + ": is not recorded"} {
		hosttest.Contains(t, want, fmt.Sprint(err))
	}
}

func guests(addresses ...pci.Address) *machine.Contract {
	c := &machine.Contract{}
	for _, a := range addresses {
		c.Functions = append(c.Functions, machine.Function{Address: a})
	}
	slices.SortFunc(c.Functions, func(a, b machine.Function) int { return a.Address.Compare(b.Address) })
	return c
}

// TestPlan: applied, a plan's specs are what is planned again, what is recorded stays unless it is
// removed, and without a function no file remains.
func TestPlan(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	m := n.machine()
	apply := func(o containerprepare.Options) containerprepare.Plan {
		t.Helper()
		want, err := containerprepare.NewWant(m, o)
		hosttest.NoError(t, err)
		p, err := n.plan(t, m, want)
		if err == nil {
			err = append(p.Files, p.Boot...).Apply(context.Background(), n.root) // as the steps of a boot do
		}
		if err == nil {
			m.Guests, m.Recorded, err = machine.ReadRecord(n.root)
		}
		hosttest.NoError(t, err)
		return p
	}
	yes := true
	apply(containerprepare.Options{GPUs: []pci.Address{hosttest.Address(t, gpu0)}, LibraryPath: &yes, Static: &yes})
	p := apply(containerprepare.Options{HCAs: []pci.Address{hosttest.Address(t, hca)}})
	want := []string{"gpustack.local/gpu=" + gpu0, "gpustack.local/gpu=" + uuid, "gpustack.local/hca=" + hca}
	if !slices.Equal(p.Names, want) {
		t.Errorf("%q, want %q", p.Names, want)
	}
	if r := m.Recorded; len(r.Functions) != 2 || !r.Options.LibraryPath || len(r.Files) != 2 {
		t.Errorf("%+v", r)
	}
	if p := apply(containerprepare.Options{}); len(p.Files.Pending()) > 0 {
		t.Errorf("planned again: %+v", p.Files.Pending())
	}
	apply(containerprepare.Options{Remove: []pci.Address{hosttest.Address(t, hca)}})
	if ok, err := n.root.Exists("/etc/cdi/" + container.HCAFile); ok || err != nil {
		t.Error("the spec of an adapter that was removed remains", err)
	}
	p = apply(containerprepare.Options{None: true})
	for _, c := range p.Files {
		if c.After != nil {
			t.Errorf("%s remains", c.Name)
		}
	}
	// What is static stays so until it is not to, and never is in both folders.
	apply(containerprepare.Options{HCAs: []pci.Address{hosttest.Address(t, hca)}})
	exists := func(static bool) bool {
		t.Helper()
		ok, err := n.root.Exists(container.SpecFile(machine.ContainerOptions{Static: static}, container.HCAFile))
		hosttest.NoError(t, err)
		return ok
	}
	if len(m.Recorded.Files) != 0 || exists(true) || !exists(false) {
		t.Errorf("%+v, static: %t", m.Recorded, exists(true))
	}
	no := false
	for _, o := range []struct {
		static *bool
		want   bool
	}{{&yes, true}, {nil, true}, {&no, false}, {nil, false}} {
		apply(containerprepare.Options{Static: o.static})
		if exists(o.want) == exists(!o.want) || !exists(o.want) || m.Recorded.Options.Static != o.want {
			t.Errorf("static: %t, want %t", exists(true), o.want)
		}
	}
}

// TestKinds: a spec of another program with the kind of ours matters only for what is added.
func TestKinds(t *testing.T) {
	t.Parallel()
	first, second, adapter := hosttest.Address(t, gpu0), hosttest.Address(t, gpu1), hosttest.Address(t, hca)
	foreign := []cdi.File{{Path: "/run/cdi/other.yaml", Spec: &specs.Spec{Kind: cdi.GPUKind}}}
	for name, test := range map[string]struct {
		options containerprepare.Options
		foreign []cdi.File
		refusal error
	}{
		"a GPU beside another program's":      {containerprepare.Options{GPUs: []pci.Address{second}}, foreign, containerprepare.ErrKindTaken},
		"an adapter beside another's GPUs":    {containerprepare.Options{HCAs: []pci.Address{adapter}}, foreign, nil},
		"removed, beside another program's":   {containerprepare.Options{Remove: []pci.Address{first}}, foreign, nil},
		"as recorded, beside another program": {containerprepare.Options{}, foreign, nil},
	} {
		m := newNode(t).machine()
		want, err := containerprepare.NewWant(m, containerprepare.Options{GPUs: []pci.Address{first}})
		hosttest.NoError(t, err)
		m.Recorded, m.Folders.Files = &want.Record, test.foreign
		if _, err := containerprepare.NewWant(m, test.options); !errors.Is(err, test.refusal) || err != nil && test.refusal == nil {
			t.Errorf("%s: %v, want %v", name, err, test.refusal)
		}
	}
}

// TestPartOfBoard: GPUs behind NVSwitches are for containers together or not at all.
func TestPartOfBoard(t *testing.T) {
	t.Parallel()
	m := newNode(t).machine()
	nvidiaID := m.Devices.At(hosttest.Address(t, gpu0)).VendorID
	m.Devices = append(m.Devices, pci.Device{Address: hosttest.Address(t, "0000:90:00.0"), VendorID: nvidiaID, NVSwitchManager: host.Yes})
	if _, err := containerprepare.NewWant(m, containerprepare.Options{GPUs: []pci.Address{hosttest.Address(t, gpu0)}}); !errors.Is(err,
		containerprepare.ErrBoard) {
		t.Errorf("%v, want %v", err, containerprepare.ErrBoard)
	}
	all := containerprepare.Options{GPUs: []pci.Address{hosttest.Address(t, gpu0), hosttest.Address(t, gpu1)}}
	want, err := containerprepare.NewWant(m, all)
	if err != nil {
		t.Error(err)
	}
	recorded := m
	recorded.Recorded = &want.Record
	if _, err := containerprepare.NewWant(recorded, containerprepare.Options{Remove: []pci.Address{hosttest.Address(t, gpu1)}}); !errors.Is(err,
		containerprepare.ErrBoard) {
		t.Errorf("%v, want %v", err, containerprepare.ErrBoard)
	}
	// All errors at once.
	m.Driver.GPUs = nil
	_, err = containerprepare.NewWant(m, containerprepare.Options{GPUs: []pci.Address{hosttest.Address(t, gpu0)}})
	if !errors.Is(err, containerprepare.ErrBoard) || !errors.Is(err, containerprepare.ErrUnbound) {
		t.Errorf("%v, want %v and %v", err, containerprepare.ErrUnbound, containerprepare.ErrBoard)
	}
	if _, err = containerprepare.NewWant(m, all); errors.Is(err, containerprepare.ErrBoard) {
		t.Error(err)
	}
}

// TestNotes: the costs that a plan names are those of its options, and what it needs besides is
// named only where it is missing.
func TestNotes(t *testing.T) {
	t.Parallel()
	yes, exclusive, adapter := true, rdma.NetnsExclusive, containerprepare.Options{HCAs: []pci.Address{hosttest.Address(t, hca)}}
	const modprobe = "nothing makes the nodes of NVIDIA's driver at boot: nvidia-modprobe is not installed"
	for name, test := range map[string]struct {
		options  containerprepare.Options
		tool     bool // nvidia-modprobe is installed
		unit     bool
		has, not []string
		change   func(*containerprepare.Observed)
	}{
		"by default": {containerprepare.Options{}, true, true, []string{
			"an image's own compatibility libraries (/usr/local/cuda/compat) are used only if its ld.so.conf names their folder, and then instead of the driver's",
			"gpustack-boot.service makes the nodes at each boot",
		}, []string{modprobe, "replaces an image's own", rdma.NoIsolation}, nil},
		"with the variable":   {containerprepare.Options{LibraryPath: &yes}, true, true, []string{"(/usr/local/cuda/compat) are not used", "replaces an image's own"}, []string{"only if its ld.so.conf"}, nil},
		"no nvidia-modprobe":  {containerprepare.Options{}, false, true, []string{modprobe}, nil, nil},
		"no unit, and static": {containerprepare.Options{Static: &yes}, false, false, []string{"no boot makes the driver's nodes: the machine has no systemd"}, []string{modprobe, "gpustack-boot.service makes"}, nil},
		"an adapter":          {adapter, false, true, []string{rdma.NoIsolation}, []string{modprobe}, nil},
		"an adapter, exclusive now": {adapter, false, true, nil, []string{rdma.NoIsolation}, func(m *containerprepare.Observed) {
			m.Stack.Netns = &exclusive
		}},
		"an adapter, exclusive from the next boot on": {adapter, false, true, nil, []string{rdma.NoIsolation}, func(m *containerprepare.Observed) {
			m.RDMA = &rdma.Record{Netns: exclusive}
		}},
	} {
		n := newNode(t)
		if test.options.HCAs == nil {
			test.options.GPUs = []pci.Address{hosttest.Address(t, gpu0)}
		}
		m := n.machine()
		if test.change != nil {
			test.change(&m)
		}
		want, err := containerprepare.NewWant(m, test.options)
		hosttest.NoError(t, err)
		if test.tool {
			c, err := edit.Put(n.root, "/usr/bin/nvidia-modprobe", []byte("\n"), 0o755, false)
			if err == nil {
				err = edit.Changes{c}.Apply(t.Context(), n.root)
			}
			hosttest.NoError(t, err)
		}
		if !test.unit {
			hosttest.NoError(t, os.Remove(n.root.Path("/usr/lib/systemd/systemd")))
		}
		p, err := n.plan(t, m, want)
		hosttest.NoError(t, err)
		text := strings.Join(append(p.Notes, p.Warnings...), "\n")
		for _, s := range test.has {
			hosttest.ContainsIn(t, name, s, text)
		}
		for _, s := range test.not {
			if strings.Contains(text, s) {
				t.Errorf("%s: %q in\n%s", name, s, text)
			}
		}
	}
}
