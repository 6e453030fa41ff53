package args

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"gpustack/host"
)

// Page is a page of the manual in roff's man macros (groff_man(7)), in section 8.
type Page struct {
	Name string // "gpustack-host-scan"
	Text string
}

// File returns the name of the page's file.
func (p Page) File() string { return p.Name + ".8" }

// ManualPages returns gpustack(8), and then the page of each command. They have the texts of help.
// date is the day that they show, YYYY-MM-DD or "".
func ManualPages(a *cli.App, date string) []Page {
	pages := []Page{{a.Name, manual(a, date)}}
	for path, c := range Visible(a.Commands) {
		pages = append(pages, Page{pageName(path), commandPage(a, date, path, c)})
	}
	return pages
}

// FindPage returns the page of a command, of which words are the name, or the name of its page, as
// man(1) has it; without words the first page.
func FindPage(pages []Page, words []string) (Page, error) {
	name := pages[0].Name
	if given := strings.Join(words, "-"); given != "" && given != name {
		name += "-" + strings.TrimPrefix(given, name+"-")
	}
	var names []string
	for _, p := range pages {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	hint := host.Text("the pages are " + host.Listed(names, "and"))
	for _, p := range pages {
		if len(words) > 0 && strings.HasSuffix(p.Name, "-"+words[len(words)-1]) {
			hint = Meant(host.NewCommand("man").Arg(strings.ReplaceAll(strings.TrimPrefix(p.Name, pages[0].Name+"-"), "-", " ")))
			break
		}
	}
	return Page{}, UsageError("no manual page of a command "+strconv.Quote(strings.Join(words, " ")), hint)
}

// WritePages writes pages into a folder, which it makes if necessary.
func WritePages(dir string, pages []Page) error {
	err := os.MkdirAll(dir, 0o755) //nolint:gosec // every user reads the manual
	for _, p := range pages {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, p.File()), []byte(p.Text), 0o644) //nolint:gosec // every user reads the manual
		}
	}
	var at *os.PathError
	if errors.As(err, &at) { // without the system call
		err = fmt.Errorf("%s: %w", at.Path, at.Err)
	}
	if err != nil {
		return host.WithHint(fmt.Errorf("write the manual: %w", err), "choose a folder that this user may write to, with --dir")
	}
	return nil
}

// pageName returns the name of the page of a command.
func pageName(path string) string {
	return "gpustack-" + strings.ReplaceAll(path, " ", "-")
}

// manual returns gpustack(8).
func manual(a *cli.App, date string) string {
	m := newPage(a, date, a.Name, a.Usage)
	m.macro("SH", "SYNOPSIS")
	m.line(`\fBgpustack\fR \fICOMMAND\fR [options]`)
	m.macro("SH", "DESCRIPTION")
	m.description(manualDescription)
	m.macro("SH", "COMMANDS")
	for _, g := range Groups(a.Commands) {
		m.macro("SS", g.Heading)
		for path, c := range Visible(g.Tree) {
			m.macro("TP")
			m.line(`\fB` + Escape(path) + `\fR`)
			m.fill(c.Usage + "; see " + pageName(path) + "(8)")
		}
	}
	m.macro("SH", "OPTIONS")
	m.flags(a.Flags)
	m.macro("SH", "PATHS")
	m.description(PathsText)
	for _, row := range PathTable(a) {
		m.term(row.Flags, string(row.Kind)+": "+host.Listed(row.Commands, "and"))
	}
	m.macro("SH", "FILES")
	m.terms(manualFiles)
	m.macro("SH", "ENVIRONMENT")
	m.terms(ManualEnvironment)
	m.macro("SH", "EXIT STATUS")
	m.terms(manualExit)
	m.paragraph()
	m.fill("The page of each command says what they mean for it.")
	var pages []string
	for path := range Visible(a.Commands) {
		pages = append(pages, pageName(path))
	}
	m.seeAlso(pages...)
	return m.String()
}

// commandPage returns the page of a command.
func commandPage(a *cli.App, date, path string, c *cli.Command) string {
	m := newPage(a, date, pageName(path), c.Usage)
	m.macro("SH", "SYNOPSIS")
	m.line(`\fBgpustack ` + Escape(path) + `\fR` + Escape(strings.TrimPrefix(synopsis(path, c), "gpustack "+path)))
	m.macro("SH", "DESCRIPTION")
	// The sections of a description, of which examples and exit status follow the options.
	before, after := c.Description, ""
	if i := strings.Index(before, "\n\nEXAMPLES\n"); i >= 0 {
		before, after = before[:i], before[i:]
	}
	m.description(before)
	m.macro("SH", "OPTIONS")
	m.flags(c.Flags)
	m.description(after)
	pages, group := []string{a.Name}, strings.Fields(path)[0]+" "
	words := " " + strings.Join(strings.Fields(CommandHelp(path, c)), " ")
	for other := range Visible(a.Commands) {
		name := other
		if !strings.ContainsAny(other, " -") { // such as "undo", which may be a verb
			name = "gpustack " + other
		}
		if other != path && (strings.HasPrefix(other, group) || strings.Contains(words, name)) {
			pages = append(pages, pageName(other))
		}
	}
	m.seeAlso(pages...)
	return m.String()
}

