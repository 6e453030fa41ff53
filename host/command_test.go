package host_test

import (
	"encoding/json"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestCommand: a command is printed as a shell reads it, and one that is made from another one
// leaves that as it is.
func TestCommand(t *testing.T) {
	plan := host.NewCommand("host prepare").Flag("dry-run")
	one, two := plan.Flag("device", "0000:84:00.0"), plan.Flag("device", "0000:88:00.0")
	for want, c := range map[string]host.Command{
		"":                                {},
		"gpustack host prepare --dry-run": plan,
		"gpustack host prepare --dry-run --device 0000:84:00.0": one,
		"gpustack host prepare --dry-run --device 0000:88:00.0": two,
		"gpustack host prepare --root '/mnt/my node' --dry-run": plan.At("root", "/mnt/my node"),
		"gpustack undo 3": host.NewCommand("undo").Arg("3"),
	} {
		if text, err := json.Marshal(c); c.String() != want || err != nil || string(text) != `"`+want+`"` {
			t.Errorf("got  %s (%s, %v)\nwant %s", c, text, err, want)
		}
	}
	if !one.HasFlag("device") || plan.HasFlag("device") || plan.IsZero() || !(host.Command{}).IsZero() {
		t.Error("flags are not those of the command")
	}
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"0000:84:00.0": "0000:84:00.0", "/etc/nova/nova.conf": "/etc/nova/nova.conf", "": "''", "my node": "'my node'", "it's": `'it'\''s'`, "$HOME": "'$HOME'",
	} {
		hosttest.EqualIn(t, word, want, host.ShellWord(word))
	}
}
