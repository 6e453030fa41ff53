package host_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"gpustack/host"
)

// TestText: a text keeps its commands as data until it is printed, also as a part of another text,
// and in the hint of an error.
func TestText(t *testing.T) {
	undo := host.NewCommand("undo").Arg("3").Flag("root", "a b")
	scan := host.NewCommand("host scan").Flag("all").Elsewhere()
	inner := host.Textf("'%s' undoes %d", undo, 3)
	for want, text := range map[string]host.Text{
		"":                    "",
		"end the use":         "end the use",
		"'<undo 3>' undoes 3": inner,
		"first: '<undo 3>' undoes 3, or <host scan elsewhere>.": host.Textf("first: %s, or %s.", inner, scan),
	} {
		got := text.Render(func(plain string) string { return plain }, func(c host.Command) string {
			words := []string{c.Name()}
			for _, w := range c.Argv()[1:] {
				if w == "3" {
					words = append(words, w)
				}
			}
			if c.IsElsewhere() {
				words = append(words, "elsewhere")
			}
			return "<" + strings.Join(words, " ") + ">"
		})
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	const plain = "'gpustack undo 3 --root 'a b'' undoes 3"
	if text, err := json.Marshal(inner); inner.String() != plain || string(text) != `"`+plain+`"` {
		t.Errorf("%s, %s, %v", inner, text, err)
	}
	err := host.WithHint(errors.New("refused"), inner)
	var hinted interface{ Hint() string }
	if host.HintOf(err) != inner || !errors.As(err, &hinted) || hinted.Hint() != plain || host.HintOf(errors.New("x")) != "" {
		t.Errorf("%s", host.HintOf(err))
	}
}
