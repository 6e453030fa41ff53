package document_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/document"
	"gpustack/host/hosttest"
)

// TestEach: each form of several documents gives every document, with the line where it begins, and
// every error.
func TestEach(t *testing.T) {
	const one = `{"schema": 1, "kind": "host scan", "host": {}, "devices": [], "warnings": []}`
	const several = "{\"schema\": 1, \"kind\": \"host scan\",\n \"host\": {},\n \"devices\": [], \"warnings\": []}\n"
	for name, test := range map[string]struct{ text, want string }{
		"one":                   {one, "in"},
		"one, on several lines": {several, "in"},
		"a byte order mark":     {"\xef\xbb\xbf" + one, "in"},
		"lines":                 {one + "\n\n" + one + "\r\n", "in:1 in:3"},
		"one after another":     {several + "\n" + several + several, "in:1 in:5 in:8"},
		"on one line":           {one + one, "in:1 in:1"},
		"yaml":                  {"schema: 1\nkind: host scan\nhost: {}\ndevices: []\nwarnings: []\n", "in"},
		"yaml, begun":           {"---\nschema: 1\nkind: host scan\nhost: {}\ndevices: []\nwarnings: []\n", "in"},
		"a stream":              {"---\nschema: 1\nkind: host scan\nhost: {}\ndevices: []\nwarnings: []\n---\nschema: 1\nkind: host scan\nhost: {}\ndevices: []\nwarnings: []\n", "in:1 in:7"},
		"yaml, cut":             {"schema: 1\nkind: host scan\nhost: {}\ndevices: []\n", "in: not the output of host scan: ends early: warnings is missing"},
		"yaml, cut in a list":   {"schema: 1\nkind: host scan\nhost: {}\ndevices:\n  - address: 0000:17:00.0\n", "in: not the output of host scan: ends early: warnings is missing"},
		"a stream, cut": {"---\nschema: 1\nkind: host scan\nhost: {}\ndevices: []\nwarnings: []\n---\nschema: 1\nkind: host scan\nhost: {}\ndevices: []\n",
			"in:1 in:7: not the output of host scan: ends early: warnings is missing"},
		"nothing":             {" \n", "in: is empty; expected the output of host scan"},
		"a list":              {"[" + one + "]", "in: not the output of host scan"},
		"a word":              {"sudo: a password is required", "in: not the output of host scan"},
		"a key twice in YAML": {"a: 1\na: 2\n", `in: not the output of host scan: yaml: unmarshal errors:`},
		"a malformed line":    {one + "\nConnection refused\n" + one, `in:1 in:3 in:2: not the output of host scan: not JSON: "Connection refused"`},
		"cut":                 {several + several[:20], "in:1 in:4: not the output of host scan: ends early: unexpected EOF"},
		"cut after a line":    {several[:20], "in: not the output of host scan: ends early: unexpected EOF"},
		"words after JSON": {several + "words\n", "in:1 in:4: not the output of host scan: line 4: not JSON: invalid character 'w' looking for " +
			"beginning of value"},
		"a later schema": {`{"schema": 7}`, "in: schema 7 is of another version of gpustack; this version reads schema 1"},
		"another kind":   {`{"schema": 1, "kind": "history", "entries": []}`, "in: is the output of history; expected the output of host scan"},
		"refused": {`{"schema": 1, "kind": "failure", "refusals": [{"address": "0000:01:00.0", "reason": "console"}]}`,
			"in: is the error report of a failed command; expected the output of host scan: 0000:01:00.0: console"},
		"a key twice": {`{"schema": 1, "kind": "host scan", "host": {}, "devices": [], "warnings": [], "host": "b"}`,
			`in: not the output of host scan: an object has the key "host" twice`},
		"twice but for case": {`{"schema": 1, "kind": "host scan", "host": {}, "Host": "b", "devices": [], "warnings": []}`,
			`in: not the output of host scan: an object has the key "Host" twice`},
		"twice but for escapes": {`{"schema": 1, "kind": "host scan", "host": {}, "devices": [{"a": 1, "\u0061": 2}], "warnings": []}`,
			`in: not the output of host scan: an object has the key "a" twice`},
		"twice on a line": {one + "\n" + `{"schema": 1, "schema": 1}` + "\n" + one,
			`in:1 in:3 in:2: not the output of host scan: an object has the key "schema" twice`},
		"twice, apart":               {`{"schema": 1, "kind": "host scan", "host": {"a": {"a": "a"}}, "devices": [{"a": "\",\"a"}, {"a": ["a", "a"]}], "warnings": []}`, "in"},
		"NUL bytes":                  {one + "\n\x00\x00\x00\n", `in:1 in:2: not the output of host scan: not JSON: "\x00\x00\x00"`},
		"no schema":                  {`{"kind": "host scan", "host": {}, "devices": [], "warnings": []}`, "in: not the output of host scan"},
		"no kind":                    {`{"schema": 1, "host": {}, "devices": [], "warnings": []}`, "in: has no kind; expected the output of host scan"},
		"no kind, of a later schema": {`{"schema": 7, "host": {}}`, "in: schema 7 is of another version of gpustack; this version reads schema 1"},
		"a kind that is no text":     {`{"schema": 1, "kind": ["host scan"]}`, "in: has no kind; expected the output of host scan"},
		"of another program":         {`{"kind": "Pod", "apiVersion": "v1"}`, "in: not the output of host scan"},
		"the contract":               {`{"schema": 1, "kind": "contract"}`, "in: is the record of host prepare; expected the output of host scan"},
		"a journal entry":            {`{"schema": 1, "kind": "journal entry"}`, "in: is an entry of the journal; expected the output of host scan"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			from := document.Source{Paths: []string{document.Stdin}, Stdin: strings.NewReader(test.text)}
			err := from.Each(document.HostScan, func(d document.Document) error {
				got = append(got, d.Name)
				return nil
			})
			if err != nil {
				got = append(got, strings.SplitAfter(err.Error(), "unmarshal errors:")[0])
			}
			hosttest.Equal(t, test.want, strings.ReplaceAll(strings.Join(got, " "), "standard input", "in"))
			var hinted interface{ Hint() string }
			if err != nil && (!errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), "gpustack host scan -o json > FILE")) {
				t.Errorf("no hint: %v", err)
			}
		})
	}
}

