package terminal

import (
	"testing"

	"gpustack/host/hosttest"
)

func TestShows(t *testing.T) {
	for _, test := range []struct {
		document, printed string
		want              bool
	}{
		{"a\nb\n", "a\nb\n", true},
		{"a\n", "a\nb\n", false},
		{"b\n", "a\nb\n", false},
		{"a\n…\n", "a\nb\nc\n", true},
		{"a\n…\n", "a\n", true},
		{"…\nb\n…\n", "a\nb\nc\n", true},
		{"…\n…\nc\n", "a\nb\nc\n", true},
		{"…\nb\n", "a\nbc\n", false},
		{"a…\n", "a…\n", true},
		{"a…\n", "ab\n", false},
		{"a.*\n", "abc\n", false},
	} {
		hosttest.EqualIn(t, test.document+" of "+test.printed, test.want, Shows(test.document, test.printed))
	}
}
