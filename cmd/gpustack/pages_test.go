package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// runPages are the pages of docs of which scripts run every command whose output the page shows.
var runPages = []string{"host.md", "nova.md", "explain.md", "rdma.md", "containers.md"}

// A shownCommand is a command of gpustack in a console block of a page.
type shownCommand struct {
	line   int // of the page
	words  []string
	output []string // what the page shows that it prints; nil for a command without its output
}

// readPage returns a page of docs.
func readPage(page string) (string, error) {
	text, err := os.ReadFile(filepath.Join(top, "docs", page))
	return string(text), err
}

var prompt = host.LazyRegexp(`^\S*[$#] (.*)$`)

// shownCommands returns the commands in the console blocks of a page in their order.
func shownCommands(text string) (shown []shownCommand) {
	console := false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			console = line == "```console"
		case !console:
		case prompt().MatchString(line):
			command, _, _ := strings.Cut(prompt().FindStringSubmatch(line)[1], " # ")
			shown = append(shown, shownCommand{line: i + 1, words: strings.Fields(command)})
		case len(shown) > 0:
			last := &shown[len(shown)-1]
			last.output = append(last.output, line)
		}
	}
	for i := range shown { // an empty line before the next command
		shown[i].output = trimEmpty(shown[i].output)
	}
	return shown
}

// trimEmpty returns lines without the empty ones at their end.
func trimEmpty(lines []string) []string {
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// runShown is the command "page FILE NUMBER STATUS [OLD=NEW...] [--FLAG VALUE...]": it runs the
// command with this number in the console blocks of docs/FILE, and compares its output with the
// page. OLD in the command and NEW in the output are replaced, for files that the script has
// elsewhere. The flags are added to the command, and removed from the output.
func runShown(ts *testscript.TestScript, _ bool, arguments []string) {
	if len(arguments) < 3 {
		ts.Fatalf("page FILE NUMBER STATUS [OLD=NEW...] [--FLAG VALUE...]")
	}
	text, err := readPage(arguments[0])
	ts.Check(err)
	number, err := strconv.Atoi(arguments[1])
	ts.Check(err)
	status, err := strconv.Atoi(arguments[2])
	ts.Check(err)
	commands := shownCommands(text)
	if number < 1 || number > len(commands) {
		ts.Fatalf("docs/%s shows %d commands", arguments[0], len(commands))
	}
	shown := commands[number-1]
	line, replaced, added := strings.Join(shown.words[1:], " "), []string{}, ""
	for i, a := range arguments[3:] {
		if strings.HasPrefix(a, "-") {
			added = " " + strings.Join(arguments[3+i:], " ")
			break
		}
		before, after, _ := strings.Cut(a, "=")
		if !strings.Contains(line, before) {
			ts.Fatalf("docs/%s:%d: %q is not in the command", arguments[0], shown.line, before)
		}
		line = strings.ReplaceAll(line, before, after)
		replaced = append(replaced, after, before)
	}
	o := runInScript(ts, strings.Fields(line+added))
	printed := o.stdout + o.stderr
	if added != "" {
		printed = strings.ReplaceAll(printed, added, "")
	}
	lines := trimEmpty(strings.Split(strings.NewReplacer(replaced...).Replace(printed), "\n"))
	if o.status != status || !printedAs(shown.output, lines) {
		ts.Fatalf("docs/%s:%d: %s: exit status %d. The page shows\n%s\nand the command prints\n%s", arguments[0], shown.line,
			strings.Join(shown.words, " "), o.status, strings.Join(shown.output, "\n"), strings.Join(lines, "\n"))
	}
}

// printedAs reports whether a page shows the printed lines: all of them without blanks at their
// ends, but that a line "…" stands for one or more lines.
func printedAs(shown, printed []string) bool {
	switch {
	case len(shown) == 0:
		return len(printed) == 0
	case shown[0] == "…":
		for i := range printed {
			if printedAs(shown[1:], printed[i+1:]) {
				return true
			}
		}
		return false
	}
	return len(printed) > 0 && shown[0] == strings.TrimRight(printed[0], " ") && printedAs(shown[1:], printed[1:])
}

// TestPagesAreRun: a script runs each command whose output a page shows; commands that are shown
// without an output exist and have the flags.
func TestPagesAreRun(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	hosttest.NoError(t, err)
	run := map[string]int{}
	for _, script := range scripts {
		text := hosttest.Read(t, script)
		for _, m := range regexp.MustCompile(`(?m)^page (\S+ \d+) `).FindAllStringSubmatch(text, -1) {
			run[m[1]]++
		}
	}
	app := newApp(testUI(t), []string{"gpustack"}).App
	for _, page := range runPages {
		text, err := readPage(page)
		hosttest.NoError(t, err)
		outputs := 0
		for i, c := range shownCommands(text) {
			if c.words[0] != "gpustack" {
				t.Errorf("docs/%s:%d: %q is no command of gpustack: no test can run it", page, c.line, c.words)
				continue
			}
			hosttest.EqualIn(t, fmt.Sprintf("docs/%s:%d: %q", page, c.line, c.words), "", wrongCommand(app, c.words[1:]))
			if len(c.output) == 0 {
				continue
			}
			outputs++
			if name := page + " " + strconv.Itoa(i+1); run[name] != 1 {
				t.Errorf("docs/%s:%d: scripts run %q as %q %d times", page, c.line, c.words, "page "+name, run[name])
			}
		}
		if outputs < 2 {
			t.Errorf("docs/%s shows the output of %d commands", page, outputs)
		}
	}
}
