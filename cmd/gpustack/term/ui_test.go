package term

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

type testReport struct {
	Schema int      `json:"schema"`
	Texts  []string `json:"texts"`
	Empty  []string `json:"empty"`
	Object struct {
		Null *int `json:"null"`
		Yes  bool `json:"yes"`
	} `json:"object"`
}

// awkward are texts that a YAML parser could take for something else.
func awkward() testReport {
	return testReport{Schema: 1, Empty: []string{}, Texts: []string{
		"0000:24:00.0", "0300", "1e04", "10de", "0x10", "yes", "n", "null", "~", "", "- a", "a: b", "#", "é\x01", "R&D <x>",
		"12:30:45", "1_000", "!tag", "2026-11-21",
	}}
}

func TestJSON(t *testing.T) {
	plain, err := (&Document{Format: FormatJSON}).encode(awkward(), nil)
	hosttest.NoError(t, err)
	terminal, err := (&Document{Format: FormatJSON, indent: true}).encode(awkward(), nil)
	hosttest.NoError(t, err)
	for name, text := range map[string]string{"plain": string(plain), "on a terminal": string(terminal)} {
		var back testReport
		if err := json.Unmarshal([]byte(text), &back); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		hosttest.EqualIn(t, name, awkward(), back)
		hosttest.ContainsIn(t, name+": escaped for HTML", `"R&D <x>"`, text)
	}
	if got, want := strings.Count(string(plain), "\n"), len(awkward().Texts)+4; got != want {
		t.Errorf("%d lines, want a line for each element and each member beside: %d\n%s", got, want, string(plain))
	}
	hosttest.ContainsIn(t, "not indented", "\n  \"schema\": 1,\n", string(terminal))
}

func TestYAMLIsTheSameDocument(t *testing.T) {
	printed, err := (&Document{Format: FormatYAML}).encode(awkward(), nil)
	hosttest.NoError(t, err)
	b := bytes.NewBuffer(printed)
	var fromYAML, fromJSON any
	if err := yaml.Unmarshal(b.Bytes(), &fromYAML); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	text, err := json.Marshal(awkward())
	hosttest.NoError(t, err)
	hosttest.NoError(t, yaml.Unmarshal(text, &fromJSON))
	if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
		t.Errorf("(-json +yaml):\n%s\n%s", diff, b.String())
	}
	// Parsers of YAML 1.1 know more numbers and words than this one.
	for _, quoted := range []string{`- "0000:24:00.0"`, `- "1e04"`, `- "yes"`, `- "n"`, `- "12:30:45"`} {
		hosttest.ContainsIn(t, "the text", quoted+"\n", b.String())
	}
}

func TestTable(t *testing.T) {
	for _, test := range []struct {
		name   string
		colour bool
		want   string
	}{
		{"plain", false, "GROUP  NAME\n┌ 1    a\n└      steer?d\n"},
		{"on a terminal", true, "\x1b[1mGROUP  NAME\x1b[0m\n┌ 1    a\n└      steer?d\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b bytes.Buffer
			u := &UI{Out: bufio.NewWriter(&b), Colour: test.colour, Page: Page{Unicode: true}}
			u.Table([]string{"GROUP", "NAME"}, [][]string{{"┌ 1", "a"}, {"└", "steer\x1bd"}})
			if err := u.Out.Flush(); err != nil || b.String() != test.want {
				t.Errorf("got %q, want %q, %v", b.String(), test.want, err)
			}
		})
	}
}

func TestColourAndUnicodeAreAskedFor(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"LANG": "C"}, false},
		{map[string]string{"LANG": "en_US.UTF-8"}, true},
		{map[string]string{"LANG": "de_DE.utf8"}, true},
		{map[string]string{"LANG": "en_US.UTF-8", "LC_ALL": "C"}, false},
		{map[string]string{"LANG": "C", "LC_CTYPE": "C.UTF-8"}, true},
	} {
		hosttest.EqualIn(t, fmt.Sprint(test.env), test.want, isUTF8(func(name string) string { return test.env[name] }))
	}
	f, err := os.Open(os.DevNull)
	hosttest.NoError(t, err)
	defer f.Close()
	if u := New(f, f, f, func(string) string { return "" }); u.Colour || u.Terminal {
		t.Error("a file is no terminal")
	}
}

func TestFail(t *testing.T) {
	var b bytes.Buffer
	u := &UI{Talk: &b, Out: bufio.NewWriter(io.Discard)}
	u.Fail(errors.Join(
		host.WithHint(errors.New("one"), "do this"),
		errors.Join(host.WithHint(errors.New("two"), "do this"), errors.New("three \x1b[31m")),
		os.ErrPermission,
	))
	want := "gpustack: error: one\ngpustack: error: two\ngpustack: error: three ?[31m\ngpustack: error: permission denied\n" +
		"gpustack: hint: do this\ngpustack: hint: " + host.AsRoot().String() + "\n"
	hosttest.Equal(t, want, b.String())
}

// TestForeignNames: no message passes the control characters of a name to the terminal.
func TestForeignNames(t *testing.T) {
	const name = "a\x1b[2J\x07b"
	for what, print := range map[string]func(*UI){
		"Warn": func(u *UI) { u.Warn(name) },
		"Note": func(u *UI) { u.Note("%s is removed", name) },
		"Waits": func(u *UI) {
			u.Status.out = io.Discard
			u.Waits("%s", name)
			u.Printf("%s\n", u.Status.text)
		},
		"Fail":  func(u *UI) { u.Fail(host.WithHint(errors.New(name), host.Textf("rm %s", name))) },
		"Hint":  func(u *UI) { u.Fail(host.WithHint(errors.New(name), "rm "+name)) },
		"Table": func(u *UI) { u.Table([]string{"NAME"}, [][]string{{name}}) },
		"Diff":  func(u *UI) { u.Diff("+" + name) },
		"Text":  func(u *UI) { u.Printf("%s\n", u.Text(host.Textf("rm %s", name))) },
		"Command": func(u *UI) {
			u.Printf("%s\n", u.Command(host.NewCommand("host scan").Flag("device", name)))
		},
	} {
		var b bytes.Buffer
		u := &UI{Talk: &b, Out: bufio.NewWriter(&b)}
		print(u)
		if err := u.Out.Flush(); err != nil || strings.ContainsAny(b.String(), "\x1b\x07") || !strings.Contains(b.String(), "a?[2J?b") {
			t.Errorf("%s: %q, %v", what, b.String(), err)
		}
	}
}

// TestProtectedHint: what the file system refuses root is not mended by being root.
func TestProtectedHint(t *testing.T) {
	err := fmt.Errorf("/etc/default/grub: %w", &edit.Protected{Place: "/etc/default/grub"})
	const want = "chattr -i /etc/default/grub, then run gpustack again (lsattr -d /etc/default/grub shows the attribute)"
	hosttest.Equal(t, want, Hint(err).String())
}
