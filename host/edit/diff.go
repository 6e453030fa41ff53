package edit

import (
	"strconv"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"

	"gpustack/host"
)

// hunk matches the line with which a hunk begins. Other lines of a hunk begin with another
// character (POSIX, diff, "Diff -u Output Format").
var hunk = host.LazyRegexp(`(?m)^@@ -(\d+)(?:,\d+)? \+\S+ @@$`)

// section matches a line that begins a section of an INI file.
var section = host.LazyRegexp(`^(\[[^\]]+\])\s*$`)

// brief returns a unified diff of two texts with one line of context around each change. Behind the
// header of a hunk stands the section of an INI file in which it is, unless the hunk itself has it.
func brief(from, to, before, after string) string {
	text, err := udiff.ToUnified(from, to, before, udiff.Lines(before, after), 1)
	if err != nil { // the edits are not those of the text
		return udiff.Unified(from, to, before, after)
	}
	lines := strings.Split(before, "\n")
	return hunk().ReplaceAllStringFunc(text, func(header string) string {
		at, err := strconv.Atoi(hunk().FindStringSubmatch(header)[1])
		for i := min(at, len(lines)) - 1; err == nil && i >= 0; i-- {
			if found := section().FindStringSubmatch(lines[i]); found != nil && i < at-1 {
				return header + " " + found[1]
			} else if found != nil {
				break
			}
		}
		return header
	})
}
