package integration

import (
	"os"
	"path/filepath"
	"testing"

	"gpustack/fleet/fleettest"
	"gpustack/host/hosttest"
	"gpustack/integration/race"
)

// BenchmarkFleet times fleet show and fleet plan of 2,000 nodes with 4,292 GPUs, whose three
// documents each are JSON lines, beside cat, which only reads them.
func BenchmarkFleet(b *testing.B) {
	nodes, services := fleettest.Large(b)
	dir := b.TempDir()
	lines, zones := filepath.Join(dir, "nodes.jsonl"), filepath.Join(dir, "services.json")
	write(b, zones, string(services))
	// One by one: the size of a program includes that of the process that has started it.
	f, err := os.Create(lines)
	hosttest.NoError(b, err)
	for _, n := range nodes {
		if _, err := f.Write(fleettest.Lines(b, n)); err != nil {
			b.Fatal(err)
		}
	}
	hosttest.NoError(b, f.Close())
	cat := race.Peer{Name: "cat", Argv: []string{"cat", lines}}
	b.Run("show", func(b *testing.B) {
		race.Run(b, cat, race.Peer{Name: "gpustack", Argv: []string{gpustack, "fleet", "show", lines}})
	})
	b.Run("plan", func(b *testing.B) {
		show := race.Peer{Name: "show", Argv: []string{gpustack, "fleet", "show", lines}}
		race.Run(b, show, race.Peer{Name: "gpustack", Argv: []string{gpustack, "fleet", "plan", lines, "--keep", "80%", "--map", zones, "--max-age", "1000000h"}})
	})
}
