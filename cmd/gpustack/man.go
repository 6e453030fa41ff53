package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// manPage returns gpustack(8) in roff's man macros (groff_man(7)).
func manPage(a *cli.App) string {
	var m roff
	m.macro("TH", "GPUSTACK", "8", "", "gpustack "+a.Version, "")
	m.macro("SH", "NAME")
	m.text(`gpustack \- ` + escape(a.Usage))
	m.macro("SH", "SYNOPSIS")
	m.macro("B", "gpustack")
	m.text("COMMAND [options]")
	for path, c := range commands(a.Commands) {
		if c.Hidden || len(c.Subcommands) > 0 {
			continue
		}
		m.macro("SH", "gpustack "+path)
		m.text(escape(c.Usage) + ".")
		m.example(synopsis(path, c))
		m.description(c.Description)
		if len(c.Flags) > 0 {
			m.macro("SS", "Options")
		}
		for _, flag := range c.Flags {
			spelling, usage := describeFlag(flag)
			m.macro("TP")
			m.text(`\fB` + escape(spelling) + `\fR`)
			m.text(escape(usage))
		}
	}
	m.macro("SH", "PATHS")
	for line := range strings.Lines(pathsText) {
		if line = strings.TrimSpace(line); line == "" {
			m.macro("PP")
		} else {
			m.text(escape(line))
		}
	}
	for _, row := range pathTable(a) {
		m.macro("TP")
		m.text(`\fB` + escape(row.flags) + `\fR`)
		m.text(escape(string(row.kind) + ": " + listed(row.commands, "and")))
	}
	return m.String()
}

type roff struct {
	strings.Builder
}

func (m *roff) macro(name string, arguments ...string) {
	m.WriteString("." + name)
	for _, argument := range arguments {
		m.WriteString(` "` + escape(argument) + `"`)
	}
	m.WriteString("\n")
}

func (m *roff) text(text string) {
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	m.WriteString(text + "\n")
}

func (m *roff) example(lines ...string) {
	m.macro("PP")
	m.macro("nf")
	m.macro("RS", "4")
	for _, line := range lines {
		m.text(escape(line))
	}
	m.macro("RE")
	m.macro("fi")
}

// description formats a command's Description, whose structure help.go describes.
func (m *roff) description(text string) {
	var example []string
	flush := func() {
		if len(example) > 0 {
			m.example(example...)
			example = nil
		}
	}
	m.macro("PP")
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "  "):
			example = append(example, line[2:])
		case line == "":
			flush()
			m.macro("PP")
		case line == strings.ToUpper(line):
			flush()
			m.macro("SS", line[:1]+strings.ToLower(line[1:]))
		default:
			flush()
			m.text(escape(line))
		}
	}
	flush()
}

func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(text)
}
