package explain

import (
	"context"
	"slices"
	"strings"
	"testing"

	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/conf"
)

// classes answers as a Placement whose root providers have unlimited inventories of some classes.
// A trait that is not among its traits is an unknown name.
type classes struct {
	of     map[string][]string
	traits []string
	nobody []string // traits that no provider has
}

func (c classes) Candidates(_ context.Context, resources map[string]int, traits []string) (map[string]bool, error) {
	roots := map[string]bool{}
	for _, trait := range traits {
		if !slices.Contains(c.traits, strings.TrimPrefix(trait, "!")) {
			return nil, cloud.ErrUnknownName
		}
	}
	for root, has := range c.of {
		roots[root] = !slices.ContainsFunc(traits, func(trait string) bool { return slices.Contains(c.nobody, trait) })
		for class := range resources {
			roots[root] = roots[root] && slices.Contains(has, class)
		}
	}
	return roots, nil
}

func (classes) Serving(context.Context, string, int, []string) ([]cloud.Provider, error) {
	return nil, nil
}
func (classes) PCIProviders(context.Context) ([]cloud.Provider, error) { return nil, nil }
func (classes) Inventories(context.Context, string) (map[string]cloud.Inventory, error) {
	return map[string]cloud.Inventory{}, nil
}

// TestSharedCPUs: guests with pinned CPUs are also built on hosts that report shared ones, beside
// hosts with PCPU, unless the operator has turned that off.
func TestSharedCPUs(t *testing.T) {
	p := classes{of: map[string][]string{"rp1": {"VCPU", "MEMORY_MB", "DISK_GB"}, "rp2": {"PCPU", "MEMORY_MB", "DISK_GB"}}}
	judged := func(controls string) (links []string) {
		f := healthy(t)
		delete(f.Flavor.ExtraSpecs, nova.RequestKey)
		specs(&f, "hw:cpu_policy", "dedicated")
		f.Sides = sides(t, controls, computing)
		f.Hosts = append(f.Hosts, f.Hosts[0])
		f.Hosts[1].Name, f.Hosts[1].Provider = "gpu2", "rp2"
		if err := f.askPlacement(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		for _, j := range Judge(f).Judgements {
			word := string(j.Verdict)
			if j.Failing != nil {
				word = string(*j.Failing)
			}
			links = append(links, j.Host+" "+word)
		}
		return links
	}
	if got, want := judged(controller), []string{"gpu1 can", "gpu2 can"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	off := controller + "[workarounds]\ndisable_fallback_pcpu_query = true\n"
	if got, want := judged(off), []string{"gpu1 placement", "gpu2 can"}; !slices.Equal(got, want) {
		t.Errorf("turned off: %q, want %q", got, want)
	}
}

// TestUnknownTraitOfImage: nova-scheduler requires nothing for the metadata of an image if a name
// that it derives does not exist.
func TestUnknownTraitOfImage(t *testing.T) {
	p := classes{of: map[string][]string{"rp1": {"VCPU", "MEMORY_MB", "DISK_GB"}}, traits: []string{"COMPUTE_STORAGE_BUS_VIRTIO", "COMPUTE_STORAGE_BUS_SATA"},
		nobody: []string{"COMPUTE_STORAGE_BUS_SATA"}}
	for name, c := range map[string]struct {
		image map[string]string
		steps int
	}{
		"a known name":    {map[string]string{"hw_disk_bus": "virtio"}, 4},
		"an unknown name": {map[string]string{"hw_disk_bus": "vhs"}, 3},
		"an unknown name after one that no host has":                   {map[string]string{"hw_cdrom_bus": "sata", "hw_disk_bus": "vhs"}, 3},
		"an unknown name before one that no host has":                  {map[string]string{"hw_cdrom_bus": "vhs", "hw_disk_bus": "sata"}, 3},
		"an unknown name of a model, which os_traits spells otherwise": {map[string]string{"hw_disk_bus": "sata", "hw_viommu_model": "auto"}, 3},
	} {
		f := healthy(t)
		f.Sides = sides(t, controller+"[scheduler]\nimage_metadata_prefilter = true\n", computing)
		f.Image = &cloud.Image{Name: "i", Properties: c.image}
		if !f.isOn(nova.Side.Scheduler, conf.Name{Section: "scheduler", Key: "image_metadata_prefilter"}) {
			t.Fatal("the option is not read")
		}
		if err := f.askPlacement(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if r := Judge(f); r.Verdict != Can || len(f.Placement.Steps) != c.steps {
			t.Errorf("%s: %s, %d steps", name, r.Conclusion, len(f.Placement.Steps))
		}
	}
}
