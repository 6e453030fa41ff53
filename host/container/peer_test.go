package container_test

import (
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	library "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/container"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

var update = flag.Bool("update", false, "write testdata/nvidia-ctk/compared.txt")

// parts are what a container gets by the first device of a spec, each with its kind: nodes, libraries
// by their files, links to them, programs, variables and hooks.
func parts(t *testing.T, root host.Root, spec *specs.Spec) (names []string, edits specs.ContainerEdits) {
	t.Helper()
	all := library.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	all.Append(&library.ContainerEdits{ContainerEdits: &spec.ContainerEdits}).Append(&library.ContainerEdits{ContainerEdits: &spec.Devices[0].ContainerEdits})
	edits = *all.ContainerEdits
	for _, n := range edits.DeviceNodes {
		names = append(names, "node "+n.Path)
	}
	for _, m := range edits.Mounts {
		file, err := root.Real(m.HostPath)
		hosttest.NoError(t, err)
		base := path.Base(m.ContainerPath)
		switch _, version, isLibrary := strings.Cut(base, ".so"); {
		case isLibrary && version == "":
			names = append(names, "link "+base)
		case isLibrary:
			names = append(names, "library "+path.Base(file))
		default:
			names = append(names, "file "+m.ContainerPath)
		}
	}
	for _, h := range edits.Hooks {
		names = append(names, "hook "+h.Args[1])
		for _, arg := range h.Args {
			if _, link, ok := strings.Cut(arg, "::"); ok {
				names = append(names, "link "+path.Base(link))
			}
		}
	}
	for _, env := range edits.Env {
		name, _, _ := strings.Cut(env, "=")
		names = append(names, "variable "+name)
	}
	slices.Sort(names)
	return slices.Compact(names), edits
}

// TestNvidiaSpecs compares our spec with those that NVIDIA's generator writes on the same machine:
// both give containers all that compute needs, and testdata/nvidia-ctk/compared.txt has the rest.
func TestNvidiaSpecs(t *testing.T) {
	t.Parallel()
	tree := hosttest.Read(t, "testdata/nvidia-ctk/tree.txtar")
	root := hosttest.Lay(t, tree)
	devices := hosttest.Devices(t, root)
	driver, err := nvidia.Read(root, devices)
	hosttest.NoError(t, err)
	record := machine.Containers{}
	for _, d := range devices {
		record.Functions = append(record.Functions, machine.ContainerFunction{Address: d.Address, VendorID: *d.VendorID, ProductID: *d.ProductID})
	}
	own := container.SpecOf(&record, driver, rdma.Stack{}, devices)
	if own.GPU == nil || own.Missing != nil {
		t.Fatalf("%+v", own)
	}
	ours, edits := parts(t, root, own.GPU)
	if g := container.Gives(edits, driver, rdma.Stack{}); g.Lacks != nil || g.Other != "" {
		t.Errorf("by our spec a container gets %+v", g)
	}
	var compared strings.Builder
	for _, version := range []string{"1.18.2", "1.20.0"} {
		data := hosttest.Read(t, "testdata/nvidia-ctk/"+version+".json")
		spec, problems := cdi.Parse(version, []byte(data))
		if spec == nil || problems != nil {
			t.Fatal(problems)
		}
		theirs, edits := parts(t, root, spec)
		if g := container.Gives(edits, driver, rdma.Stack{}); g.Lacks != nil || g.Other != "" || !g.Hooked || !g.Triton || !slices.Equal(g.Functions, []pci.Address{devices[0].Address}) {
			t.Errorf("%s: by NVIDIA's spec a container gets %+v", version, g)
		}
		fmt.Fprintf(&compared, "== nvidia-ctk %s\n", version)
		for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(ours, theirs)))) {
			who := "both"
			switch {
			case !slices.Contains(ours, name):
				who = "theirs"
			case !slices.Contains(theirs, name):
				who = "ours"
			}
			fmt.Fprintf(&compared, "%s: %s\n", who, name)
		}
	}
	const golden = "testdata/nvidia-ctk/compared.txt"
	if *update {
		hosttest.NoError(t, os.WriteFile(golden, []byte(compared.String()), 0o644))
	}
	want := hosttest.Read(t, golden)
	hosttest.Equal(t, want, compared.String())
}