// TestFolders: a folder is read by name, whatever is in it that cannot be a document is named, and
// errors of the callback and of unreadable input are not lost.
func TestFolders(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.json", "c.jsonl", ".d.json", "1", "2", "3", "4", "5", "6"} {
		hosttest.NoError(t,
			os.WriteFile(filepath.Join(dir, name), []byte("{\"schema\": 1, \"kind\": \"host scan\", \"host\": {}, \"devices\": [], \"warnings\": []}\n"), 0o600))
	}
	hosttest.NoError(t, os.Mkdir(filepath.Join(dir, "e.json"), 0o700))
	var warnings, read []string
	from := document.Source{Paths: []string{dir, document.Stdin}, Stdin: failing{}, Warn: func(w string) { warnings = append(warnings, w) }}
	err := from.Each(document.HostScan, func(d document.Document) error {
		read = append(read, filepath.Base(d.Name))
		return fmt.Errorf("callback of %s", filepath.Base(d.Name))
	})
	hosttest.EqualIn(t, "read", "a.json b.yaml c.jsonl", strings.Join(read, " "))
	want := "callback of a.json\ncallback of b.yaml\ncallback of c.jsonl\nstandard input: broken"
	hosttest.Equal(t, want, fmt.Sprint(err))
	if got := strings.Join(warnings, "\n"); !strings.HasSuffix(got, ": 1, 2, 3, 4, 5 and 2 more") || len(warnings) != 1 {
		t.Errorf("warnings: %s", got)
	}
}

// TestKinds: several kinds are read together, in one file too. What other commands have printed is
// an error unless it is to be ignored, and what no command has printed always is.
func TestKinds(t *testing.T) {
	const text = `{"schema": 1, "kind": "host scan", "host": {}, "devices": [], "warnings": []}
{"schema": 1, "kind": "host guests", "nova_compute": []}
{"schema": 1, "kind": "history", "entries": []}
{"name": "a-package", "version": "1.0.0"}
{"schema": 1, "kind": "failure", "errors": [{"message": "no such root"}]}
{"schema": 2, "kind": "host scan", "host": {}, "devices": [], "warnings": []}
`
	for ignore, want := range map[bool]string{
		false: "in:1 host scan\nin:2 host guests\n" +
			"in:3: is the output of history; expected the output of host scan or host guests\n" +
			"in:4: not the output of host scan or host guests\n" +
			"in:5: is the error report of a failed command; expected the output of host scan or host guests: no such root\n" +
			"in:6: schema 2 is of another version of gpustack; this version reads schema 1",
		true: "in:1 host scan\nin:2 host guests\nignored in:3 history\n" +
			"in:4: not the output of host scan or host guests\n" +
			"in:5: is the error report of a failed command; expected the output of host scan or host guests: no such root\n" +
			"in:6: schema 2 is of another version of gpustack; this version reads schema 1",
	} {
		var got []string
		from := document.Source{Paths: []string{document.Stdin}, Stdin: strings.NewReader(text)}
		if ignore {
			from.Ignore = func(d document.Document) { got = append(got, fmt.Sprintf("ignored %s %s", d.Name, string(d.Kind))) }
		}
		err := from.EachOf(document.Kinds{document.HostScan, document.HostGuests}, func(d document.Document) error {
			if d.IsAlone() || d.File != "standard input" {
				t.Errorf("%s: alone %t in %s", d.Name, d.IsAlone(), d.File)
			}
			got = append(got, fmt.Sprintf("%s %s", d.Name, string(d.Kind)))
			return nil
		})
		if err != nil {
			got = append(got, err.Error())
		}
		hosttest.EqualIn(t, fmt.Sprintf("ignore %t", ignore), want, strings.ReplaceAll(strings.Join(got, "\n"), "standard input", "in"))
	}
}

