package nova

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"gpustack/integration/race"
	"gpustack/nova/cloud/cloudtest"
)

// BenchmarkFlavorCreate times whole processes that make a flavor that asks for two
// cards: the two openstack commands that it takes, a program that does the same
// requests and nothing else, and gpustack. Most of it is Keystone's and Nova's time.
func BenchmarkFlavorCreate(b *testing.B) {
	bare := filepath.Join(b.TempDir(), "bareflavor")
	if out, err := exec.Command("go", "build", "-o", bare, "gpustack/integration/nova/bareflavor").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	b.Cleanup(func() {
		if _, err := lab.Database.Query(context.WithoutCancel(b.Context()), "DELETE FROM nova_api.flavor_extra_specs; DELETE FROM nova_api.flavors"); err != nil {
			b.Error(err)
		}
	})
	name := func(who string, round int) string { return fmt.Sprintf("%s.%d.%d", who, b.N, round) }
	race.Run(b,
		race.Peer{Name: "openstack", Env: lab.Env(), Each: func(round int) []string {
			return []string{"sh", "-ec", `openstack flavor create --vcpus 8 --ram 32768 --disk 80 "$0"; openstack flavor set --property pci_passthrough:alias=K4200:2 "$0"`, name("openstack", round)}
		}},
		race.Peer{Name: "bare", Env: lab.Env(), Each: func(round int) []string { return isolated(b, bare, name("bare", round)).Args }},
		race.Peer{Name: "gpustack", Env: lab.Env(), Each: func(round int) []string {
			return isolated(b, gpustack, "flavor", "create", "K4200:2", "--name", name("gpustack", round), "--yes").Args
		}},
	)
}

// BenchmarkNovaDevices times nova devices with 2,000 hosts of two devices each in a cloud that only
// imitates OpenStack, beside nova explain, which reads what Placement has for the whole request.
func BenchmarkNovaDevices(b *testing.B) {
	c := cloudtest.Start(b, 95)
	c.AddHosts(cloudtest.ManyHosts(c, 2000))
	c.Add("1", "gpu.k4200.1", 1, 64, 1, true, map[string]string{"pci_passthrough:alias": "K4200:1"})
	env := []string{}
	for name, value := range c.Env() {
		env = append(env, name+"="+value)
	}
	race.Run(b,
		race.Peer{Name: "explain", Env: env, Argv: []string{"sh", "-c", gpustack + " nova explain --flavor gpu.k4200.1 || [ $? = 2 ]"}},
		race.Peer{Name: "gpustack", Env: env, Argv: []string{gpustack, "nova", "devices"}},
	)
}
