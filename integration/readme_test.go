package integration

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the demo prints into the README")

// TestREADME: what the README's first screen says is so. Its console blocks are
// what make demo prints, and continuous integration runs its test command.
func TestREADME(t *testing.T) {
	readme := read(t, "../README.md")
	demo, talk, status := try(t, exec.Command("../examples/demo.sh", gpustack))
	if status != 0 || talk != "" {
		t.Fatalf("demo: exit status %d, %s", status, talk)
	}
	commands := strings.Split("\n"+demo, "\n$ ")[1:]
	before, blocks := readme, []string{}
	var written strings.Builder
	for {
		text, rest, found := strings.Cut(before, "```console\n")
		written.WriteString(text)
		if !found {
			break
		}
		block, after, _ := strings.Cut(rest, "```")
		blocks = append(blocks, block)
		n := min(strings.Count("\n"+block, "\n$ "), len(commands))
		written.WriteString("```console\n$ " + strings.TrimSpace(strings.Join(commands[:n], "\n$ ")) + "\n```")
		commands, before = commands[n:], after
	}
	if len(commands) > 0 {
		t.Errorf("the README does not show %q", commands)
	}
	if *update {
		if err := os.WriteFile("../README.md", []byte(written.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(written.String(), read(t, "../README.md")); diff != "" || len(blocks) < 2 {
		t.Errorf("%d blocks; (-demo +README):\n%s", len(blocks), diff)
	}
	screen, _, _ := strings.Cut(readme, "```console\n")
	for _, command := range []string{".ci/setup make demo", ".ci/setup make unit", ".ci/setup make test"} {
		if !strings.Contains(screen, command) {
			t.Errorf("the README's first screen has no %q", command)
		}
	}
	if ci := ".ci/setup make test"; !strings.Contains(read(t, "../.ci/run"), ci) {
		t.Errorf("../.ci/run has no %q", ci)
	}
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