// TestMixed: JSON documents in a line and JSON documents of several lines can follow one another in
// one stream. A line that was truncated is an error, and what follows it is no part of it.
func TestMixed(t *testing.T) {
	const line = `{"schema": 1, "kind": "host scan", "host": "h", "devices": [], "warnings": []}`
	indented := strings.NewReplacer("{", "{\n  ", ", ", ",\n  ", "}", "\n}").Replace(line)
	for name, test := range map[string]struct{ text, want string }{
		"line, indented": {line + "\n" + indented + "\n", "in:1 in:2"},
		"indented, line": {indented + "\n" + line + "\n", "in:1 in:8"},
		"lines around":   {line + "\n\n" + indented + "\n" + line + "\n" + line + "\n", "in:1 in:3 in:10 in:11"},
		"a comma behind": {line + "\n" + strings.Replace(line, ", ", ",\n", 1) + "\n" + line, "in:1 in:2 in:4"},
		"a truncated line": {line + "\n" + line[:20] + "\n" + line + "\n",
			"in:1 in:3 error in:2: not the output of host scan: not JSON: \"{\\\"schema\\\": 1, \\\"kind\\\"\""},
		"truncated at a comma": {line + "\n" + line[:13] + "\n" + line + "\n",
			"in:1 in:3 error in:2: not the output of host scan: not JSON: \"{\\\"schema\\\": 1,\""},
		"ends early": {line + "\n" + strings.TrimSuffix(indented, "}"), "in:1 error in:2: not the output of host scan: ends early: unexpected EOF"},
		"a malformed value": {line + "\n" + strings.Replace(indented, "[]", "[}", 1),
			"in:1 error in:2: not the output of host scan: line 6: not JSON: invalid character '}' looking for beginning of value"},
	} {
		var got []string
		err := document.Source{Paths: []string{document.Stdin}, Stdin: strings.NewReader(test.text)}.Each(document.HostScan, func(d document.Document) error {
			got = append(got, d.Name)
			return nil
		})
		if err != nil {
			got = append(got, "error", err.Error())
		}
		hosttest.EqualIn(t, name, test.want, strings.ReplaceAll(strings.Join(got, " "), "standard input", "in"))
	}
}

// TestStream: any number of documents is read one by one, and one that is larger than any document
// of gpustack is an error, in each form.
func TestStream(t *testing.T) {
	const one = `{"schema": 1, "kind": "host scan", "host": "h", "devices": [], "warnings": [], "pad": "PAD"}`
	padded := func(n int) string { return strings.Replace(one, "PAD", strings.Repeat("x", n), 1) }
	indented := strings.Replace(padded(1<<20), "{", "{\n", 1)
	const large = 33 << 20
	for name, test := range map[string]struct {
		text  io.Reader
		count int
		err   string
	}{
		"lines":             {&repeated{text: padded(1<<20) + "\n", n: 34}, 34, ""},
		"objects":           {&repeated{text: indented + "\n", n: 34}, 34, ""},
		"a large line":      {strings.NewReader(one + "\n" + padded(large)), 1, "standard input:2: not the output of host scan: larger than 32 MiB"},
		"a large document":  {strings.NewReader("{\n" + padded(large)[1:]), 0, "standard input: not the output of host scan: line 1: larger than 32 MiB"},
		"a large text":      {strings.NewReader(strings.Repeat("x", large)), 0, "standard input: not the output of host scan: larger than 32 MiB"},
		"blanks":            {strings.NewReader(strings.Repeat("\n", large)), 0, "standard input: not the output of host scan: larger than 32 MiB"},
		"a large first one": {strings.NewReader(padded(large)), 0, "standard input: not the output of host scan: larger than 32 MiB"},
	} {
		n := 0
		err := document.Source{Paths: []string{document.Stdin}, Stdin: test.text}.Each(document.HostScan, func(document.Document) error {
			n++
			return nil
		})
		if n != test.count || (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
			t.Errorf("%s: %d documents, error %.200v", name, n, err)
		}
	}
}

// repeated is a text n times.
type repeated struct {
	text string
	n    int
	rest string
}

func (r *repeated) Read(data []byte) (int, error) {
	if r.rest == "" {
		if r.n == 0 {
			return 0, io.EOF
		}
		r.n--
		r.rest = r.text
	}
	n := copy(data, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken") }

var _ io.Reader = failing{}

// FuzzEach: no input panics, and an accepted document is of the kind.
func FuzzEach(f *testing.F) {
	f.Add([]byte("{\"schema\": 1, \"kind\": \"host scan\", \"host\": {}, \"devices\": [], \"warnings\": []}\n{}"))
	f.Add([]byte("---\nschema: 1\n---\n? [a]\n: b\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		from := document.Source{Paths: []string{document.Stdin}, Stdin: strings.NewReader(string(text))}
		err := from.Each(document.HostScan, func(d document.Document) error {
			if is := document.Recognize(d.Text).Kind; is != document.HostScan {
				t.Errorf("%s is %s", d.Text, is)
			}
			return nil
		})
		if err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
	})
}
