package args

import "testing"

// TestAtRoot: each command about a machine gets --root, once, and nothing else does. TestAtRoot of
// package main has every command.
func TestAtRoot(t *testing.T) {
	const node = "/mnt/my node"
	for _, test := range []struct{ name, root, text, want string }{
		{"a command", node, "run 'gpustack host scan --all'", "run 'gpustack host scan --root '/mnt/my node' --all'"},
		{"a command a line", node, "gpustack undo 1\ngpustack history", "gpustack undo --root '/mnt/my node' 1\ngpustack history --root '/mnt/my node'"},
		{"this machine", "/", "gpustack undo 1", "gpustack undo 1"},
		{"no --root", "", "gpustack undo 1", "gpustack undo 1"},
		{"has --root", node, "to list all functions: gpustack host scan --root /mnt --all", "to list all functions: gpustack host scan --root /mnt --all"},
		{"a document", node, "on the compute node, run: gpustack host scan -o json > FILE", "on the compute node, run: gpustack host scan -o json > FILE"},
		{"help", node, "see gpustack host bind --help", "see gpustack host bind --help"},
		{"another word", node, "gpustack undone", "gpustack undone"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := AtRoot(test.text, test.root); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
