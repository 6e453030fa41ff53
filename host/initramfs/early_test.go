package initramfs_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/initramfs"
	"gpustack/host/pci"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// byIDs binds by modprobe's ids= option alone; twins are identical devices bound by address, one of
// them to another driver.
func byIDs() initramfs.Early {
	return initramfs.Early{Driver: "vfio-pci", Modules: []string{"vfio", "vfio_iommu_type1", "vfio_pci"}}
}

func twins(t testing.TB) initramfs.Early {
	e := byIDs()
	e.Modules = append(e.Modules, "nvgrace-gpu-vfio-pci")
	e.Variants = []string{"nvgrace_gpu_vfio_pci"}
	e.Blacklist = []string{"nouveau", "nvidia_drm"}
	vendor, product := pci.ID(0x10de), pci.ID(0x16eb)
	e.ByAddress = []initramfs.Function{
		{
			Address: hosttest.Address(t, "0000:65:00.0"), Path: "/sys/devices/pci0000:64/0000:64:00.0/0000:65:00.0", Vendor: 0x10de, Product: 0x2342,
			SubsystemVendor: &vendor, Subsystem: &product, Driver: "nvgrace_gpu_vfio_pci",
		},
		{
			Address: hosttest.Address(t, "0000:65:00.1"), Path: "/sys/devices/pci0000:64/0000:64:00.0/0000:65:00.1", Vendor: 0x10de, Product: 0x10f8,
			Driver: "vfio-pci",
		},
	}
	e.Consoles = []pci.Address{e.ByAddress[0].Address}
	return e
}

// TestPlan compares the files for each generator with testdata.
func TestPlan(t *testing.T) {
	for _, generator := range []initramfs.Generator{initramfs.Tools, initramfs.Dracut} {
		for name, early := range map[string]initramfs.Early{
			"ids":     byIDs(),
			"twins":   twins(t),
			"builtin": {Driver: "pci-stub", ArgumentIDs: []initramfs.Function{{Vendor: 0x10de, Product: 0x11b4}, {Vendor: 0x10de, Product: 0x0e0a}}},
		} {
			t.Run(string(generator)+"-"+name, func(t *testing.T) {
				plan, err := early.Plan(edit.Observe(hosttest.Lay(t, "mkdir etc\n"), initramfs.PlanFiles()...), generator)
				hosttest.NoError(t, err)
				got := &txtar.Archive{}
				for _, c := range plan.Pending() {
					got.Files = append(got.Files, txtar.File{Name: c.Name + " " + os.FileMode(c.After.Mode).String(), Data: c.After.Content})
				}
				golden := filepath.Join("testdata", string(generator)+"-"+name+".txtar")
				if *update {
					hosttest.NoError(t, os.WriteFile(golden, txtar.Format(got), 0o644))
				}
				want := hosttest.Read(t, golden)
				hosttest.Equal(t, want, string(txtar.Format(got)))
			})
		}
	}
}

// TestPath: a path that is not in sysfs or not safe in the scripts' quotes is an error.
func TestPath(t *testing.T) {
	for _, path := range []string{"", "/sys/devices/'; reboot; '", "/tmp/0000:65:00.0", "/sys/devices/a\nb", "/sys/$(reboot)"} {
		e := twins(t)
		e.ByAddress[1].Path = path
		if _, err := e.Plan(edit.Observe(hosttest.Lay(t, "mkdir etc\n"), initramfs.PlanFiles()...), initramfs.Tools); !errors.Is(err, initramfs.ErrPath) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// TestGeneratorChanges: after a change of generators, the files for the first one are removed and
// the files of others remain.
func TestGeneratorChanges(t *testing.T) {
	root := hosttest.Lay(t, "-- etc/dracut.conf.d/site.conf --\n-- etc/initramfs-tools/hooks/site --\n")
	files := func() string {
		var names []string
		err := filepath.WalkDir(root.Path("/"), func(name string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				names = append(names, strings.TrimPrefix(name, root.Path("/")))
			}
			return err
		})
		hosttest.NoError(t, err)
		return strings.Join(names, "\n")
	}
	const (
		site   = "/etc/dracut.conf.d/site.conf\n"
		tools  = site + "/etc/initramfs-tools/hooks/gpustack\n/etc/initramfs-tools/hooks/site\n/etc/initramfs-tools/scripts/init-top/gpustack"
		dracut = site + "/etc/dracut.conf.d/zz-gpustack.conf\n/etc/initramfs-tools/hooks/site\n" +
			"/usr/lib/dracut/modules.d/99gpustack/gpustack.sh\n/usr/lib/dracut/modules.d/99gpustack/module-setup.sh"
	)
	for _, step := range []struct {
		generator initramfs.Generator
		want      string
		pending   int
	}{
		{initramfs.Dracut, dracut, 3},
		{initramfs.Dracut, dracut, 0},
		{initramfs.Tools, tools, 5},
		{initramfs.Tools, tools, 0},
		{initramfs.Dracut, dracut, 5},
	} {
		plan, err := byIDs().Plan(edit.Observe(root, initramfs.PlanFiles()...), step.generator)
		hosttest.NoError(t, err)
		hosttest.EqualIn(t, fmt.Sprintf("%s: changes", step.generator), step.pending, len(plan.Pending()))
		hosttest.NoError(t, plan.Apply(context.Background(), root))
		hosttest.EqualIn(t, fmt.Sprint(step.generator), strings.Split(step.want, "\n"), strings.Split(files(), "\n"))
	}
}
