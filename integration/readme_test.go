package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestREADME: what the README's first screen says is so. Its console blocks are
// what make demo prints, and continuous integration runs its test command.
func TestREADME(t *testing.T) {
	readme := read(t, "../README.md")
	demo, talk, status := try(t, exec.Command("../examples/demo.sh", gpustack))
	if status != 0 || talk != "" {
		t.Fatalf("demo: exit status %d, %s", status, talk)
	}
	var shown []string
	for _, block := range strings.Split(readme, "```console\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		shown = append(shown, strings.TrimSpace(text))
	}
	if got := strings.Join(shown, "\n\n"); got != strings.TrimSpace(demo) {
		t.Errorf("the README shows\n%s\nand the demo prints\n%s", got, demo)
	}
	const command = ".ci/setup make test"
	for _, file := range []string{"../README.md", "../.ci/run"} {
		if !strings.Contains(read(t, file), command) {
			t.Errorf("%s has no %q", file, command)
		}
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
