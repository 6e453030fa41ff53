package hosttest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// NoError ends the test at an error, which it prints.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal fails the test with the difference where got is not want, as go-cmp compares them.
func Equal(t testing.TB, want, got any, options ...cmp.Option) {
	t.Helper()
	EqualIn(t, "", want, got, options...)
}

// EqualIn is Equal for one of several things that a test compares: what names it.
func EqualIn(t testing.TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s(-want +got):\n%s", before(what, " "), diff)
	}
}

// Contains fails the test where text has no part.
func Contains(t testing.TB, part, text string) {
	t.Helper()
	ContainsIn(t, "", part, text)
}

// ContainsIn is Contains for one of several texts of a test: what names it.
func ContainsIn(t testing.TB, what, part, text string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%s%q is not in:\n%s", before(what, ": "), part, text)
	}
}

// before returns a name with what separates it from the text behind it, or "" for none.
func before(what, separator string) string {
	if what == "" {
		return ""
	}
	return what + separator
}
