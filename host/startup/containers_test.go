package startup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/container"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/hosttest"
	observed "gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/startup"
	"gpustack/host/steps"
)

const (
	gpu, adapter = "0000:84:00.0", "0000:0c:00.0"
	information  = "/proc/driver/nvidia/gpus/" + gpu + "/information"
)

// compute is a machine with a GPU and an adapter for containers. Its nvidia-modprobe makes nodes.
type compute struct {
	t       *testing.T
	root    host.Root
	started []string
	makes   bool
	absent  bool
	fails   error         // of each start of nvidia-modprobe
	shows   time.Duration // after which nvidia-modprobe has the driver show the GPU
	appear  time.Duration
}

func newCompute(t *testing.T) *compute {
	t.Helper()
	var tree strings.Builder
	tree.WriteString("symlink var/run -> /run\nmkdir run\nmkdir dev\nmkdir sys/bus/pci/drivers/nvidia\n" +
		"symlink sys/bus/pci/devices/" + gpu + "/driver -> /sys/bus/pci/drivers/nvidia\n" +
		"symlink usr/lib/x86_64-linux-gnu/libcuda.so.1 -> libcuda.so.550.163.01\n")
	for _, f := range [][4]string{{gpu, "030200", "10de", "20b2"}, {adapter, "020700", "15b3", "101b"}} {
		fmt.Fprintf(&tree, "-- sys/bus/pci/devices/%[1]s/class --\n0x%[2]s\n-- sys/bus/pci/devices/%[1]s/vendor --\n0x%[3]s\n-- sys/bus/pci/devices/%[1]s/device --\n0x%[4]s\n",
			f[0], f[1], f[2], f[3])
	}
	tree.WriteString("-- proc/cmdline --\nquiet\n-- proc/sys/kernel/random/boot_id --\nb1\n-- proc/devices --\nCharacter devices:\n195 nvidia\n509 nvidia-uvm\n" +
		"-- sys/module/nvidia/version --\n550.163.01\n-- proc/driver/nvidia/version --\nNVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Fri May 31 09:35:42 UTC 2024\n" +
		"-- proc/driver/nvidia/gpus/" + gpu + "/information --\nModel: \t\t NVIDIA A100-SXM4-80GB\nDevice Minor: \t 3\n" +
		"-- usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01 --\nx\n")
	c := &compute{t: t, root: hosttest.Lay(t, tree.String()), makes: true, appear: 50 * time.Millisecond}
	c.uverbs(0)
	return c
}

func (c *compute) write(name, text string) {
	c.t.Helper()
	place := c.root.Path(name)
	hosttest.NoError(c.t, errors.Join(os.MkdirAll(filepath.Dir(place), 0o755), os.WriteFile(place, []byte(text), 0o600)))
}

// uverbs gives the adapter's uverbs device a number.
func (c *compute) uverbs(n int) {
	c.t.Helper()
	device := c.root.Path("/sys/bus/pci/devices/" + adapter)
	hosttest.NoError(c.t, os.RemoveAll(c.root.Path("/sys/class/infiniband_verbs")))
	hosttest.NoError(c.t, os.RemoveAll(device+"/infiniband_verbs"))
	name := fmt.Sprintf("uverbs%d", n)
	for file, text := range map[string]string{"ibdev": "mlx5_0", "dev": fmt.Sprintf("231:%d", 192+n)} {
		c.write("/sys/bus/pci/devices/"+adapter+"/infiniband_verbs/"+name+"/"+file, text+"\n")
	}
	c.write("/sys/bus/pci/devices/"+adapter+"/infiniband/mlx5_0/node_type", "1: CA\n")
	for class, dir := range map[string]string{"infiniband": "mlx5_0", "infiniband_verbs": name} {
		hosttest.NoError(c.t, os.MkdirAll(c.root.Path("/sys/class/"+class), 0o755))
		at := c.root.Path("/sys/class/" + class + "/" + dir)
		hosttest.NoError(c.t, errors.Join(os.RemoveAll(at), os.Symlink("../../bus/pci/devices/"+adapter+"/"+class+"/"+dir, at)))
	}
	at := device + "/infiniband_verbs/" + name + "/device"
	hosttest.NoError(c.t, errors.Join(os.RemoveAll(at), os.Symlink("../..", at)))
}

