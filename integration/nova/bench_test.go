package nova

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"gpustack/integration/race"
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
