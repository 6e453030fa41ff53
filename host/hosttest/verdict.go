package hosttest

import (
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
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
