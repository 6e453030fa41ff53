package integration

import (
	"flag"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the demo prints into docs/tour.md")

// demo returns what make demo prints: its commands, each followed by its output. The explanations
// between them, lines that begin with "# ", are left out.
func demo(t *testing.T) (transcripts []string) {
	t.Helper()
	printed, talk, status := try(t, exec.Command("../examples/demo.sh", gpustack))
	if status != 0 || talk != "" {
		t.Fatalf("demo: exit status %d, %s\n%s", status, talk, printed)
	}
	printed = regexp.MustCompile(`(?m)^# .*\n`).ReplaceAllString(printed, "")
	for _, transcript := range strings.Split("\n"+printed, "\n$ ")[1:] {
		transcripts = append(transcripts, strings.TrimSpace(transcript))
	}
	return transcripts
}

// blocks returns the console blocks of a document.
func blocks(text string) (blocks []string) {
	for _, after := range strings.Split(text, "```console\n")[1:] {
		block, _, _ := strings.Cut(after, "```")
		blocks = append(blocks, block)
	}
	return blocks
}

// TestTour: the console blocks of docs/tour.md have the commands of make demo in their order, with
// what each prints, and at the end the node is ready. With -update, as make transcripts runs it,
// the outputs are rewritten; the commands are those that the page names.
func TestTour(t *testing.T) {
	const file = "../docs/tour.md"
	commands := demo(t)
	if last := commands[len(commands)-1]; !strings.HasPrefix(last, "gpustack host check") || !strings.Contains(last, "\n\nready: ") {
		t.Errorf("the demo does not end with a ready node:\n%s", last)
	}
	rest := read(t, file)
	shown := blocks(rest)
	var written strings.Builder
	for _, block := range shown {
		before, after, _ := strings.Cut(rest, "```console\n"+block)
		written.WriteString(before + "```console\n")
		for i, part := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, _, _ := strings.Cut(part, "\n")
			if len(commands) == 0 || strings.SplitN(commands[0], "\n", 2)[0] != command {
				t.Fatalf("docs/tour.md shows %q, where the demo runs %q", command, commands)
			}
			if i > 0 {
				written.WriteString("\n")
			}
			written.WriteString("$ " + commands[0] + "\n")
			commands = commands[1:]
		}
		rest = after
	}
	written.WriteString(rest)
	if len(commands) > 0 {
		t.Fatalf("docs/tour.md does not show %q", commands)
	}
	if *update {
		if err := os.WriteFile(file, []byte(written.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(written.String(), read(t, file)); diff != "" || len(shown) < 5 {
		t.Errorf("%d blocks (-demo +docs/tour.md):\n%s", len(shown), diff)
	}
}

// TestREADME: the README is short, its first screen has what a newcomer needs, its console block
// has commands and lines that make demo prints, and continuous integration runs its test command.
func TestREADME(t *testing.T) {
	readme := read(t, "../README.md")
	lines := strings.Split(strings.TrimSpace(readme), "\n")
	if len(lines) > 150 {
		t.Errorf("%d lines, more than 150", len(lines))
	}
	screen := strings.Join(lines[:40], "\n")
	for _, command := range []string{".ci/setup make build", ".ci/setup make demo", ".ci/setup make unit", ".ci/setup make test"} {
		if !strings.Contains(screen, command) {
			t.Errorf("the first 40 lines have no %q", command)
		}
	}
	if ci := ".ci/setup make test"; !strings.Contains(read(t, "../.ci/run"), ci) {
		t.Errorf("../.ci/run has no %q", ci)
	}
	shown := blocks(screen)
	if len(shown) != 1 {
		t.Fatalf("%d console blocks in the first 40 lines", len(shown))
	}
	commands, count, outputs := demo(t), 0, 0
	for _, part := range strings.Split("\n"+strings.TrimSpace(shown[0]), "\n$ ")[1:] {
		lines := strings.Split(part, "\n")
		count, outputs = count+1, outputs+len(lines)-1
		i := slices.IndexFunc(commands, func(transcript string) bool { return shows(lines, strings.Split(transcript, "\n")) })
		if i < 0 {
			t.Errorf("below the command above, the demo does not print\n%s\nbut\n%s", part, strings.Join(commands, "\n\n"))
			continue
		}
		commands = commands[i+1:]
	}
	if count != 5 || outputs > 15 {
		t.Errorf("%d commands with %d lines of output", count, outputs)
	}
}

// shows reports whether a command with a part of its output, in which a line "…" stands for lines
// left out, is that of a transcript.
func shows(part, transcript []string) bool {
	if part[0] != transcript[0] {
		return false
	}
	for _, line := range part[1:] {
		if line == "…" {
			continue
		}
		i := slices.Index(transcript, line)
		if i < 0 {
			return false
		}
		transcript = transcript[i+1:]
	}
	return true
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
