package term

import (
	"slices"
	"strings"

	"gpustack/host"
)

// Printable returns a text that a terminal prints as it is ([host.Printable]).
func Printable(s string) string { return host.Printable(s) }

// OneLine returns a text of several lines as one that can be printed.
func OneLine(s string) string {
	return Printable(strings.ReplaceAll(s, "\n", "; "))
}

// Sentence joins the parts of a summary that are not empty.
func Sentence(parts ...string) string { return Join("; ", parts...) }

// Join joins the parts that are not empty.
func Join(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), separator)
}

// Some returns a number with its noun and what is said of them, "" for 0.
func Some(n int, noun, said string) string {
	if n == 0 {
		return ""
	}
	return host.Numbered(n, noun) + said
}
