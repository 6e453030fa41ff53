package containerprepare_test

import (
	"context"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/container/containerprepare"
	"gpustack/host/edit"
	"gpustack/host/pci"
)

// TestToolkitFile: the toolkit's own specs get the GPUs for containers, and only gpustack's line of
// its environment file changes.
func TestToolkitFile(t *testing.T) {
	t.Parallel()
	const (
		file    = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
		mark    = "# Written by gpustack container prepare: only the GPUs that are for containers.\n"
		ids     = "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS="
		refresh = "/usr/lib/systemd/system/nvidia-cdi-refresh.service"
	)
	gpuA, gpuB := address(t, gpu0), address(t, gpu1) // the driver shows no UUID of the second
	for name, test := range map[string]struct {
		before  string // "" for no file
		gpus    []pci.Address
		unit    bool
		after   string
		warning string
	}{
		"no toolkit":               {"", []pci.Address{gpuA}, false, "", ""},
		"no file":                  {"", []pci.Address{gpuA}, true, mark + ids + uuid + "\n", ""},
		"others' lines":            {"A=1", []pci.Address{gpuA}, true, "A=1\n" + mark + ids + uuid + "\n", ""},
		"again":                    {"A=1\n" + mark + ids + "GPU-old\n", []pci.Address{gpuA}, true, "A=1\n" + mark + ids + uuid + "\n", ""},
		"an operator's":            {ids + "GPU-x\n", []pci.Address{gpuA}, true, ids + "GPU-x\n", "is left as it is: it has to name"},
		"an operator's below ours": {mark + ids + "GPU-old\n" + ids + "GPU-x\n", []pci.Address{gpuA}, true, mark + ids + "GPU-old\n" + ids + "GPU-x\n", "is left as it is: it has to name"},
		"one without UUID":         {mark + ids + "GPU-old\n", []pci.Address{gpuA, gpuB}, true, mark + ids + uuid + "\n", "lacks " + gpu1},
		"none with UUID":           {"A=1\n", []pci.Address{gpuB}, true, "A=1\n", "is left as it is: the driver does not show the UUID of " + gpu1},
		"an adapter only":          {"A=1\n" + mark + ids + uuid + "\n", nil, true, "A=1\n", ""},
		"ours alone":               {mark + ids + uuid + "\n", nil, true, "", ""},
		"toolkit removed":          {mark + ids + uuid + "\n", []pci.Address{gpuA}, false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			put := func(name, text string) {
				t.Helper()
				c, err := edit.Put(n.root, name, []byte(text), 0o644, false)
				if err == nil {
					err = edit.Plan{c}.Apply(context.Background(), n.root)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if test.before != "" {
				put(file, test.before)
			}
			if test.unit {
				put(refresh, "[Service]\n")
			}
			m := n.machine()
			want, err := containerprepare.NewWant(m, containerprepare.Options{GPUs: test.gpus, HCAs: []pci.Address{address(t, hca)}})
			if err != nil {
				t.Fatal(err)
			}
			p, err := n.plan(t, m, want)
			if err == nil {
				err = p.Files.Apply(context.Background(), n.root)
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := n.root.ReadFile(file)
			if err != nil && !host.IsAbsent(err) || string(data) != test.after {
				t.Errorf("%v, %q, want %q", err, data, test.after)
			}
			if found := strings.Contains(strings.Join(p.Warnings, "\n"), file+" "); found != (test.warning != "") || !strings.Contains(strings.Join(p.Warnings, "\n"), test.warning) {
				t.Errorf("warnings %q, want %q", p.Warnings, test.warning)
			}
		})
	}
}
