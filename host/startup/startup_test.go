package startup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/gate"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/startup"
	"gpustack/host/steps"
)

const pf, above, noGUID = "0000:0c:00.0", "sys/devices/pci0000:0c/", "00:00:00:00:00:00:00:00"

// kernel plays the kernel of a tree: it records requests, and makes what they ask for as files.
type kernel struct {
	t     *testing.T
	root  host.Root
	log   []string
	fail  func(request string) error // instead of a request, if it is an error
	total int                        // requests after which the process dies; 0 for never
	vfs   map[int]driver.VFOptions   // what netlink shows
}

var errDied = errors.New("died")

func (k *kernel) ask(request string) error {
	k.log = append(k.log, request)
	if k.total > 0 && len(k.log) >= k.total {
		panic(errDied)
	}
	if k.fail != nil {
		return k.fail(request)
	}
	return nil
}

func (k *kernel) Write(w driver.Write) error {
	if err := k.ask(strings.TrimPrefix(w.File, "/sys/bus/pci/") + "=" + strings.TrimSpace(w.Value)); err != nil {
		return err
	}
	k.must(k.write(w))
	return nil
}

func (k *kernel) must(err error) {
	hosttest.NoError(k.t, err)
}

func (k *kernel) write(w driver.Write) error {
	place := k.root.Path(w.File)
	switch base := path.Base(w.File); base {
	case "sriov_numvfs":
		if err := k.setVFs(w.Value); err != nil {
			return err
		}
	case "driver_override":
		if w.Value == "\n" {
			w.Value = "(null)"
		}
	case "unbind":
		return os.Remove(k.root.Path("/sys/bus/pci/devices/" + w.Value + "/driver"))
	case "drivers_probe":
		device := "/sys/bus/pci/devices/" + w.Value
		name, err := k.root.ReadFile(device + "/driver_override")
		if err != nil {
			return err
		}
		at, err := k.root.Resolve(device)
		if err != nil {
			return err
		}
		return os.Symlink("/sys/bus/pci/drivers/"+strings.TrimSpace(string(name)), filepath.Join(at, "driver"))
	}
	return os.WriteFile(place, []byte(w.Value+"\n"), 0o600)
}

