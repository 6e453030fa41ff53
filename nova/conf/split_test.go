package conf

import (
	"slices"
	"testing"
)

// TestSplit: lines end where Python's universal newlines end them.
func TestSplit(t *testing.T) {
	for text, want := range map[string][]line{
		"":                 {},
		"a":                {{"a", ""}},
		"a\n":              {{"a", "\n"}},
		"\n\na":            {{"", "\n"}, {"", "\n"}, {"a", ""}},
		"a\r\nb\r\n":       {{"a", "\r\n"}, {"b", "\r\n"}},
		"a\rb\n":           {{"a", "\r"}, {"b", "\n"}},
		"a\r":              {{"a", "\r"}},
		"a\r\r\nb":         {{"a", "\r"}, {"", "\r\n"}, {"b", ""}},
		"\r\n\r\r":         {{"", "\r\n"}, {"", "\r"}, {"", "\r"}},
		"a\rb\rc\r\nd\re":  {{"a", "\r"}, {"b", "\r"}, {"c", "\r\n"}, {"d", "\r"}, {"e", ""}},
		"a\v\fb\x1c\u2028": {{"a\v\fb\x1c\u2028", ""}},
	} {
		if got := split(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
