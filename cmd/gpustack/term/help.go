package term

import "strings"

// Help prints a help text: paragraphs, headings in capitals, and below them lines that are indented
// by two spaces. Where the page has a width, the lines of a paragraph or of a list are arranged
// again, apart from those of examples, which are commands.
func (u *UI) Help(text string) {
	if u.Page.Width <= 0 {
		u.Raw(text)
		return
	}
	var line string // the paragraph or the item of a list so far
	flush := func() {
		switch {
		case strings.HasPrefix(line, " "):
			u.Printf("%s\n", line)
		case line != "":
			u.Raw(strings.Join(u.Page.Wrap(line, 0), "\n") + "\n")
		}
		line = ""
	}
	example := false
	for next := range strings.Lines(text) {
		next = strings.TrimRight(next, "\n")
		trimmed := strings.TrimLeft(next, " ")
		heading := next == strings.ToUpper(next) && next == trimmed // or an empty line
		if heading && next != "" {
			example = next == "EXAMPLES"
		}
		switch {
		case heading, example:
			flush()
			u.Raw(next + "\n")
		case line == "", strings.HasPrefix(next, "  ") && (strings.Contains(trimmed, "  ") || !strings.HasPrefix(line, " ")), next == trimmed && strings.HasPrefix(line, " "):
			flush()
			line = next
		default:
			line += " " + trimmed
		}
	}
	flush()
}