// setVFs makes the virtual functions of the adapter, all new.
func (k *kernel) setVFs(value string) error {
	n, err := strconv.Atoi(value)
	if err != nil {
		return err
	}
	folder := k.root.Path(above)
	k.vfs = map[int]driver.VFOptions{}
	for i := range n {
		k.vfs[i] = driver.VFOptions{NodeGUID: noGUID, PortGUID: noGUID, State: "disable"}
	}
	for i := range 8 {
		at := fmt.Sprintf("0000:0c:00.%d", i+1)
		if err := errors.Join(os.RemoveAll(filepath.Join(folder, at)), os.RemoveAll(k.root.Path("sys/bus/pci/devices/"+at)),
			os.RemoveAll(filepath.Join(folder, pf, "virtfn"+strconv.Itoa(i))), os.RemoveAll(k.root.Path(fmt.Sprintf("sys/class/net/ib%d", i+1)))); err != nil {
			return err
		}
		if i >= n {
			continue
		}
		netdev := fmt.Sprintf("net/ib%d", i+1) // it is down
		err := errors.Join(os.MkdirAll(filepath.Join(folder, at, netdev), 0o755), os.WriteFile(filepath.Join(folder, at, netdev, "flags"), []byte("0x1002\n"), 0o600),
			os.MkdirAll(k.root.Path("sys/class/net"), 0o755), os.Symlink("../../../"+above+at+"/"+netdev, k.root.Path("sys/class/"+netdev)), os.Symlink("../"+pf, filepath.Join(folder, at, "physfn")),
			os.Symlink("../"+at, filepath.Join(folder, pf, "virtfn"+strconv.Itoa(i))),
			os.Symlink("../../../../"+above+at, k.root.Path("sys/bus/pci/devices/"+at)))
		for name, text := range map[string]string{"class": "0x020700", "vendor": "0x15b3", "device": "0x101c", "driver_override": "(null)"} {
			err = errors.Join(err, os.WriteFile(filepath.Join(folder, at, name), []byte(text+"\n"), 0o600))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Request answers as netlink does. A request to read is not logged.
func (k *kernel) Request(r driver.Request) (driver.Answer, error) {
	if r.Kind == driver.ShowVFs {
		var a driver.Answer
		for i := range len(k.vfs) {
			a.VFs = append(a.VFs, k.vfs[i])
		}
		return a, nil
	}
	if err := k.ask(r.String()); err != nil || r.Kind == driver.SetNetns {
		return driver.Answer{}, err
	}
	o := k.vfs[r.VF]
	switch r.Kind {
	case driver.SetNodeGUID:
		o.NodeGUID = r.Value
	case driver.SetPortGUID:
		o.PortGUID = r.Value
	case driver.SetState:
		o.State = r.Value
	default:
		k.t.Errorf("unexpected request %s", r)
	}
	k.vfs[r.VF] = o
	return driver.Answer{}, nil
}

func (k *kernel) Load(_ context.Context, name string) error {
	if err := k.ask("modprobe " + name); err != nil {
		return err
	}
	return os.MkdirAll(k.root.Path("/sys/bus/pci/drivers/"+name), 0o755)
}

func (k *kernel) taken() (log []string) { log, k.log = k.log, nil; return log }

func (k *kernel) machine() startup.Machine {
	return startup.Machine{Root: k.root, Kernel: func(time.Duration) driver.Requester { return k }, Version: "test",
		Appear: 50 * time.Millisecond, Settle: 100 * time.Millisecond}
}

func (k *kernel) run() (steps.Result, error) { return startup.Run(context.Background(), k.machine()) }

func (k *kernel) revert() error { return startup.Revert(context.Background(), k.machine()) }

func guidOf(t *testing.T, text string) *rdma.GUID {
	t.Helper()
	g, err := rdma.ParseGUID(text)
	hosttest.NoError(t, err)
	return &g
}

// server returns a machine with an InfiniBand adapter and a record of two virtual functions for
// guests.
func server(t *testing.T, use rdma.Use) (*kernel, rdma.Record) {
	t.Helper()
	root := hosttest.Lay(t, "mkdir sys/bus/pci/drivers/mlx5_core\nmkdir run\nsymlink proc/1/ns/pid -> pid:[4026531836]\nmkdir proc/1/fd\nmkdir proc/1/map_files\nmkdir sys/kernel/iommu_groups\n"+hosttest.Fabric([]hosttest.HCA{{Address: pf, Device: "mlx5_0", Total: 8}},
		"-- proc/1/stat --\n1 (systemd) S 0 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n-- proc/1/comm --\nsystemd\n-- proc/1/cmdline --\n/sbin/init\n-- proc/1/cgroup --\n0::/init.scope\n-- proc/cmdline --\nquiet\n-- proc/mounts --\ntmpfs / tmpfs rw 0 0\n-- proc/sys/kernel/random/boot_id --\nb1\n-- "+above+pf+"/net/ib0/type --\n32\n-- "+above+pf+"/driver_override --\n(null)\n"))
	a := rdma.Prepared{Address: hosttest.Address(t, pf), VendorID: 0x15b3, ProductID: 0x101b, Path: []pci.Address{}, Driver: "mlx5_core",
		LinkLayer: rdma.LinkInfiniBand, Use: use}
	for i := range 2 {
		vf := rdma.PreparedVF{Index: i, Address: hosttest.Address(t, fmt.Sprintf("0000:0c:00.%d", i+1)), ProductID: 0x101c, Driver: "vfio-pci",
			NodeGUID: guidOf(t, fmt.Sprintf("0e:42:a1:%02x:00:0c:00:00", i)), PortGUID: guidOf(t, fmt.Sprintf("0e:42:a1:%02x:01:0c:00:00", i))}
		if use == rdma.ForContainers {
			vf.Driver = "mlx5_core"
		}
		a.VFs = append(a.VFs, vf)
	}
	k := &kernel{t: t, root: root}
	r := rdma.Record{Schema: 1, Kind: rdma.RecordKind, Adapters: []rdma.Prepared{a}, Files: []rdma.File{}}
	k.record(&r)
	return k, r
}

// record writes the record, or removes it.
func (k *kernel) record(r *rdma.Record) {
	place := k.root.Path(rdma.RecordFile)
	if r == nil {
		k.must(os.Remove(place))
		return
	}
	text, err := json.Marshal(r)
	k.must(err)
	k.must(os.MkdirAll(filepath.Dir(place), 0o755))
	k.must(os.WriteFile(place, text, 0o600))
}

func statuses(r steps.Result) (list []string) {
	for _, s := range r.Steps {
		list = append(list, s.ID+" "+string(s.Status))
	}
	return list
}

const devices = "devices/" + pf + "/"

func made(driverName string, load bool) []string {
	list := []string{devices + "sriov_drivers_autoprobe=0", devices + "sriov_numvfs=2"}
	for i := range 2 {
		list = append(list,
			fmt.Sprintf("ip link set dev ib0 vf %d node_guid 0e:42:a1:%02x:00:0c:00:00", i, i),
			fmt.Sprintf("ip link set dev ib0 vf %d port_guid 0e:42:a1:%02x:01:0c:00:00", i, i),
			fmt.Sprintf("ip link set dev ib0 vf %d state auto", i))
		if load && i == 0 {
			list = append(list, "modprobe vfio-pci")
		}
		list = append(list, fmt.Sprintf("devices/0000:0c:00.%d/driver_override=%s", i+1, driverName), fmt.Sprintf("drivers_probe=0000:0c:00.%d", i+1))
	}
	return list
}

var back = []string{devices + "sriov_numvfs=0", devices + "sriov_drivers_autoprobe=1"}

// TestRun: the requests of a boot in their order, then nothing, then back.
func TestRun(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		use  rdma.Use
		want []string
	}{{rdma.ForGuests, made("vfio-pci", true)}, {rdma.ForContainers, made("mlx5_core", false)}} {
		t.Run(string(test.use), func(t *testing.T) {
			t.Parallel()
			k, record := server(t, test.use)
			r, err := k.run()
			hosttest.NoError(t, err)
			if diff := cmp.Diff(test.want, k.taken()); diff != "" {
				t.Fatalf("requests (-want +got):\n%s", diff)
			}
			if len(r.Steps) != 5 || r.Ended == nil {
				t.Fatalf("%+v", r)
			}
			before := string(r.Steps[0].Before)
			r, err = k.run()
			hosttest.NoError(t, err)
			if log := k.taken(); len(log) > 0 {
				t.Errorf("again: %q", log)
			}
			for _, s := range r.Steps {
				if s.Status != steps.Unchanged {
					t.Errorf("again: %+v", s)
				}
			}
			if compact(t, r.Steps[0].Before) != before || !strings.Contains(before, `"num_vfs":0`) {
				t.Errorf("before: %s, then %s", before, r.Steps[0].Before)
			}
			if err := k.revert(); err != nil || len(k.taken()) > 0 {
				t.Errorf("revert while recorded: %v", err)
			}
			k.record(nil)
			hosttest.NoError(t, k.revert())
			hosttest.EqualIn(t, "revert", back, k.taken())
			if err := k.revert(); err != nil || len(k.taken()) > 0 {
				t.Errorf("revert again: %v", err)
			}
			k.record(&record)
			_, err = k.run()
			hosttest.NoError(t, err)
			if len(k.taken()) < 10 {
				t.Errorf("recorded again: not everything was done again")
			}
		})
	}
}

func compact(t *testing.T, text json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	hosttest.NoError(t, json.Compact(&b, text))
	return b.String()
}

// TestNothing: without a record neither a file nor a request.
func TestNothing(t *testing.T) {
	t.Parallel()
	k, _ := server(t, rdma.ForGuests)
	k.record(nil)
	if r, err := k.run(); err != nil || r.Steps != nil {
		t.Errorf("%+v, %v", r, err)
	}
	hosttest.NoError(t, k.revert())
	if ok, err := k.root.Exists("/run/gpustack"); ok || err != nil || len(k.taken()) > 0 {
		t.Errorf("%v, %v", ok, err)
	}
}

// TestRunFailures: a step that fails fails only those that need it; an adapter that is not the
// recorded one is not touched.
func TestRunFailures(t *testing.T) {
	t.Parallel()
	refuse := func(part string) func(string) error {
		return func(request string) error {
			if strings.Contains(request, part) {
				return errors.New("refused")
			}
			return nil
		}
	}
	const none = "vfs 0000:0c:00.0 failed,identity 0000:0c:00.1 skipped,driver 0000:0c:00.1 skipped,identity 0000:0c:00.2 skipped,driver 0000:0c:00.2 skipped"
	for name, test := range map[string]struct {
		spoil func(k *kernel, r *rdma.Record)
		want  string
		why   string
		err   error
		asks  int // requests, -1 for any number
	}{
		"GUID": {func(k *kernel, _ *rdma.Record) { k.fail = refuse("vf 0 port_guid") }, "vfs 0000:0c:00.0 done,identity 0000:0c:00.1 failed," +
			"driver 0000:0c:00.1 skipped,identity 0000:0c:00.2 done,driver 0000:0c:00.2 done", "refused", startup.ErrSteps, -1},
		"numvfs":  {func(k *kernel, _ *rdma.Record) { k.fail = refuse("numvfs=2") }, none, "refused", startup.ErrSteps, 2},
		"product": {func(_ *kernel, r *rdma.Record) { r.Adapters[0].ProductID = 0x1017 }, none, "0000:0c:00.0: is not the recorded function: it is 15b3:101b, not 15b3:1017", startup.ErrSteps, 0},
		"path": {func(k *kernel, r *rdma.Record) {
			r.Adapters[0].Path = []pci.Address{hosttest.Address(k.t, "0000:01:00.0")}
		}, none,
			"0000:0c:00.0: is not the recorded function: the bridges above it are [], not [0000:01:00.0]", startup.ErrSteps, 0},
		"board": {func(k *kernel, r *rdma.Record) {
			k.must(os.WriteFile(filepath.Join(k.root.Path(above), pf, "subsystem_device"), []byte("0x0001\n"), 0o600))
			r.Adapters[0].SubsystemID = new(pci.ID(2))
		}, none, "0000:0c:00.0: is not the recorded function: it is on another board", startup.ErrSteps, 0},
		"gone": {func(k *kernel, r *rdma.Record) { r.Adapters[0].Address = hosttest.Address(k.t, "0000:0d:00.0") },
			strings.Replace(none, pf, "0000:0d:00.0", 1), "0000:0d:00.0: is not there", startup.ErrSteps, 0},
		"VF address": {func(k *kernel, r *rdma.Record) { r.Adapters[0].VFs[0].Address = hosttest.Address(k.t, "0000:0c:01.1") },
			strings.ReplaceAll(none, "0000:0c:00.1", "0000:0c:01.1"), "VF 0 of 0000:0c:00.0: has another address than recorded: 0000:0c:01.1", startup.ErrSteps, 2},
		"gpustack=off": {func(k *kernel, _ *rdma.Record) {
			k.must(os.WriteFile(k.root.Path("/proc/cmdline"), []byte("quiet gpustack=off\n"), 0o600))
		}, strings.Replace(none, "failed", "skipped", 1), "gpustack=off is on the kernel command line", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, record := server(t, rdma.ForGuests)
			test.spoil(k, &record)
			k.record(&record)
			r, err := k.run()
			if !errors.Is(err, test.err) {
				t.Errorf("%v, want %v", err, test.err)
			}
			hosttest.Equal(t, strings.Split(test.want, ","), statuses(r))
			if i := slices.IndexFunc(r.Steps, func(s steps.StepResult) bool { return s.Error != "" }); i < 0 || r.Steps[i].Error != test.why {
				t.Errorf("error %+v, want %s", r.Steps, test.why)
			}
			if n := len(k.taken()); test.asks >= 0 && n != test.asks {
				t.Errorf("%d requests", n)
			}
			read, err := steps.ReadResult(k.root)
			hosttest.NoError(t, err)
			hosttest.EqualIn(t, "recorded", statuses(r), statuses(*read))
		})
	}
}

// TestRunKilled kills the run after each of its requests: the next run completes it, and what the
// first one found is what revert restores.
func TestRunKilled(t *testing.T) {
	t.Parallel()
	for after := 1; after <= len(made("vfio-pci", true)); after++ {
		k, _ := server(t, rdma.ForGuests)
		k.total = after
		func() {
			defer func() {
				if p := recover(); p != nil && p != errDied { //nolint:errorlint // the value itself
					panic(p)
				}
			}()
			if _, err := k.run(); err == nil {
				t.Fatalf("request %d: not killed", after)
			}
		}()
		k.total, k.log = 0, nil
		if r, err := k.run(); err != nil {
			t.Fatalf("after request %d: %v: %+v", after, err, r)
		}
		k.record(nil)
		k.taken()
		hosttest.NoError(t, k.revert())
		hosttest.EqualIn(t, fmt.Sprintf("after request %d: revert", after), back, k.taken())
	}
}

// TestHeld: VFs in use are neither destroyed nor bound to another driver, by a run with another
// number of VFs or by a revert, which changes nothing then.
func TestHeld(t *testing.T) {
	t.Parallel()
	k, record := server(t, rdma.ForGuests)
	_, err := k.run()
	hosttest.NoError(t, err)
	k.taken()
	k.hold("0000:0c:00.2", 7)
	record.Adapters[0].VFs = record.Adapters[0].VFs[:1]
	k.record(&record)
	r, err := k.run()
	if !errors.Is(err, startup.ErrSteps) || !strings.Contains(r.Steps[len(r.Steps)-3].Error, "VF 0000:0c:00.2 of 0000:0c:00.0 is in use") {
		t.Errorf("%+v, %v", r, err)
	}
	hosttest.ContainsIn(t, "another number", "VF 0000:0c:00.2 of 0000:0c:00.0 is in use", fmt.Sprint(k.revert()))
	k.record(nil)
	hosttest.ContainsIn(t, "removed", "VF 0000:0c:00.2 of 0000:0c:00.0 is in use", fmt.Sprint(k.revert()))
	if log := k.taken(); len(log) > 0 {
		t.Errorf("%q", log)
	}
	k.must(os.RemoveAll(k.root.Path("/proc/7")))
	hosttest.NoError(t, k.revert())
	hosttest.Equal(t, back, k.taken())
}

// hold adds a process that has the VFIO group of a function open.
func (k *kernel) hold(a string, group int) {
	at, err := k.root.Resolve("/sys/bus/pci/devices/" + a)
	k.must(err)
	g := "sys/kernel/iommu_groups/" + strconv.Itoa(group)
	k.must(os.MkdirAll(k.root.Path(g+"/devices"), 0o755))
	k.must(os.Symlink(at, k.root.Path(g+"/devices/"+a)))
	k.must(os.Symlink(k.root.Path(g), filepath.Join(at, "iommu_group")))
	k.must(os.MkdirAll(k.root.Path("proc/7/fd"), 0o755))
	k.must(os.MkdirAll(k.root.Path("proc/7/map_files"), 0o755))
	k.must(os.Symlink("/dev/vfio/"+strconv.Itoa(group), k.root.Path("proc/7/fd/9")))
	for name, text := range map[string]string{"comm": "qemu\n", "cmdline": "qemu\x00", "cgroup": "0::/x.scope\n",
		"stat": "7 (qemu) S 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"} {
		k.must(os.WriteFile(k.root.Path("proc/7/"+name), []byte(text), 0o600))
	}
}

// TestWholeVFs: a whole adapter whose VFs were made after it was recorded is not unbound, because
// that would destroy them. Who uses one is named.
func TestWholeVFs(t *testing.T) {
	t.Parallel()
	const vf, refused = "0000:0c:00.1", "0000:0c:00.0: has virtual functions enabled (2)"
	for name, test := range map[string]struct {
		vfs   int
		use   func(k *kernel)
		allow string
		want  []string // in the error of the step; nil for none
	}{
		"no VFs":             {0, nil, "", nil},
		"VFs without a user": {2, nil, "", []string{refused}},
		"VFs, allowed":       {2, nil, pf, []string{refused}},
		"an interface is up": {2, func(k *kernel) { k.route(vf) }, "", []string{refused, "its VF 0000:0c:00.1 has a network interface in use: ib1 is up"}},
		"a guest": {2, func(k *kernel) {
			k.must(os.MkdirAll(k.root.Path("/sys/bus/pci/drivers/vfio-pci"), 0o755))
			k.must(os.Symlink("/sys/bus/pci/drivers/vfio-pci", filepath.Join(k.root.Path(above), vf, "driver")))
			k.hold(vf, 7)
		}, "", []string{refused, "VF 0000:0c:00.1 of 0000:0c:00.0 is in use: assigned to guest qemu (pid 7)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, r := server(t, rdma.ForGuests)
			r.Adapters[0].Whole, r.Adapters[0].VFs, r.Allowed = true, []rdma.PreparedVF{}, []pci.Address{}
			if test.want == nil { // its port is active
				r.Allowed = []pci.Address{hosttest.Address(t, pf)}
			}
			k.record(&r)
			k.must(k.write(driver.Write{File: "/sys/bus/pci/" + devices + "sriov_numvfs", Value: strconv.Itoa(test.vfs)}))
			if test.use != nil {
				test.use(k)
			}
			m := k.machine()
			if test.allow != "" {
				m.Allowed = gate.Allowed{Functions: []pci.Address{hosttest.Address(t, test.allow)}}
			}
			result, err := startup.Run(context.Background(), m)
			if len(result.Steps) != 1 {
				t.Fatalf("%+v, %v", result, err)
			}
			got := result.Steps[0].Error
			for _, want := range test.want {
				hosttest.Contains(t, want, got)
			}
			if log := k.taken(); test.want != nil && len(log) > 0 || test.want == nil && (err != nil || len(log) == 0) {
				t.Errorf("%v, requests: %q", err, log)
			}
		})
	}
}

// TestJournalUnread: a journal that cannot be read keeps no step from unbinding what is idle.
func TestJournalUnread(t *testing.T) {
	t.Parallel()
	k, r := server(t, rdma.ForGuests)
	r.Adapters[0].Whole, r.Adapters[0].VFs, r.Allowed = true, []rdma.PreparedVF{}, []pci.Address{hosttest.Address(t, pf)}
	k.record(&r)
	k.must(os.MkdirAll(k.root.Path("/var/lib/gpustack/journal"), 0o700))
	k.must(os.WriteFile(k.root.Path("/var/lib/gpustack/journal/0001.json"), []byte("{\n"), 0o600))
	if result, err := k.run(); err != nil {
		t.Errorf("%+v, %v", result, err)
	}
}

// route sets up the interface of the first VF, on InfiniBand.
func (k *kernel) route(vf string) {
	k.must(os.WriteFile(filepath.Join(k.root.Path(above), vf, "net/ib1/flags"), []byte("0x1003\n"), 0o600))
	k.must(os.MkdirAll(k.root.Path("proc/net"), 0o755))
	k.must(os.WriteFile(k.root.Path("proc/net/route"), []byte("Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"+
		"ib1 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n"), 0o600))
}

// TestResized: VFs whose recorded number changed in the same boot are created again, with their
// identities and drivers, and one that is removed ends with what the first run found.
func TestResized(t *testing.T) {
	t.Parallel()
	k, record := server(t, rdma.ForGuests)
	_, err := k.run()
	hosttest.NoError(t, err)
	k.taken()
	all := record.Adapters[0].VFs
	record.Adapters[0].VFs = all[:1]
	k.record(&record)
	hosttest.NoError(t, k.revert())
	log := k.taken()
	if len(log) < 7 || log[0] != devices+"sriov_numvfs=0" || log[1] != devices+"sriov_numvfs=1" || k.vfs[0].NodeGUID != all[0].NodeGUID.String() {
		t.Errorf("%q", log)
	}
	k.record(nil)
	hosttest.NoError(t, k.revert())
	hosttest.Equal(t, back, k.taken())
}

// TestForeign: VFs that were there before, with identities of another owner, are as before after a
// revert; VFs that another program made since are left alone.
func TestForeign(t *testing.T) {
	t.Parallel()
	k, _ := server(t, rdma.ForGuests)
	k.must(k.write(driver.Write{File: "/sys/bus/pci/" + devices + "sriov_numvfs", Value: "3"}))
	k.vfs[2] = driver.VFOptions{NodeGUID: "0a:00:00:00:00:00:00:07", PortGUID: noGUID, State: "enable"}
	_, err := k.run()
	hosttest.NoError(t, err)
	k.record(nil)
	k.must(k.write(driver.Write{File: "/sys/bus/pci/" + devices + "sriov_numvfs", Value: "5"}))
	k.taken()
	if err := k.revert(); !errors.Is(err, startup.ErrChangedSince) || len(k.taken()) > 0 {
		t.Errorf("%v", err)
	}
	k.must(k.write(driver.Write{File: "/sys/bus/pci/" + devices + "sriov_numvfs", Value: "2"}))
	hosttest.NoError(t, k.revert())
	if got := k.vfs[2]; len(k.vfs) != 3 || got.NodeGUID != "0a:00:00:00:00:00:00:07" || got.State != "enable" {
		t.Errorf("%+v", k.vfs)
	}
}

// TestOtherOwner: VFs that another program has made before a run, or since an earlier one, are
// replaced or completed. One that makes VFs while the run goes on fails what it has taken away; the
// next run restores that.
func TestOtherOwner(t *testing.T) {
	t.Parallel()
	const since = ": was changed since by another program"
	for name, test := range map[string]struct {
		at, made string // the request before which it makes VFs, and their number; "" for before the run, "after" for since an earlier run
		failed   string // the first step that fails, with its error; "" for none
	}{
		"before":                             {"", "4", ""},
		"before, the same number":            {"", "2", ""},
		"after":                              {"after", "4", ""},
		"after, the same number":             {"after", "2", ""},
		"meanwhile, before the identity":     {"vf 1 node_guid", "2", "identity 0000:0c:00.1 0000:0c:00.1" + since},
		"meanwhile, before the driver":       {"modprobe vfio-pci", "2", "identity 0000:0c:00.1 0000:0c:00.1" + since},
		"meanwhile, another number":          {"0000:0c:00.2/driver_override", "4", "vfs 0000:0c:00.0 0000:0c:00.0" + since},
		"meanwhile, before the last request": {"drivers_probe=0000:0c:00.2", "3", "vfs 0000:0c:00.0 0000:0c:00.0" + since},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, _ := server(t, rdma.ForGuests)
			other := func() {
				k.must(k.write(driver.Write{File: "/sys/bus/pci/" + devices + "sriov_numvfs", Value: test.made}))
			}
			switch test.at {
			case "":
				other()
			case "after":
				_, err := k.run()
				hosttest.NoError(t, err)
				other()
			default:
				k.fail = func(request string) error {
					if strings.Contains(request, test.at) {
						k.fail = nil
						other()
					}
					return nil
				}
			}
			r, err := k.run()
			failed := ""
			if i := slices.IndexFunc(r.Steps, func(s steps.StepResult) bool { return s.Status == steps.Failed }); i >= 0 {
				failed = r.Steps[i].ID + " " + r.Steps[i].Error
			}
			if failed != test.failed || errors.Is(err, startup.ErrSteps) != (test.failed != "") {
				t.Errorf("%q, %v, want %q", failed, err, test.failed)
			}
			if test.failed != "" {
				_, err = k.run()
			}
			hosttest.NoError(t, err)
			for i := range 2 {
				s, err := driver.Read(k.root, hosttest.Address(t, fmt.Sprintf("0000:0c:00.%d", i+1)))
				hosttest.NoError(t, err)
				if len(k.vfs) != 2 || s.Driver != "vfio-pci" || k.vfs[i].NodeGUID == noGUID || k.vfs[i].PortGUID == noGUID {
					t.Errorf("VF %d of %d: %+v %+v", i, len(k.vfs), s, k.vfs[i])
				}
			}
		})
	}
}

