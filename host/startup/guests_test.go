package startup_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/driver"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/startup"
	"gpustack/host/steps"
)

// TestGuestFunction: a function for guests that is no GPU's is bound by its address and recorded
// identity, after the gate and the kernel were asked again. What has come into use since stays.
func TestGuestFunction(t *testing.T) {
	t.Parallel()
	const disk = "0000:0c:05.0"
	for name, test := range map[string]struct {
		change  func(k *kernel, write func(name, text string), c *machine.Contract) // nil for none
		claimed bool                                                                // the kernel refuses to open the disk exclusively
		status  steps.Status
		failed  string // a part of the error
	}{
		"idle": {nil, false, steps.Done, ""},
		"its disk is mounted by now": {func(_ *kernel, write func(string, string), _ *machine.Contract) {
			write("proc/mounts", "tmpfs / tmpfs rw 0 0\n/dev/nvme0n1 /srv ext4 rw 0 0\n")
		}, false, steps.Failed, disk + ": its disk /dev/nvme0n1 is claimed: /dev/nvme0n1 is mounted at /srv"},
		"the root file system is on it by now": {func(_ *kernel, write func(string, string), _ *machine.Contract) {
			write("proc/mounts", "/dev/nvme0n1 / ext4 rw 0 0\n")
		}, false, steps.Failed, disk + ": carries /dev/nvme0n1, mounted at /"},
		"the kernel has claimed its disk": {nil, true, steps.Failed, guard.ErrClaimed.Error()},
		"a program has it open": {func(k *kernel, write func(string, string), _ *machine.Contract) {
			write("proc/7/comm", "smartd\n")
			k.must(os.MkdirAll(k.root.Path("proc/7/fd"), 0o755))
			k.must(os.Symlink("/dev/nvme0n1", k.root.Path("proc/7/fd/3")))
		}, false, steps.Failed, disk + " is in use: smartd (pid 7) has /dev/nvme0n1 open"},
		"not allowed": {func(_ *kernel, _ func(string, string), c *machine.Contract) { c.Allowed = []pci.Address{} }, false, steps.Failed,
			disk + ": is no GPU: "},
		"another device": {func(_ *kernel, write func(string, string), _ *machine.Contract) {
			write(above+disk+"/device", "0xa825\n")
		}, false, steps.Failed,
			disk + ": is not the recorded function: it is 144d:a825, not 144d:a824"},
		"another slot": {func(_ *kernel, _ func(string, string), c *machine.Contract) {
			c.Functions[0].Path = []pci.Address{{Bus: 1}}
		}, false, steps.Failed,
			disk + ": is not the recorded function: the bridges above it are"},
		"gone": {func(k *kernel, _ func(string, string), _ *machine.Contract) {
			k.must(os.RemoveAll(k.root.Path(above + disk)))
			k.must(os.Remove(k.root.Path("sys/bus/pci/devices/" + disk)))
		}, false, steps.Failed, driver.ErrGone.Error()},
		"bound by the initramfs of others": {func(k *kernel, write func(string, string), _ *machine.Contract) {
			k.must(os.Remove(k.root.Path(above + disk + "/driver")))
			k.must(os.Symlink("/sys/bus/pci/drivers/vfio-pci", k.root.Path(above+disk+"/driver")))
			write(above+disk+"/driver_override", "vfio-pci\n")
		}, true, steps.Unchanged, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, _ := server(t, rdma.ForGuests)
			k.record(nil)
			write := func(name, text string) {
				k.must(os.MkdirAll(filepath.Dir(k.root.Path(name)), 0o755))
				k.must(os.WriteFile(k.root.Path(name), []byte(text), 0o600))
			}
			for name, text := range map[string]string{"class": "0x010802", "vendor": "0x144d", "device": "0xa824", "driver_override": "(null)",
				"nvme/nvme0/nvme0n1/dev": "259:0", "nvme/nvme0/dev": "240:0"} {
				write(above+disk+"/"+name, text+"\n")
			}
			k.must(os.Symlink("/sys/bus/pci/drivers/nvme", k.root.Path(above+disk+"/driver")))
			k.must(os.Symlink("../../../../"+above+disk, k.root.Path("sys/bus/pci/devices/"+disk)))
			k.must(os.MkdirAll(k.root.Path("sys/class/block"), 0o755))
			k.must(os.Symlink("../../"+strings.TrimPrefix(above, "sys/")+disk+"/nvme/nvme0/nvme0n1", k.root.Path("sys/class/block/nvme0n1")))
			a := hosttest.Address(t, disk)
			c := machine.Contract{Driver: machine.VFIO, Selected: []pci.Address{a}, Allowed: []pci.Address{a}, Arguments: []string{}, Files: []machine.Hash{},
				Functions: []machine.Function{{Address: a, VendorID: 0x144d, ProductID: 0xa824, Path: []pci.Address{}, Members: []pci.Address{}, Driver: machine.VFIO, By: machine.ByService}}}
			if test.change != nil {
				test.change(k, write, &c)
			}
			text, err := machine.RecordText(&c, nil)
			hosttest.NoError(t, err)
			write(machine.ContractFile, string(text))

			m, events := k.machine(), []string{}
			m.Claim = func(name string) (func() error, error) {
				if test.claimed {
					return nil, fmt.Errorf("%s: %w", name, guard.ErrClaimed)
				}
				events = append(events, fmt.Sprintf("claim %s after %d", name, len(k.log)))
				return func() error { events = append(events, fmt.Sprintf("release after %d", len(k.log))); return nil }, nil
			}
			result, err := startup.Run(context.Background(), m)
			if len(result.Steps) != 1 || result.Steps[0].Status != test.status || !strings.Contains(result.Steps[0].Error, test.failed) || test.failed == "" && err != nil {
				t.Fatalf("%v, %v %v, want %s %q", err, statuses(result), result.Steps, test.status, test.failed)
			}
			log := k.taken()
			if test.status != steps.Done {
				if len(log) > 0 {
					t.Errorf("changed: %q", log)
				}
				return
			}
			unbound := slices.ContainsFunc(log, func(request string) bool { return strings.Contains(request, "unbind="+disk) })
			s, err := driver.Read(k.root, a)
			if err != nil || s.Driver != "vfio-pci" || !unbound {
				t.Errorf("%v, %+v, %q", err, s, log)
			}
			if len(events) != 2 || !strings.HasPrefix(events[0], "claim /dev/nvme0n1") || events[1] != fmt.Sprintf("release after %d", len(log)) {
				t.Errorf("the disk is not held until it is unbound: %q, %d requests", events, len(log))
			}
		})
	}
}
