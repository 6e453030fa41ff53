package main

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/rogpeppe/go-internal/testscript"

	"gpustack/cmd/gpustack/args"
	"gpustack/host"
)

// runPages are the pages of docs of which scripts run every command whose output the page shows.
var runPages = []string{"explain.md", "rdma.md", "containers.md"}

// shortPages are the pages of docs for operators who have a problem now: their sentences are short.
var shortPages = []string{"repair.md", "explain.md", "rdma.md", "containers.md"}

// A shownCommand is a command of gpustack in a console block of a page.
type shownCommand struct {
	line   int // of the page
	words  []string
	output []string // what the page shows that it prints; nil for a command without its output
}

// readPage returns a page of docs.
func readPage(page string) (string, error) {
	text, err := os.ReadFile(filepath.Join(repository, "docs", page))
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
	var exit *exec.ExitError
	got := 0
	if err := ts.Exec("gpustack", strings.Fields(line+added)...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	printed := ts.ReadFile("stdout") + ts.ReadFile("stderr")
	if added != "" {
		printed = strings.ReplaceAll(printed, added, "")
	}
	lines := trimEmpty(strings.Split(strings.NewReplacer(replaced...).Replace(printed), "\n"))
	if got != status || !printedAs(shown.output, lines) {
		ts.Fatalf("docs/%s:%d: %s: exit status %d. The page shows\n%s\nand the command prints\n%s", arguments[0], shown.line,
			strings.Join(shown.words, " "), got, strings.Join(shown.output, "\n"), strings.Join(lines, "\n"))
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
	if err != nil {
		t.Fatal(err)
	}
	run := map[string]int{}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^page (\S+ \d+) `).FindAllStringSubmatch(string(text), -1) {
			run[m[1]]++
		}
	}
	visible := maps.Collect(args.Visible(newApp(testUI(t), []string{"gpustack"}).Commands))
	for _, page := range runPages {
		text, err := readPage(page)
		if err != nil {
			t.Fatal(err)
		}
		outputs := 0
		for i, c := range shownCommands(text) {
			if c.words[0] != "gpustack" {
				t.Errorf("docs/%s:%d: %q is no command of gpustack: no test can run it", page, c.line, c.words)
				continue
			}
			if wrong := wrongCommand(visible, c.words[1:]); wrong != "" {
				t.Errorf("docs/%s:%d: %q: %s", page, c.line, c.words, wrong)
			}
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

// maxWords is the maximum number of words of a sentence.
const maxWords = 30

// TestSentences: no sentence of shortPages has more than maxWords words.
func TestSentences(t *testing.T) {
	for _, page := range shortPages {
		text, err := readPage(page)
		if err != nil {
			t.Fatal(err)
		}
		sentences := sentencesOf(text)
		if len(sentences) < 50 {
			t.Errorf("docs/%s has %d sentences", page, len(sentences))
		}
		for _, s := range sentences {
			if s.words > maxWords {
				t.Errorf("docs/%s:%d: a sentence of %d words, more than %d: %s", page, s.line, s.words, maxWords, s.text)
			}
		}
	}
}

// TestSentenceCount: what counts as a sentence and as a word.
func TestSentenceCount(t *testing.T) {
	const text = "# A heading\n\nOne `code. With 4 words` two\nthree. Four (five: six)? `a`, `b` and `c` are 3.1 × words.\n\n" +
		"- an item\n  of two lines\n1. another.item\n\n| a cell | two. Cells `|` |\n|---|---|\n\n```console\n$ not counted\n```\n[a link](x.md#a-b): end\n"
	var got []string
	for _, s := range sentencesOf(text) {
		got = append(got, strconv.Itoa(s.line)+" "+strconv.Itoa(s.words)+" "+s.text)
	}
	want := []string{"1 2 A heading", "3 4 One `code. With 4 words` two three.", "4 3 Four (five: six)?", "4 4 `a`, `b` and `c` are 3.1 × words.",
		"6 5 an item of two lines", "8 1 another.item", "10 2 a cell", "10 1 two.", "10 2 Cells `|`", "16 3 [a link](x.md#a-b): end"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A sentence is one of a page: with its text on one line, and the number of its words.
type sentence struct {
	line, words int
	text        string
}

var (
	fence       = host.LazyRegexp("(?ms)^```.*?^```$")
	codes       = host.LazyRegexp("(?s)``.+?``|`[^`]+`")
	ruler       = host.LazyRegexp(`(?m)^\|[-|: ]+\|$`)
	lineMark    = host.LazyRegexp(`^(#+|[-*]|\d+\.) `)
	sentenceEnd = host.LazyRegexp(`[.?!][)"*]*(\s|$)`)
	notNewline  = host.LazyRegexp(`[^\n]`)
	literal     = host.LazyRegexp("\x01+(?:(?:,| and| or|, and|, or|;)\\s+\x01+)+")
)

// sentencesOf returns the sentences of a page in Markdown: of its headings, paragraphs, list items
// and cells of tables. Blocks of code have none. A span of code is one word, and so is a list of
// them. Only blanks end a sentence behind its full stop.
func sentencesOf(page string) (sentences []sentence) {
	hide := func(with string) func(string) string { // what is hidden keeps its lines and its length
		return func(s string) string {
			return notNewline().ReplaceAllStringFunc(s, func(char string) string { return strings.Repeat(with, len(char)) })
		}
	}
	text := fence().ReplaceAllStringFunc(page, hide(" "))
	text = ruler().ReplaceAllStringFunc(text, hide(" "))
	text = codes().ReplaceAllStringFunc(text, hide("\x01"))
	cut := func(from, to int) {
		for from < to {
			end := to
			if at := sentenceEnd().FindStringIndex(text[from:to]); at != nil {
				end = from + at[1]
			}
			skipped := len(text[from:end]) - len(strings.TrimLeftFunc(text[from:end], unicode.IsSpace))
			counted := literal().ReplaceAllString(text[from:end], "\x01")
			words := 0
			for _, word := range strings.Fields(counted) {
				if strings.ContainsFunc(word, func(r rune) bool { return r == '\x01' || unicode.IsLetter(r) || unicode.IsDigit(r) }) {
					words++
				}
			}
			if words > 0 {
				sentences = append(sentences, sentence{1 + strings.Count(text[:from+skipped], "\n"), words, strings.Join(strings.Fields(page[from:end]), " ")})
			}
			from = end
		}
	}
	start, at := 0, 0 // of the paragraph, and of the line
	for line := range strings.SplitAfterSeq(text, "\n") {
		bare := strings.TrimLeft(line, " ")
		mark := len(line) - len(bare) + len(lineMark().FindString(bare))
		switch {
		case strings.HasPrefix(bare, "|"):
			cut(start, at)
			cells := at
			for i, c := range line {
				if c == '|' {
					cut(cells, at+i)
					cells = at + i + 1
				}
			}
			start = at + len(line)
		case strings.TrimSpace(line) == "", lineMark().MatchString(bare):
			cut(start, at)
			start = at + mark
		}
		at += len(line)
		if strings.HasPrefix(bare, "#") {
			cut(start, at)
			start = at
		}
	}
	cut(start, at)
	return sentences
}

var (
	pageLink   = host.LazyRegexp(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	namedPage  = host.LazyRegexp(`\bdocs/([a-z-]+\.md)(?:#([\w-]+))?`)
	heading    = host.LazyRegexp(`(?m)^#+ (.*)$`)
	notInSlugs = host.LazyRegexp(`[^\pL\pN _-]`)
)

// TestLinks: each page and each heading exists to which a page links, or which a Go file names.
func TestLinks(t *testing.T) {
	headings := map[string][]string{}
	pages := sources(t, ".md")
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(repository, page))
		if err != nil {
			t.Fatal(err)
		}
		headings[page] = slugs(string(text))
	}
	links := 0
	check := func(file string, line int, page, slug string) {
		links++
		known, isPage := headings[page]
		if !isPage {
			if _, err := os.Stat(filepath.Join(repository, page)); err != nil {
				t.Errorf("%s:%d: %s does not exist", file, line, page)
			}
		}
		if slug != "" && !slices.Contains(known, slug) {
			t.Errorf("%s:%d: %s has no heading #%s", file, line, page, slug)
		}
	}
	for _, file := range slices.Concat(pages, sources(t, ".go")) {
		text, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, m := range namedPage().FindAllStringSubmatch(line, -1) {
				if !strings.HasSuffix(file, "_test.go") {
					check(file, i+1, "docs/"+m[1], m[2])
				}
			}
			if !strings.HasSuffix(file, ".md") {
				continue
			}
			for _, m := range pageLink().FindAllStringSubmatch(line, -1) {
				page := file
				if m[1] != "" {
					page = path.Join(path.Dir(file), m[1])
				}
				check(file, i+1, page, m[2])
			}
		}
	}
	if links < 30 {
		t.Errorf("%d links", links)
	}
}

// slugs returns the names by which links reach the headings of a page.
func slugs(page string) (all []string) {
	for _, m := range heading().FindAllStringSubmatch(fence().ReplaceAllString(page, ""), -1) {
		slug := strings.ReplaceAll(notInSlugs().ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		name := slug
		for n := 1; slices.Contains(all, name); n++ {
			name = slug + "-" + strconv.Itoa(n)
		}
		all = append(all, name)
	}
	return all
}