// roff is the text of a page.
type roff struct {
	strings.Builder
	empty bool // nothing follows the last heading yet
}

// newPage returns the beginning of a page.
func newPage(a *cli.App, date, name, usage string) *roff {
	m := &roff{}
	// The date is no text: mandoc(1) parses it.
	m.WriteString(`.TH "` + Escape(strings.ToUpper(name)) + `" "8" "` + date + `" "` + Escape("gpustack "+a.Version) + "\" \"gpustack manual\"\n")
	// Names of files and flags are not hyphenated, and long ones cannot be adjusted.
	m.WriteString(".ad l\n.nh\n")
	m.macro("SH", "NAME")
	m.fill(name + " - " + usage)
	return m
}

func (m *roff) macro(name string, arguments ...string) {
	m.WriteString("." + name)
	for _, argument := range arguments {
		m.WriteString(` "` + Escape(argument) + `"`)
	}
	m.WriteString("\n")
	m.empty = name == "SH" || name == "SS"
}

// line adds a line of text that is escaped already.
func (m *roff) line(text string) {
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	m.WriteString(text + "\n")
	m.empty = false
}

// fill adds text that roff arranges in lines. Its own lines are short, as roff's style demands.
func (m *roff) fill(text string) {
	const most = 72
	line := ""
	for word := range strings.FieldsSeq(text) {
		word = Escape(word)
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > most {
			m.line(line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		m.line(line)
	}
}

// paragraph begins a paragraph. A heading has begun one.
func (m *roff) paragraph() {
	if !m.empty {
		m.macro("PP")
	}
}

func (m *roff) term(name, text string) {
	m.macro("TP")
	m.line(`\fB` + Escape(name) + `\fR`)
	m.fill(text)
}

func (m *roff) terms(terms []Term) {
	for _, t := range terms {
		m.term(t.Name, t.Text)
	}
}

// flags adds the list of flags.
func (m *roff) flags(flags []cli.Flag) {
	for _, flag := range flags {
		m.term(DescribeFlag(flag))
	}
	m.term("-h, --help", "show help")
}

// seeAlso adds the references to other pages.
func (m *roff) seeAlso(pages ...string) {
	m.macro("SH", "SEE ALSO")
	slices.Sort(pages)
	for i, name := range pages {
		separator := ","
		if i == len(pages)-1 {
			separator = ""
		}
		m.WriteString(".BR " + Escape(name) + " (8)" + separator + "\n")
	}
}

// example adds lines as they are, which can be copied.
func (m *roff) example(lines []string) {
	m.paragraph()
	m.macro("nf")
	m.macro("RS", "4")
	for _, line := range lines {
		m.line(Escape(line))
	}
	m.macro("RE")
	m.macro("fi")
}

// list adds indented lines: a list whose terms are separated from their texts by two spaces, with
// further indented lines that continue a text, or a paragraph.
func (m *roff) list(lines []string) {
	name, text := "", ""
	flush := func() {
		switch {
		case name != "":
			m.term(name, text)
		case text != "":
			m.paragraph()
			m.fill(text)
		}
	}
	for _, line := range lines {
		before, after, found := strings.Cut(line, "  ")
		if !found || before == "" {
			text += " " + line
			continue
		}
		flush()
		name, text = before, after
	}
	flush()
}

// description formats a command's Description, whose structure help.go describes.
func (m *roff) description(text string) {
	var paragraph, indented []string
	add := m.list
	flush := func() {
		if len(paragraph) > 0 {
			m.paragraph()
			m.fill(strings.Join(paragraph, " "))
		}
		if len(indented) > 0 {
			add(indented)
		}
		paragraph, indented = nil, nil
	}
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "  "):
			indented = append(indented, line[2:])
		case line == "":
			flush()
		case line == strings.ToUpper(line):
			flush()
			m.macro("SH", line)
			add = m.list
			if line == "EXAMPLES" {
				add = m.example
			}
		default:
			if len(indented) > 0 {
				flush()
			}
			paragraph = append(paragraph, line)
		}
	}
	flush()
}

// Escape returns text in which no character has a meaning for roff, and which groff prints as the
// same ASCII characters, so that commands can be copied.
func Escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "…", "...").Replace(text)
}