// record records the GPU and the adapter, or nothing.
func (c *compute) record(static bool, functions ...string) {
	c.t.Helper()
	r := observed.Containers{Options: observed.ContainerOptions{Static: static}, Files: []observed.Hash{}}
	for _, name := range functions {
		f := observed.ContainerFunction{Address: hosttest.Address(c.t, name), VendorID: 0x10de, ProductID: 0x20b2, Path: []pci.Address{}}
		if name == adapter {
			f.VendorID, f.ProductID, f.HCA = 0x15b3, 0x101b, true
		}
		r.Functions = append(r.Functions, f)
	}
	if len(functions) == 0 {
		hosttest.NoError(c.t, os.Remove(c.root.Path(observed.ContractFile)))
		return
	}
	text, err := observed.RecordText(nil, &r)
	hosttest.NoError(c.t, err)
	c.write(observed.ContractFile, string(text))
}

func (c *compute) machine() startup.Machine {
	k := &kernel{t: c.t, root: c.root}
	return startup.Machine{Root: c.root, Kernel: func(time.Duration) driver.Requester { return k }, Version: "test", Appear: c.appear,
		Program: func(_ context.Context, argv []string) error {
			if c.absent {
				return fmt.Errorf("%s: %w", argv[0], host.ErrNoProgram)
			}
			c.started = append(c.started, strings.Join(argv, " "))
			if c.shows > 0 && len(c.started) == 1 {
				time.AfterFunc(c.shows, func() { c.write(information, "Device Minor: \t 3\n") })
			}
			for i, word := range argv {
				if word == "-u" && c.makes {
					c.write("/dev/nvidiactl", "c 195:255 666\n")
					c.write("/dev/nvidia-uvm", "c 509:0 666\n")
					c.write("/dev/nvidia-uvm-tools", "c 509:1 666\n")
				}
				if word == "-c" && c.makes {
					c.write("/dev/nvidia"+argv[i+1], "c 195:"+argv[i+1]+" 666\n")
				}
			}
			return c.fails
		}}
}

// run carries out the steps and compares their outcomes.
func (c *compute) run(want string) steps.Result {
	c.t.Helper()
	result, err := startup.Run(context.Background(), c.machine())
	var got []string
	for _, s := range result.Steps {
		got = append(got, s.ID+": "+string(s.Status))
	}
	if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
		c.t.Errorf("%s\n%+v", diff, result.Steps)
	}
	if failed := strings.Contains(want, "failed"); failed != errors.Is(err, startup.ErrSteps) || !failed && err != nil {
		c.t.Errorf("error: %v", err)
	}
	return result
}

func (c *compute) spec(name string) string {
	c.t.Helper()
	data, err := c.root.ReadFile("/run/cdi/" + name)
	if host.IsAbsent(err) {
		return ""
	}
	hosttest.NoError(c.t, err)
	return string(data)
}

const gpuFile, hcaFile = "gpustack-gpu.json", "gpustack-hca.json"

// TestContainers: a boot makes the nodes that are missing, and writes the specs with the numbers of
// this boot. Run again it changes nothing, and a number that has changed is read again.
func TestContainers(t *testing.T) {
	t.Parallel()
	c := newCompute(t)
	c.record(false, adapter, gpu)
	c.run("nodes: done, nodes " + gpu + ": done, cdi gpu: done, cdi hca: done")
	hosttest.Equal(t, []string{"nvidia-modprobe -u -c 0", "nvidia-modprobe -c 3"}, c.started)
	if !strings.Contains(c.spec(gpuFile), `"/dev/nvidia3"`) || !strings.Contains(c.spec(hcaFile), `"/dev/infiniband/uverbs0"`) {
		t.Errorf("%s%s", c.spec(gpuFile), c.spec(hcaFile))
	}
	c.started = nil
	c.run("nodes: unchanged, nodes " + gpu + ": unchanged, cdi gpu: unchanged, cdi hca: unchanged")
	if c.started != nil {
		t.Errorf("started %q", c.started)
	}
	c.uverbs(4)
	c.run("nodes: unchanged, nodes " + gpu + ": unchanged, cdi gpu: unchanged, cdi hca: done")
	hosttest.Contains(t, `"/dev/infiniband/uverbs4"`, c.spec(hcaFile))
	// What is recorded no more goes, and nodes stay.
	c.record(false, adapter)
	hosttest.NoError(t, startup.Revert(context.Background(), c.machine()))
	if c.spec(gpuFile) != "" || c.spec(hcaFile) == "" {
		t.Error("a revert leaves the spec of the GPU, or takes that of the adapter")
	}
	c.run("cdi hca: unchanged")
	c.record(false)
	hosttest.NoError(t, startup.Revert(context.Background(), c.machine()))
	hosttest.EqualIn(t, "a revert leaves the spec of the adapter", "", c.spec(hcaFile))
}

