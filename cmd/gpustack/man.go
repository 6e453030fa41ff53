package main

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/term"
)

// date is the day of the commit, YYYY-MM-DD, that make build links in for the manual.
var date string

// page is a page of the manual in roff's man macros (groff_man(7)), in section 8.
type page struct {
	name string // "gpustack-host-scan"
	text string
}

// file returns the name of the page's file.
func (p page) file() string { return p.name + ".8" }

// manualPages returns gpustack(8), and then the page of each command. They have the texts of help.
func manualPages(a *cli.App) []page {
	pages := []page{{a.Name, manual(a)}}
	for path, c := range visibleCommands(a.Commands) {
		pages = append(pages, page{pageName(path), commandPage(a, path, c)})
	}
	return pages
}

// pageName returns the name of the page of a command.
func pageName(path string) string {
	return "gpustack-" + strings.ReplaceAll(path, " ", "-")
}

// manual returns gpustack(8).
func manual(a *cli.App) string {
	m := newPage(a, a.Name, a.Usage)
	m.macro("SH", "SYNOPSIS")
	m.line(`\fBgpustack\fR \fICOMMAND\fR [options]`)
	m.macro("SH", "DESCRIPTION")
	m.description(manualDescription)
	m.macro("SH", "COMMANDS")
	for _, g := range commandGroups(a.Commands) {
		m.macro("SS", g.heading)
		for path, c := range visibleCommands(g.tree) {
			m.macro("TP")
			m.line(`\fB` + escape(path) + `\fR`)
			m.fill(c.Usage + "; see " + pageName(path) + "(8)")
		}
	}
	m.macro("SH", "OPTIONS")
	m.flags(a.Flags)
	m.macro("SH", "PATHS")
	m.description(pathsText)
	for _, row := range pathTable(a) {
		m.term(row.flags, string(row.kind)+": "+term.Listed(row.commands, "and"))
	}
	m.macro("SH", "FILES")
	m.terms(manualFiles)
	m.macro("SH", "ENVIRONMENT")
	m.terms(manualEnvironment)
	m.macro("SH", "EXIT STATUS")
	m.terms(manualExit)
	m.paragraph()
	m.fill("The page of each command says what they mean for it.")
	var pages []string
	for path := range visibleCommands(a.Commands) {
		pages = append(pages, pageName(path))
	}
	m.seeAlso(pages...)
	return m.String()
}

// commandPage returns the page of a command.
func commandPage(a *cli.App, path string, c *cli.Command) string {
	m := newPage(a, pageName(path), c.Usage)
	m.macro("SH", "SYNOPSIS")
	m.line(`\fBgpustack ` + escape(path) + `\fR` + escape(strings.TrimPrefix(synopsis(path, c), "gpustack "+path)))
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
	words := " " + strings.Join(strings.Fields(commandHelp(path, c)), " ")
	for other := range visibleCommands(a.Commands) {
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
func newPage(a *cli.App, name, usage string) *roff {
	m := &roff{}
	// The date is no text: mandoc(1) parses it.
	m.WriteString(`.TH "` + escape(strings.ToUpper(name)) + `" "8" "` + date + `" "` + escape("gpustack "+a.Version) + "\" \"gpustack manual\"\n")
	// Names of files and flags are not hyphenated, and long ones cannot be adjusted.
	m.WriteString(".ad l\n.nh\n")
	m.macro("SH", "NAME")
	m.fill(name + " - " + usage)
	return m
}

func (m *roff) macro(name string, arguments ...string) {
	m.WriteString("." + name)
	for _, argument := range arguments {
		m.WriteString(` "` + escape(argument) + `"`)
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
		word = escape(word)
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
	m.line(`\fB` + escape(name) + `\fR`)
	m.fill(text)
}

func (m *roff) terms(terms []manualTerm) {
	for _, t := range terms {
		m.term(t.name, t.text)
	}
}

// flags adds the list of flags.
func (m *roff) flags(flags []cli.Flag) {
	for _, flag := range flags {
		m.term(describeFlag(flag))
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
		m.WriteString(".BR " + escape(name) + " (8)" + separator + "\n")
	}
}

// example adds lines as they are, which can be copied.
func (m *roff) example(lines []string) {
	m.paragraph()
	m.macro("nf")
	m.macro("RS", "4")
	for _, line := range lines {
		m.line(escape(line))
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

// escape returns text in which no character has a meaning for roff, and which groff prints as the
// same ASCII characters, so that commands can be copied.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "…", "...").Replace(text)
}
