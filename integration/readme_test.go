package integration

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the commands print into docs/tour.md and docs/talk.md")

// page is the width of the terminal of the transcripts in documents.
const page = "COLUMNS=80"

// demo returns what make demo prints: its commands, each followed by its output. The explanations
// between them, lines that begin with "# ", are left out.
func demo(t *testing.T) (transcripts []string) {
	t.Helper()
	cmd := exec.Command("../examples/demo.sh", gpustack)
	cmd.Env = append(os.Environ(), page)
	printed, talk, status := try(t, cmd)
	if status != 0 || talk != "" {
		t.Fatalf("demo: exit status %d, %s\n%s", status, talk, printed)
	}
	printed = regexp.MustCompile(`(?m)^# .*\n`).ReplaceAllString(printed, "")
	for _, transcript := range strings.Split("\n"+printed, "\n$ ")[1:] {
		transcripts = append(transcripts, strings.TrimSpace(transcript))
	}
	return transcripts
}

// session runs the commands of a document's console blocks one after the other in one shell, as a
// user who copies them does: in a new folder, where examples is that of the checkout. It returns
// them with their outputs.
func session(t *testing.T, blocks []string) (transcripts []string) {
	t.Helper()
	dir, binary := t.TempDir(), filepath.Join(t.TempDir(), "bin")
	folder, err := filepath.Abs("../examples")
	if err == nil {
		err = errors.Join(os.Mkdir(binary, 0o755), os.Symlink(gpustack, filepath.Join(binary, "gpustack")), os.Symlink(folder, filepath.Join(dir, "examples")))
	}
	if err != nil {
		t.Fatal(err)
	}
	const end = "end of the output"
	script := "exec 2>&1\n"
	var commands []string
	for _, block := range blocks {
		for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, _, _ := strings.Cut(part, "\n")
			commands = append(commands, command)
			script += command + "\necho '" + end + "'\n"
		}
	}
	shell := exec.Command("sh", "-c", script)
	shell.Dir = dir
	shell.Env = append(os.Environ(), page, "PATH="+binary+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8")
	printed, _, status := try(t, shell)
	outputs := strings.Split(printed, end+"\n")
	if status != 0 || len(outputs) != len(commands)+1 {
		t.Fatalf("exit status %d:\n%s", status, printed)
	}
	for i, command := range commands {
		transcripts = append(transcripts, strings.TrimSpace(command+"\n"+outputs[i]))
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

// TestTour: the commands in the console blocks of docs/tour.md, run as one shell session, print
// what the page shows, and at the end the node is ready. make demo runs the same ones. With
// -update, as make transcripts runs it, the outputs are rewritten; the commands are those that the
// page names.
func TestTour(t *testing.T) {
	const file = "../docs/tour.md"
	commands := session(t, blocks(read(t, file)))
	if diff := cmp.Diff(commands, demo(t)); diff != "" {
		t.Errorf("(-docs/tour.md +demo):\n%s", diff)
	}
	if last := commands[len(commands)-1]; !strings.HasPrefix(last, "gpustack host check") || !strings.Contains(last, "\n\nready: ") {
		t.Errorf("the demo does not end with a ready node:\n%s", last)
	}
	if shown := transcribe(t, file, commands); shown < 5 {
		t.Errorf("%s has only %d console blocks", file, shown)
	}
}

// TestTalk: the commands in the console blocks of docs/talk.md, run as one shell session, print
// what the page shows; both nodes of the page are ready at the end. integration/nova and
// integration/db compare its other outputs. With -update, the outputs are rewritten.
func TestTalk(t *testing.T) {
	const file = "../docs/talk.md"
	commands := session(t, blocks(read(t, file)))
	transcribe(t, file, commands)
	ready := map[string]bool{}
	for _, command := range commands {
		line, output, _ := strings.Cut(command, "\n")
		if node, ok := strings.CutPrefix(line, "gpustack host check --root "); ok {
			ready[node] = strings.Contains(output, "\n\nready: ")
		}
	}
	if diff := cmp.Diff(map[string]bool{"node": true, "hand": true}, ready); diff != "" {
		t.Errorf("ready (-want +got):\n%s", diff)
	}
	if lines := strings.Count(read(t, file), "\n"); lines > 250 {
		t.Errorf("%s has %d lines, more than 250", file, lines)
	}
}

// transcribe compares the console blocks of a document with the outputs of a session that ran their
// commands, and returns how many there are. With -update it rewrites them first.
func transcribe(t *testing.T, file string, commands []string) int {
	t.Helper()
	rest := read(t, file)
	shown := blocks(rest)
	var written strings.Builder
	for _, block := range shown {
		before, after, _ := strings.Cut(rest, "```console\n"+block)
		written.WriteString(before + "```console\n")
		printed := false // by the command before
		for i, part := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, _, _ := strings.Cut(part, "\n")
			if len(commands) == 0 || strings.SplitN(commands[0], "\n", 2)[0] != command {
				t.Fatalf("%s shows %q, where the session ran %q", file, command, commands)
			}
			if i > 0 && printed {
				written.WriteString("\n")
			}
			written.WriteString("$ " + commands[0] + "\n")
			printed = strings.Contains(commands[0], "\n")
			commands = commands[1:]
		}
		rest = after
	}
	written.WriteString(rest)
	if len(commands) > 0 {
		t.Fatalf("%s does not show %q", file, commands)
	}
	if *update {
		if err := os.WriteFile(file, []byte(written.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(written.String(), read(t, file)); diff != "" {
		t.Errorf("(-session +%s):\n%s", file, diff)
	}
	return len(shown)
}

// TestREADME: the README is short, its first screen has what a newcomer needs, the commands of its
// console block, run as one shell session, print the lines that it shows, and continuous
// integration runs its test command.
func TestREADME(t *testing.T) {
	readme := read(t, "../README.md")
	lines := strings.Split(strings.TrimSpace(readme), "\n")
	if len(lines) > 150 {
		t.Errorf("%d lines, more than 150", len(lines))
	}
	screen := strings.Join(lines[:40], "\n")
	for _, command := range []string{".ci/setup make build", ".ci/setup make demo", ".ci/setup make unit", ".ci/setup make test", "no vGPU, no MIG",
		"kolla-ansible"} {
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
	transcripts, outputs := session(t, shown), 0
	for i, part := range strings.Split("\n"+strings.TrimSpace(shown[0]), "\n$ ")[1:] {
		lines := strings.Split(part, "\n")
		outputs += len(lines) - 1
		if !shows(lines, strings.Split(transcripts[i], "\n")) {
			t.Errorf("the session does not print\n%s\nbut\n%s", part, transcripts[i])
		}
	}
	if len(transcripts) != 7 || outputs > 25 {
		t.Errorf("%d commands with %d lines of output", len(transcripts), outputs)
	}
	_, commands, _ := strings.Cut(readme, "\n## Commands\n")
	commands, _, _ = strings.Cut(commands, "\n## ")
	for line := range strings.Lines(commands) {
		if strings.HasPrefix(line, "| ") && len(line) > 130 {
			t.Errorf("the table of commands has a long line: %s", line)
		}
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
