package term

import "strings"

// Help prints a help text: paragraphs, headings in capitals, and below them lines that are indented
// by two spaces. Lines with a tab have two columns, which are aligned with those of the lines
// around them. Where the page is too narrow for a paragraph or a list, its lines are arranged
// again, apart from those of examples, which are commands.
func (u *UI) Help(text string) {
	var rows [][]string // the lines with a tab, or of a list
	var block []string  // the other lines since the last empty line or heading
	example := false
	flush := func() {
		printColumns(u, rows)
		switch {
		case example:
			u.Raw(strings.Join(append(block, ""), "\n"))
		case u.Page.fits(block):
			u.Printf("%s", strings.Join(append(block, ""), "\n"))
		default:
			printArranged(u, block)
		}
		rows, block = nil, nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if left, right, ok := strings.Cut(line, "\t"); ok {
			if block != nil {
				flush()
			}
			rows = append(rows, []string{left, right})
			continue
		}
		if rows != nil {
			flush()
		}
		if heading := line == strings.ToUpper(line); heading && !strings.HasPrefix(line, " ") { // or an empty line
			flush()
			u.Printf("%s\n", line)
			if line != "" {
				example = line == "EXAMPLES"
			}
			continue
		}
		block = append(block, line)
	}
	flush()
}

// printColumns prints rows of two columns.
func printColumns(u *UI, rows [][]string) {
	for _, lines := range u.Page.arrange([]column{{}, {fit: wrapped}}, rows) {
		for _, line := range lines {
			u.Raw(line + "\n")
		}
	}
}

// fits reports whether lines are not wider than the page.
func (p Page) fits(lines []string) bool {
	for _, line := range lines {
		if p.Width > 0 && length(line) > p.Width {
			return false
		}
	}
	return true
}

// printArranged prints the lines of a paragraph or of a list, whose terms are separated from their
// texts by two spaces.
func printArranged(u *UI, lines []string) {
	var rows [][]string
	paragraph := ""
	flush := func() {
		if text := strings.TrimLeft(paragraph, " "); text != "" {
			before := paragraph[:len(paragraph)-len(text)]
			for _, line := range u.Page.Wrap(text, len(before)) {
				u.Raw(before + line + "\n")
			}
		}
		paragraph = ""
	}
	for _, line := range lines {
		text := strings.TrimLeft(line, " ")
		name, meaning, list := strings.Cut(text, "  ")
		switch {
		case list:
			flush()
			rows = append(rows, []string{line[:len(line)-len(text)] + name, strings.TrimLeft(meaning, " ")})
		case rows != nil:
			rows[len(rows)-1][1] += " " + text
		case paragraph == "":
			paragraph = line
		default:
			if strings.HasPrefix(line, " ") != strings.HasPrefix(paragraph, " ") {
				flush()
				paragraph = line
				continue
			}
			paragraph += " " + text
		}
	}
	flush()
	printColumns(u, rows)
}