// TestLock: a second run is refused.
func TestLock(t *testing.T) {
	t.Parallel()
	k, _ := server(t, rdma.ForGuests)
	k.fail = func(string) error {
		k.fail = nil
		if _, err := k.run(); !errors.Is(err, startup.ErrRunning) {
			t.Errorf("%v", err)
		}
		return nil
	}
	_, err := k.run()
	hosttest.NoError(t, err)
}

// TestInterrupted: a signal ends the run after the running step; the others are pending.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	k, _ := server(t, rdma.ForGuests)
	ctx, cancel := context.WithCancel(context.Background())
	k.fail = func(string) error { cancel(); return nil }
	r, err := startup.Run(ctx, k.machine())
	if !errors.Is(err, context.Canceled) || r.Ended != nil || r.Steps[0].Status != steps.Done || r.Steps[1].Status != steps.Pending {
		t.Errorf("%v, %v", statuses(r), err)
	}
}

// TestCarries: a VF that carries what the host needs is not destroyed, although its own boot made
// it, unless --allow has lifted that; a bond whose RDMA device is in use gets no VFs.
func TestCarries(t *testing.T) {
	const vf = "0000:0c:00.1"
	k, r := server(t, rdma.ForContainers)
	if _, err := k.run(); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		place := k.root.Path(name)
		k.must(os.MkdirAll(filepath.Dir(place), 0o755))
		k.must(os.WriteFile(place, []byte(text), 0o600))
	}
	write(above+vf+"/net/eth7/mtu", "1500\n")
	k.must(os.MkdirAll(k.root.Path("/sys/class/net"), 0o755))
	k.must(os.Symlink("../../../"+above+vf+"/net/eth7", k.root.Path("/sys/class/net/eth7")))
	write("/proc/net/route", "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\neth7 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n")
	r.Adapters[0].VFs = r.Adapters[0].VFs[:1]
	k.record(&r)
	k.taken()
	result, err := k.run()
	const want = pf + ": its VF " + vf + " has a network interface in use: eth7 is up"
	if !errors.Is(err, startup.ErrSteps) || result.Steps[len(result.Steps)-3].Error != want {
		t.Errorf("%+v, %v, want %s", result.Steps, err, want)
	}
	if log := k.taken(); len(log) > 0 {
		t.Errorf("changed: %q", log)
	}
	hosttest.ContainsIn(t, "revert", want, fmt.Sprint(k.revert()))
	r.Allowed = []pci.Address{hosttest.Address(t, pf)}
	k.record(&r)
	if _, err := k.run(); err != nil {
		t.Errorf("allowed: %v", err)
	}
}
