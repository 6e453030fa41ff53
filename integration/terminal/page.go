package terminal

import (
	"regexp"
	"strings"
)

// Shows reports whether a document shows what a program has printed, line by line. A line "…" of
// the document stands for any lines that it leaves out.
func Shows(document, printed string) bool {
	var expression strings.Builder
	for line := range strings.Lines(document) {
		if line == "…\n" {
			expression.WriteString(`(?:.*\n)*`)
		} else {
			expression.WriteString(regexp.QuoteMeta(line))
		}
	}
	return regexp.MustCompile(`\A` + expression.String() + `\z`).MatchString(printed)
}
