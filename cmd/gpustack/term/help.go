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
	isTitle := func(line string) bool { return line == strings.ToUpper(line) && !strings.HasPrefix(line, " ") } // or an empty line
	var lines []string
	example := false
	for next := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		trimmed, last := strings.TrimLeft(next, " "), len(lines)-1
		if isTitle(next) {
			example = example && next == "" || next == "EXAMPLES"
		}
		switch {
		case example, isTitle(next): // stays as it is
			lines = append(lines, joined(next))
		case last < 0, isTitle(lines[last]), (next == trimmed) != (lines[last][0] != ' '), next != trimmed && strings.Contains(trimmed, "  "):
			lines = append(lines, next)
		default:
			lines[last] += " " + trimmed
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, " ") {
			u.Printf("%s\n", line)
		} else {
			u.Raw(spaced(strings.Join(u.Page.Wrap(line, 0), "\n")) + "\n")
		}
	}
}