// TestContainersFail: what the machine lacks fails the step of it with the reason, and skips only
// what would be wrong without it.
func TestContainersFail(t *testing.T) {
	t.Parallel()
	const failed = "exit status 1"
	for name, test := range map[string]struct {
		breaks  func(c *compute)
		want    string // of nodes, those of the GPU, cdi gpu, cdi hca
		reasons []string
	}{
		"absent": {func(c *compute) { c.absent = true }, "failed, failed, skipped, done",
			[]string{"nvidia-modprobe is not installed, and /dev/nvidiactl is missing", "nvidia-modprobe is not installed, and /dev/nvidia3 is missing"}},
		"idle": {func(c *compute) { c.makes = false }, "failed, failed, skipped, done", []string{"/dev/nvidia-uvm is missing", "/dev/nvidia3 is missing"}},
		"stale": {func(c *compute) { c.makes = false; c.write("/dev/nvidia-uvm", "c 508:0 666\n") }, "failed, failed, skipped, done",
			[]string{"/dev/nvidia-uvm is device 508:0 instead of 509:0", "/dev/nvidia3 is missing"}},
		"error": {func(c *compute) { c.makes = false; c.fails = errors.New(failed) }, "failed, failed, skipped, done", []string{failed, failed}},
		// The exit status does not count when the nodes are there.
		"error, and all made": {func(c *compute) { c.fails = errors.New(failed) }, "done, done, done, done", nil},
		// A GPU that has failed does not keep the others from containers.
		"no GPU": {func(c *compute) { hosttest.NoError(t, os.RemoveAll(c.root.Path(path.Dir(information)))) }, "done, failed, failed, done",
			[]string{gpu + ": has no node", gpu}},
		"late GPU": {func(c *compute) {
			hosttest.NoError(t, os.Remove(c.root.Path(information)))
			c.appear, c.shows = time.Minute, 100*time.Millisecond
		}, "done, done, done, done", nil},
		"no adapter": {func(c *compute) { hosttest.NoError(t, os.RemoveAll(c.root.Path("/sys/class/infiniband_verbs"))) },
			"done, done, done, failed", []string{adapter + ": the adapter has no uverbs device"}},
		"another adapter": {func(c *compute) { c.write("/sys/bus/pci/devices/"+adapter+"/device", "0x1017\n") },
			"done, done, done, failed", []string{adapter + ": the recorded function is not at this address"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCompute(t)
			c.record(false, adapter, gpu)
			test.breaks(c)
			var want []string
			for i, status := range strings.Split(test.want, ", ") {
				want = append(want, []string{"nodes", "nodes " + gpu, "cdi gpu", "cdi hca"}[i]+": "+status)
			}
			var errs []string
			for _, s := range c.run(strings.Join(want, ", ")).Steps {
				if s.Status == steps.Failed {
					errs = append(errs, s.Error)
				}
			}
			for i, reason := range test.reasons {
				if i >= len(errs) || !strings.Contains(errs[i], reason) {
					t.Errorf("%q, want %q", errs, test.reasons)
				}
			}
		})
	}
}

