package host

import (
	"fmt"
	"strings"
)

// Shortened returns the first texts of a list, and the number of the others: "a, b and 3 more".
func Shortened(texts []string, most int) string {
	list := strings.Join(texts[:min(len(texts), most)], ", ")
	if n := len(texts) - most; n > 0 {
		list += fmt.Sprintf(" and %d more", n)
	}
	return list
}

// Numbered returns a number with its noun: "1 GPU", "2 NVSwitches", "3 libraries".
func Numbered(n int, noun string) string {
	stem, ies := strings.CutSuffix(noun, "ry")
	switch {
	case n == 1:
	case ies:
		noun = stem + "ries"
	case strings.HasSuffix(noun, "ch"), strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Listed joins words as in a sentence: "a, b and c".
func Listed(words []string, and string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " " + and + " " + words[last]
}
