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

	"gpustack/host/hosttest"
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
	hosttest.NoError(t, err)
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
	commands := session(t, blocks(hosttest.Read(t, file)))
	hosttest.EqualIn(t, "(-docs/tour.md +demo)", commands, demo(t))
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
	commands := session(t, blocks(hosttest.Read(t, file)))
	transcribe(t, file, commands)
	ready := map[string]bool{}
	for _, command := range commands {
		line, output, _ := strings.Cut(command, "\n")
		if node, ok := strings.CutPrefix(line, "gpustack host check --root "); ok {
			ready[node] = strings.Contains(output, "\n\nready: ")
		}
	}
	hosttest.EqualIn(t, "ready", map[string]bool{"node": true, "hand": true}, ready)
	if lines := strings.Count(hosttest.Read(t, file), "\n"); lines > 250 {
		t.Errorf("%s has %d lines, more than 250", file, lines)
	}
}

// transcribe compares the console blocks of a document with the outputs of a session that ran their
// commands, and returns how many there are. With -update it rewrites them first.
func transcribe(t *testing.T, file string, commands []string) int {
	t.Helper()
	rest := hosttest.Read(t, file)
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
		hosttest.NoError(t, os.WriteFile(file, []byte(written.String()), 0o644))
	}
	hosttest.EqualIn(t, "the session and "+file, written.String(), hosttest.Read(t, file))
	return len(shown)
}

// TestREADME: the README is short, and its first 30 lines sell and start. The steps there print what
// it shows, those on a node in their order; the unit tests of the binary have that of flavor test.
// The block to paste prints what its comments say, also if it is pasted again, and makes nothing that
// git does not ignore. Continuous integration runs the test command.
func TestREADME(t *testing.T) {
	readme := hosttest.Read(t, "../README.md")
	lines := strings.Split(strings.TrimSpace(readme), "\n")
	if len(lines) > 110 {
		t.Errorf("%d lines, more than 110", len(lines))
	}
	screen := strings.Join(lines[:30], "\n")
	for _, part := range []string{"gpustack host prepare", "gpustack nova configure", "gpustack flavor create K4200:2", "gpustack flavor test", "gpustack repair-migration",
		"gpustack undo", "**For**", "**Not for**", "no vGPU, no MIG", "kolla-ansible, kayobe", "RHOSO", "Plain packages", ".ci/setup make demo", ".ci/setup make build"} {
		hosttest.ContainsIn(t, "the first 30 lines", part, screen)
	}
	if ci := ".ci/setup make test"; !strings.Contains(readme, ci) || !strings.Contains(hosttest.Read(t, "../.ci/run"), ci) {
		t.Errorf("README.md or ../.ci/run has no %q", ci)
	}
	theWay(t, between(t, screen, "```text\n", "```"))
	toPaste(t, between(t, readme, "```sh\n", "```"))
}

// theWay compares the outputs of the README's first block. The steps of the node gpu1 run on a tree.
func theWay(t *testing.T, block string) {
	t.Helper()
	pages := map[string]string{"gpustack flavor create": "talk.md", "gpustack repair-migration": "repair.md"}
	script := []string{"$ gpustack host unpack examples/talk-iommu-off.txtar node\n"}
	var shown [][]string // of the node
	for _, part := range strings.Split("\n"+block, "\ngpu1# ") {
		onNode, others, _ := strings.Cut(part, "\nctl1# ")
		if command, output := step(onNode); command != "" {
			typed := "COLUMNS=200 " + command + " --root node"
			if !strings.HasSuffix(command, " scan") && !strings.HasSuffix(command, " check") {
				typed += " --yes"
			}
			shown = append(shown, output)
			script = append(script, "$ "+typed+"\n")
			if strings.HasSuffix(command, " prepare") {
				script = append(script, "$ examples/boot.sh node\n")
			}
		}
		for _, other := range strings.Split(others, "\nctl1# ") {
			command, output := step(other)
			for begin, page := range pages {
				if strings.HasPrefix(command, begin) && !strings.Contains(hosttest.Read(t, "../docs/"+page), "\n"+strings.Join(output, "\n")+"\n") {
					t.Errorf("docs/%s does not show of %s\n%s", page, command, strings.Join(output, "\n"))
				}
			}
		}
	}
	i := 0
	for _, transcript := range session(t, script) {
		if !strings.HasPrefix(transcript, "COLUMNS=200 ") {
			continue
		}
		printed := strings.Split(strings.ReplaceAll(transcript, " --root node", ""), "\n")
		for _, line := range shown[i] {
			begin, cut := strings.CutSuffix(line, " …")
			if !slices.ContainsFunc(printed, func(p string) bool { return p == line || cut && strings.HasPrefix(p, begin) }) {
				t.Errorf("%q is not printed:\n%s", line, transcript)
			}
		}
		i++
	}
	if len(shown) != 5 || i != len(shown) {
		t.Errorf("%d of %d steps of the node were compared", i, len(shown))
	}
}

// step splits a step of the README into its command, without a comment, and its output.
func step(text string) (command string, output []string) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	command, _, _ = strings.Cut(lines[0], "  #")
	return strings.TrimSpace(command), lines[1:]
}

// toPaste runs a block of commands twice, and looks for what its comments say.
func toPaste(t *testing.T, block string) {
	t.Helper()
	var commands, comments []string
	for _, line := range strings.Split(strings.TrimSpace(block+block), "\n") {
		command, comment, _ := strings.Cut(line, " # ")
		commands, comments = append(commands, "$ "+strings.TrimSpace(command)+"\n"), append(comments, comment)
		if _, made, ok := strings.Cut(command, "unpack "); ok && !strings.Contains(made, " build/") || !strings.Contains(command, "build/node") {
			t.Errorf("%q makes a folder that git does not ignore", command)
		}
	}
	if !strings.Contains("\n"+hosttest.Read(t, "../.gitignore"), "\n/build/\n") {
		t.Error("git does not ignore build")
	}
	for i, transcript := range session(t, commands) {
		if !strings.Contains(transcript, comments[i]) || strings.Contains(transcript, "gpustack: error: ") {
			t.Errorf("it does not print %q:\n%s", comments[i], transcript)
		}
	}
}

// between returns the part of a text that stands between two others.
func between(t *testing.T, text, before, after string) string {
	t.Helper()
	_, part, found := strings.Cut(text, before)
	part, _, ends := strings.Cut(part, after)
	if !found || !ends {
		t.Fatalf("there is no text between %q and %q", before, after)
	}
	return part
}