// TestRefreshList: each boot lists the GPUs for containers that the driver shows for NVIDIA's unit: one
// that has failed since would make its generator fail as a whole. Without the drop-in there is no
// list, and none remains when nothing is for containers.
func TestRefreshList(t *testing.T) {
	t.Parallel()
	c := newCompute(t)
	c.record(false, adapter, gpu)
	list := func(want string) {
		t.Helper()
		data, err := c.root.ReadFile(container.RefreshFile)
		if err != nil && !host.IsAbsent(err) || string(data) != want {
			t.Errorf("%v: %q, want %q", err, data, want)
		}
	}
	boot := func(id, gpuStep string) {
		t.Helper()
		c.write("/proc/sys/kernel/random/boot_id", id+"\n")
		hosttest.NoError(t, os.RemoveAll(c.root.Path("/run/gpustack")))
		result, _ := startup.Run(context.Background(), c.machine())
		for _, s := range result.Steps {
			if s.ID == "cdi gpu" && string(s.Status) != gpuStep {
				t.Errorf("%s: %+v", id, s)
			}
		}
	}
	boot("b2", "done")
	list("")
	c.write(container.RefreshDropIn, "[Service]\n")
	c.write(information, "Device Minor: \t 3\nGPU UUID: \t GPU-1\n")
	boot("b3", "done")
	list("NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS=GPU-1\n")
	hosttest.NoError(t, os.RemoveAll(c.root.Path(path.Dir(information))))
	boot("b4", "failed")
	list("NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS=none\n")
	c.record(false)
	_, err := startup.Offer(context.Background(), c.machine())
	hosttest.NoError(t, err)
	list("")
}

// TestStatic: no boot writes specs that are static, but their nodes are made.
func TestStatic(t *testing.T) {
	t.Parallel()
	c := newCompute(t)
	c.record(true, adapter, gpu)
	c.run("nodes: done, nodes " + gpu + ": done")
	hosttest.EqualIn(t, "specs are in /run/cdi", "", c.spec(gpuFile)+c.spec(hcaFile))
}

// TestDriverContainer: a driver container, which starts after this unit, makes its nodes itself.
func TestDriverContainer(t *testing.T) {
	t.Parallel()
	c := newCompute(t)
	c.record(true, gpu)
	c.absent = true
	for _, name := range []string{"/usr/lib/x86_64-linux-gnu", "/sys/module/nvidia", "/proc/driver/nvidia", "/sys/bus/pci/devices/" + gpu + "/driver"} {
		hosttest.NoError(t, os.RemoveAll(c.root.Path(name)))
	}
	c.write("/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml", "[nvidia-container-cli]\nroot = \"/run/nvidia/driver\"\n")
	c.run("nodes: unchanged, nodes " + gpu + ": unchanged")
}

// TestBootLeavesStatic: specs in /etc/cdi are no boot's, neither to replace nor to remove, when the
// record becomes static or is not any more.
func TestBootLeavesStatic(t *testing.T) {
	t.Parallel()
	c := newCompute(t)
	c.record(false, gpu)
	c.write("/etc/cdi/"+gpuFile, "{}")
	c.run("nodes: done, nodes " + gpu + ": done, cdi gpu: done")
	static := func() bool { ok, err := c.root.Exists("/etc/cdi/" + gpuFile); hosttest.NoError(t, err); return ok }
	if !static() {
		t.Fatal("a boot removes the static spec")
	}
	c.record(true, gpu)
	hosttest.NoError(t, startup.Revert(context.Background(), c.machine()))
	if !static() || c.spec(gpuFile) != "" {
		t.Errorf("static spec is there: %t, the other: %q", static(), c.spec(gpuFile))
	}
}

// TestVFsBeforeSpec: the spec of a VF waits for the VF's driver, which numbers its uverbs node.
func TestVFsBeforeSpec(t *testing.T) {
	t.Parallel()
	_, record := server(t, rdma.ForContainers)
	vf := record.Adapters[0].VFs[0].Address
	list := steps.Of(gate.Records{RDMA: &record, Containers: &observed.Containers{Functions: []observed.ContainerFunction{{Address: vf, HCA: true}}}})
	last := list[len(list)-1]
	if diff := cmp.Diff([]string{"driver " + vf.String()}, last.Needs); last.ID != "cdi hca" || diff != "" {
		t.Errorf("%s: %s", last.ID, diff)
	}
}

