package containerprepare_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/container"
	"gpustack/host/container/containerprepare"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// TestToolkit: the toolkit's own specs get the GPUs for containers that the driver shows, by a list
// that each boot writes: one UUID too many makes NVIDIA's generator fail as a whole.
func TestToolkit(t *testing.T) {
	t.Parallel()
	const (
		list    = "/run/gpustack/nvidia-cdi-refresh.env"
		ids     = "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS="
		library = "/usr/lib64/libnvidia-container.so."
		yes     = true
	)
	gpuA, gpuB := hosttest.Address(t, gpu0), hosttest.Address(t, gpu1) // the driver shows no UUID of the second
	for name, test := range map[string]struct {
		files   map[string]string
		gpus    []pci.Address
		change  func(*containerprepare.Observed)
		static  bool
		dropIn  bool
		list    string // "" for no file
		warning string
	}{
		"no toolkit":         {map[string]string{container.RefreshEnv: "A=1\n"}, []pci.Address{gpuA}, nil, false, false, "", ""},
		"a GPU":              {unitOf(""), []pci.Address{gpuA}, nil, false, yes, ids + uuid + "\n", ""},
		"others' lines":      {unitOf("A=1\n"), []pci.Address{gpuA}, nil, false, yes, ids + uuid + "\n", ""},
		"an operator's":      {unitOf(ids + "GPU-x\n"), []pci.Address{gpuA}, nil, false, false, "", "is left as it is: it has to name"},
		"one without a UUID": {unitOf(""), []pci.Address{gpuA, gpuB}, nil, false, yes, ids + uuid + "\n", ""},
		"a UUID that the driver has shown before": {unitOf(""), []pci.Address{gpuA}, func(m *containerprepare.Observed) {
			m.Driver.GPUs[0].UUID = nil
			m.Recorded.Functions[0].UUID = uuid
		}, false, yes, ids + uuid + "\n", ""},
		"a GPU that has failed": {unitOf(""), []pci.Address{gpuA, gpuB}, func(m *containerprepare.Observed) {
			other := "GPU-other"
			m.Driver.GPUs[1].UUID = &other
			m.Driver.GPUs = m.Driver.GPUs[1:]
			m.Recorded.Functions[0].UUID = uuid
		}, false, yes, ids + "GPU-other\n", ""},
		"all GPUs have failed":    {unitOf(""), []pci.Address{gpuA}, func(m *containerprepare.Observed) { m.Driver.GPUs = nil }, false, yes, ids + "none\n", ""},
		"an adapter only":         {unitOf(""), nil, nil, false, false, "", ""},
		"a toolkit that does not": {with(unitOf(""), library+"1.18.2"), []pci.Address{gpuA}, nil, false, false, "", "1.18.2 does not read NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS"},
		"a toolkit that does":     {with(unitOf(""), library+"1.19.0"), []pci.Address{gpuA}, nil, false, yes, ids + uuid + "\n", ""},
		"static":                  {unitOf(""), []pci.Address{gpuA}, nil, yes, false, "", "--static no boot lists the GPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			for name, text := range test.files {
				c, err := edit.Put(n.root, name, []byte(text), 0o644, false)
				if err == nil {
					err = edit.Changes{c}.Apply(context.Background(), n.root)
				}
				hosttest.NoError(t, err)
			}
			m := n.machine()
			o := containerprepare.Options{GPUs: test.gpus, HCAs: []pci.Address{hosttest.Address(t, hca)}, Static: &test.static}
			want, err := containerprepare.NewWant(m, o)
			hosttest.NoError(t, err)
			if test.change != nil { // since it was recorded
				m.Recorded = &want.Record
				test.change(&m)
				if want, err = containerprepare.NewWant(m, containerprepare.Options{}); err != nil {
					t.Fatal(err)
				}
			}
			p, err := n.plan(t, m, want)
			if err == nil {
				err = append(p.Files, p.Boot...).Apply(context.Background(), n.root)
			}
			hosttest.NoError(t, err)
			if restarted := slices.Contains(p.Restart, container.RefreshUnit); restarted != (test.list != "") {
				t.Errorf("restart: %q", p.Restart)
			}
			data, err := n.root.ReadFile(list)
			if err != nil && !host.IsAbsent(err) || string(data) != test.list {
				t.Errorf("%v, %q, want %q", err, data, test.list)
			}
			if has, err := n.root.Exists(container.RefreshDropIn); err != nil || has != test.dropIn {
				t.Errorf("the drop-in: %t, %v", has, err)
			}
			if all := strings.Join(p.Warnings, "\n"); !strings.Contains(all, test.warning) || test.warning == "" && strings.Contains(all, "nvidia.com/gpu") {
				t.Errorf("warnings %q, want %q", p.Warnings, test.warning)
			}
		})
	}
}

// unitOf returns the files of a toolkit whose unit has an environment file.
func unitOf(env string) map[string]string {
	return map[string]string{"/usr/lib/systemd/system/nvidia-cdi-refresh.service": "[Service]\n", container.RefreshEnv: env}
}

func with(files map[string]string, name string) map[string]string {
	files[name] = ""
	return files
}
