package explain

import (
	"context"
	"slices"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// classes answers as a Placement whose root providers have unlimited inventories of some classes.
type classes struct {
	of map[string][]string
}

func (c classes) Candidates(_ context.Context, resources map[string]int, _ []string) (map[string]bool, error) {
	roots := map[string]bool{}
	for root, has := range c.of {
		roots[root] = true
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
// hosts with PCPU, where Nova's code asks for both.
func TestSharedCPUs(t *testing.T) {
	p := classes{of: map[string][]string{"rp1": {"VCPU", "MEMORY_MB"}, "rp2": {"PCPU", "MEMORY_MB"}}}
	judged := func(queries ...Query) (links []string) {
		f := healthy(t)
		delete(f.Flavor.ExtraSpecs, nova.RequestKey)
		specs(&f, "hw:cpu_policy", "dedicated")
		f.Hosts = append(f.Hosts, f.Hosts[0])
		f.Hosts[1].Name, f.Hosts[1].Provider = "gpu2", "rp2"
		f.Answer = &Answer{Queries: queries, Hosts: []Answered{{Host: "gpu1", Node: "gpu1.example"}, {Host: "gpu2", Node: "gpu1.example"}}}
		hosttest.NoError(t, f.askPlacement(t.Context(), p))
		for _, j := range Judge(f).Judgements {
			word := string(j.Verdict)
			if j.Failing != nil {
				word = string(*j.Failing)
			}
			links = append(links, j.Host+" "+word)
		}
		return links
	}
	pinned, shared := Query{Resources: map[string]int{"PCPU": 4, "MEMORY_MB": 1}}, Query{Resources: map[string]int{"VCPU": 4, "MEMORY_MB": 1}}
	if got, want := judged(pinned, shared), []string{"gpu1 can", "gpu2 can"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := judged(pinned), []string{"gpu1 placement", "gpu2 can"}; !slices.Equal(got, want) {
		t.Errorf("turned off: %q, want %q", got, want)
	}
}