// TestPermitFiles: the unit stays while another record needs it.
func TestPermitFiles(t *testing.T) {
	t.Parallel()
	c := newCompute(t)
	c.record(false, gpu)
	c.write(steps.UnitFile, "unit")
	plan, err := steps.ObserveUnit(c.root).Remove()
	hosttest.NoError(t, err)
	if err := steps.PermitFiles(c.root, plan); !errors.Is(err, steps.ErrNeeded) || !strings.Contains(host.HintOf(err).String(), "gpustack host prepare --none") {
		t.Errorf("%v (%s), want %v", err, host.HintOf(err), steps.ErrNeeded)
	}
	c.record(true, gpu)
	hosttest.NoError(t, steps.PermitFiles(c.root, plan))
	record, err := edit.Observe(c.root, observed.ContractFile).Remove(observed.ContractFile)
	hosttest.NoError(t, err)
	hosttest.NoError(t, steps.PermitFiles(c.root, append(plan, record)))
	_, adapters := server(t, rdma.ForGuests)
	text, err := adapters.Text()
	hosttest.NoError(t, err)
	c.write(rdma.RecordFile, string(text))
	if err := steps.PermitFiles(c.root, append(plan, record)); !errors.Is(err, steps.ErrNeeded) {
		t.Errorf("%v, want %v", err, steps.ErrNeeded)
	}
}

// offer brings what containers get to what is recorded now.
func (c *compute) offer(want string) {
	c.t.Helper()
	m := c.machine()
	m.Appear = time.Hour // it must not wait
	result, err := startup.Offer(context.Background(), m)
	var got []string
	for _, s := range result.Steps {
		got = append(got, s.ID+": "+string(s.Status))
	}
	if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
		c.t.Errorf("%s\n%+v", diff, result.Steps)
	}
	if failed := strings.Contains(want, "failed"); failed != errors.Is(err, startup.ErrSteps) || !failed && err != nil {
		c.t.Errorf("error: %v", err)
	}
}

// TestOffer: after each change of the record, containers get what is recorded, without a boot: also
// where no step has run in this boot, and whatever a spec in /run/cdi had been.
func TestOffer(t *testing.T) {
	t.Parallel()
	c := newCompute(t)
	c.offer("")
	c.record(false, gpu)
	c.offer("nodes: done, nodes " + gpu + ": done, cdi gpu: done")
	first := c.spec(gpuFile)
	c.write("/run/cdi/"+gpuFile, "{}")
	c.record(false, adapter, gpu)
	c.offer("nodes: unchanged, nodes " + gpu + ": unchanged, cdi gpu: done, cdi hca: done")
	if c.spec(gpuFile) != first || c.spec(hcaFile) == "" {
		t.Errorf("%s%s", c.spec(gpuFile), c.spec(hcaFile))
	}
	hosttest.NoError(t, os.RemoveAll(c.root.Path("/sys/class/infiniband_verbs")))
	c.offer("nodes: unchanged, nodes " + gpu + ": unchanged, cdi gpu: unchanged, cdi hca: failed")
	c.record(true, adapter, gpu)
	c.offer("nodes: unchanged, nodes " + gpu + ": unchanged")
	c.record(false)
	c.write("/run/cdi/"+hcaFile, "{}")
	c.offer("")
	hosttest.EqualIn(t, "specs remain", "", c.spec(gpuFile)+c.spec(hcaFile))
	// So does a spec that a boot finds, as /run does not end with each.
	c.record(false, gpu)
	c.write("/run/cdi/"+hcaFile, "{}")
	c.run("nodes: unchanged, nodes " + gpu + ": unchanged, cdi gpu: done")
	hosttest.EqualIn(t, "a spec remains that no step writes", "", c.spec(hcaFile))
	c.record(false)
	c.offer("")
	// A tree waits for its boot.
	c.record(false, gpu)
	hosttest.NoError(t, os.Remove(c.root.Path("/proc/sys/kernel/random/boot_id")))
	c.offer("")
	hosttest.EqualIn(t, "a spec is in a tree that is no running machine", "", c.spec(gpuFile))
}

// TestOfferVFs: the spec of a VF whose record is newer than this boot is written all the same.
func TestOfferVFs(t *testing.T) {
	t.Parallel()
	c := newCompute(t)
	_, record := server(t, rdma.ForContainers)
	record.Adapters[0].Address, record.Adapters[0].VFs[0].Address = hosttest.Address(t, "0000:0b:00.0"), hosttest.Address(t, adapter)
	text, err := record.Text()
	hosttest.NoError(t, err)
	c.write(rdma.RecordFile, string(text))
	c.record(false, adapter)
	c.offer("cdi hca: done")
}
