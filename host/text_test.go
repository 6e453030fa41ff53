package host_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestText: a text keeps its commands as data until it is printed, also as a part of another text,
// and in the hint of an error.
func TestText(t *testing.T) {
	undo := host.NewCommand("undo").Arg("3").Flag("root", "a b")
	scan := host.NewCommand("host scan").Flag("all").Elsewhere()
	inner := host.Textf("'%s' undoes %d", undo, 3)
	for want, text := range map[string]host.Text{
		"":                    nil,
		"end the use":         host.Plain("end the use"),
		"'<undo 3>' undoes 3": inner,
		"first: <undo 3>":     host.Textf("%s: %s", "NAME", host.NewCommand("undo").Arg("ENTRY")).Replace("NAME", "first").Replace("ENTRY", "3"),
		"first: '<undo 3>' undoes 3, or <host scan elsewhere>.": host.Textf("first: %s, or %s.", inner, scan),
	} {
		got := text.Render(func(c host.Command) string {
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
		hosttest.Equal(t, want, got)
	}
	const plain = "'gpustack undo 3 --root 'a b'' undoes 3"
	if text, err := json.Marshal(inner); inner.String() != plain || string(text) != `"`+plain+`"` {
		t.Errorf("%s, %s, %v", inner, text, err)
	}
	err := host.WithHint(errors.New("refused"), inner)
	var hinted interface{ Hint() string }
	if host.HintOf(err).String() != inner.String() || !errors.As(err, &hinted) || hinted.Hint() != plain || len(host.HintOf(errors.New("x"))) > 0 {
		t.Errorf("%s", host.HintOf(err))
	}
}

// TestForeignText: control characters of a foreign string, such as the name of a file, neither
// reach a terminal nor make a command of what stands between them. Line breaks and tabs stay.
func TestForeignText(t *testing.T) {
	const name = "/a\x1b[2J\x02host prepare\x1f\x1enone\x1f\x03\u202e\nb\tc"
	const shown = "/a?[2J?host prepare??none???\nb\tc"
	scan := host.NewCommand("host scan")
	for what, test := range map[string]struct {
		text host.Text
		want string
	}{
		"a string":                      {host.Textf("rm %s; %s", name, scan), "rm " + shown + "; gpustack host scan"},
		"an error":                      {host.Textf("%v; %s", errors.New(name), scan), shown + "; gpustack host scan"},
		"quoted":                        {host.Textf("%q", "a\x1bb"), `"a\x1bb"`},
		"a number":                      {host.Textf("%03d %s", 7, scan), "007 gpustack host scan"},
		"twice":                         {host.Textf("%s %% %s %s", scan, "x\x1b", scan), "gpustack host scan % x? gpustack host scan"},
		"a part of a text":              {host.Textf("%s.", host.Textf("rm %s", name)), "rm " + shown + "."},
		"an argument of a command":      {host.Textf("%s", scan.Arg("a\x1b\x02b")), "gpustack host scan 'a??b'"},
		"an argument that ends a part":  {host.Textf("%s.", scan.Arg("a\x03b\x1e\x1fc").Flag("all")), "gpustack host scan 'a?b??c' --all."},
		"a constant with an odd string": {host.Plain("rm " + "a\x1b[2J"), "rm a?[2J"},
	} {
		hosttest.EqualIn(t, what, test.want, test.text.String())
	}
}
