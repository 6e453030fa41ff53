package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	library "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
)

// files reads and judges the files, several at once: parsing takes most of the time. What they name
// is looked up afterwards, each path once.
func (r *reader) files() {
	var group sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range r.out.Files {
		free <- struct{}{}
		group.Go(func() {
			r.out.Files[i].read(r.root)
			<-free
		})
	}
	group.Wait()
	for i := range r.out.Files {
		f := &r.out.Files[i]
		if f.Used() {
			for _, p := range r.machine(f.Path, f.Spec) {
				p.Line = f.lines.of(p.Field)
				f.Problems = append(f.Problems, p)
			}
		}
	}
}

// read reads and judges the file, without what it names.
func (f *File) read(root host.Root) {
	data, err := root.ReadFile(f.Path)
	if err != nil {
		reason := fmt.Sprintf("the file cannot be read: %v", host.Cause(err))
		if host.IsAbsent(err) { // the folder lists it
			reason = "the link leads to no file"
		}
		f.Problems = []Problem{{File: f.Path, Kind: Unreadable, Status: host.Fail, Reason: reason, Skipped: true, Denied: errors.Is(err, fs.ErrPermission)}}
		return
	}
	f.lines = &lines{data: data}
	f.Spec, f.Problems = parse(f.Path, data, f.lines)
	if mode, _, err := root.Mode(f.Path); err == nil && mode.Perm()&0o004 == 0 {
		f.Problems = append(f.Problems, Problem{
			File: f.Path, Kind: Private, Status: host.Warn, Reason: fmt.Sprintf("mode %04o: only root and the file's group can read it", mode.Perm()),
		})
	}
}

// Parse parses and judges the content of a spec file, without the machine. The spec is nil if the
// content cannot be decoded. The file is only named in the problems.
func Parse(file string, data []byte) (*specs.Spec, []Problem) {
	return parse(file, data, &lines{data: data})
}

func parse(file string, data []byte, at *lines) (*specs.Spec, []Problem) {
	spec := canonical(data)
	if spec == nil {
		var err error
		if spec, err = library.ParseSpec(data); err != nil || spec == nil {
			return nil, notDecoded(file, err, at)
		}
	}
	problems := judge(file, spec)
	if at.more() {
		problems = append(problems, Problem{
			File: file, Kind: Ignored, Status: host.Warn, Reason: "more than one YAML document: runtimes read the first one and silently ignore the others",
		})
	}
	for i := range problems {
		problems[i].Line = at.of(problems[i].Field)
	}
	return spec, problems
}

// canonical decodes JSON that is, but for white space, what encoding the decoded spec gives: no key
// is unknown, in other case or twice, and no parser can read something else in it. It is nil for
// any other content. Generators write such files, and the YAML parser takes ten times as long for
// them.
func canonical(data []byte) *specs.Spec {
	if slices.ContainsFunc(data, func(c byte) bool { return c != '\n' && (c < ' ' || c > '~' || c == '\\') }) {
		return nil // text that JSON and YAML may read differently
	}
	var spec specs.Spec
	var compact, again bytes.Buffer
	if json.Unmarshal(data, &spec) != nil || json.Compact(&compact, data) != nil {
		return nil
	}
	e := json.NewEncoder(&again)
	e.SetEscapeHTML(false)
	if e.Encode(&spec) != nil || !bytes.Equal(compact.Bytes(), bytes.TrimSuffix(again.Bytes(), []byte("\n"))) {
		return nil
	}
	return &spec
}

// Errors of the YAML library (go.yaml.in/yaml/v3, decode.go), which has no types for them.
var (
	atLine     = host.LazyRegexp(`\bline (\d+): `)
	unknownKey = host.LazyRegexp(`^line (\d+): field (.*) not found in type `)
	twiceKey   = host.LazyRegexp(`^line (\d+): mapping key "(.*)" already defined at line (\d+)$`)
	wrongType  = host.LazyRegexp("^line (\\d+): cannot unmarshal (!!\\w+)(?: `([^`]*)`)? into (.*)$")
)

// notDecoded returns what is wrong with a file that the library cannot decode. An error of nil
// means that the file contains null.
func notDecoded(file string, err error, at *lines) []Problem {
	p := Problem{File: file, Kind: Malformed, Status: host.Fail, Skipped: true}
	var types *yaml.TypeError
	switch {
	case err == nil:
		p.Reason, p.Library = "the file contains no spec", "no Spec data"
	case errors.Is(err, io.EOF):
		p.Reason, p.Library = "the file is empty", err.Error()
	case errors.As(err, &types):
		var all []Problem
		for _, text := range types.Errors {
			one := p
			one.Library = text
			one.Line, one.Field, one.Reason = decodeError(text, at)
			all = append(all, one)
		}
		return all
	default:
		p.Library = err.Error()
		text := p.Library
		if _, after, ok := strings.Cut(text, "yaml: "); ok {
			text = after
		}
		if m := atLine().FindStringSubmatchIndex(text); m != nil {
			p.Line = number(text[m[2]:m[3]])
			text = text[:m[0]] + text[m[1]:]
		}
		p.Reason = "not valid YAML or JSON: " + text
	}
	return []Problem{p}
}

// decodeError returns the place and our words for an error of decoding.
func decodeError(text string, at *lines) (line int, field, reason string) {
	if m := unknownKey().FindStringSubmatch(text); m != nil {
		line = number(m[1])
		field = at.field(func(key, _ *yaml.Node) bool { return key != nil && key.Line == line && key.Value == m[2] })
		return line, field, fmt.Sprintf("unknown key %q", m[2])
	}
	if m := twiceKey().FindStringSubmatch(text); m != nil {
		line = number(m[1])
		field = at.field(func(key, _ *yaml.Node) bool { return key != nil && key.Line == line && key.Value == m[2] })
		return line, field, fmt.Sprintf("key %q appears twice, in lines %s and %s", m[2], m[3], m[1])
	}
	if m := wrongType().FindStringSubmatch(text); m != nil {
		line = number(m[1])
		shown := strings.TrimSuffix(m[3], "...") // the library shortens a long value
		field = at.field(func(_, value *yaml.Node) bool {
			return value.Line == line && value.ShortTag() == m[2] && strings.HasPrefix(value.Value, shown)
		})
		return line, field, fmt.Sprintf("%s, where %s is expected", what(m[2]), goType(m[4]))
	}
	if m := atLine().FindStringSubmatchIndex(text); m != nil {
		return number(text[m[2]:m[3]]), "", text[:m[0]] + text[m[1]:]
	}
	return 0, "", text
}

// what returns the name of a YAML type.
func what(tag string) string {
	switch tag {
	case "!!seq":
		return "a list"
	case "!!map":
		return "a mapping"
	case "!!str":
		return "a string"
	case "!!int":
		return "an integer"
	case "!!bool":
		return "a boolean"
	case "!!float":
		return "a number with a fraction"
	}
	return "a value of type " + strings.TrimPrefix(tag, "!!")
}

// goType returns the name of what a Go type is decoded from.
func goType(name string) string {
	switch {
	case strings.HasPrefix(name, "[]"):
		return "a list"
	case name == "string":
		return "a string"
	case name == "bool":
		return "true or false"
	case strings.HasPrefix(name, "int"), strings.HasPrefix(name, "uint"), strings.Contains(name, "FileMode"):
		return "an integer"
	}
	return "a mapping"
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil { // longer than any file
		return 0
	}
	return n
}

// lines finds the lines of fields in a file. It parses the file again, and only if it is asked:
// most files have no problems.
type lines struct {
	data []byte
	doc  *yaml.Node
	done bool
}

// top returns the value of the first document, or nil if there is none.
func (l *lines) top() *yaml.Node {
	if l == nil {
		return nil
	}
	if !l.done {
		l.done = true
		var doc yaml.Node
		if err := yaml.Unmarshal(l.data, &doc); err == nil && len(doc.Content) > 0 {
			l.doc = doc.Content[0]
		}
	}
	return l.doc
}

// more reports whether the file has more than one document.
func (l *lines) more() bool {
	if !bytes.Contains(l.data, []byte("\n---")) && !bytes.Contains(l.data, []byte("\n...")) {
		return false
	}
	dec := yaml.NewDecoder(bytes.NewReader(l.data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		return false
	}
	return !errors.Is(dec.Decode(&doc), io.EOF)
}

// of returns the line of a field, or that of the innermost value that contains it: 0 for none.
func (l *lines) of(field string) int {
	n := l.top()
	if field == "" || n == nil {
		return 0
	}
	line := 0
	for _, part := range strings.Split(field, ".") {
		name, index, listed := strings.Cut(part, "[")
		key, value := child(n, name)
		if value == nil {
			break
		}
		line, n = key.Line, value
		if listed {
			i := number(strings.TrimSuffix(index, "]"))
			if n.Kind != yaml.SequenceNode || i >= len(n.Content) {
				break
			}
			n = resolved(n.Content[i])
			line = n.Line
		}
	}
	return line
}

// child returns a key of a mapping and its value.
func child(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], resolved(n.Content[i+1])
		}
	}
	return nil, nil
}

func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// field returns the path of the first value that matches, or "". The key of an element of a list is
// nil.
func (l *lines) field(match func(key, value *yaml.Node) bool) string {
	top := l.top()
	if top == nil {
		return ""
	}
	return find(top, "", match)
}

func find(n *yaml.Node, at string, match func(key, value *yaml.Node) bool) string {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			here := strings.TrimPrefix(at+"."+key.Value, ".")
			if match(key, value) {
				return here
			}
			if below := find(value, here, match); below != "" {
				return below
			}
		}
	case yaml.SequenceNode:
		for i, value := range n.Content {
			here := fmt.Sprintf("%s[%d]", at, i)
			if match(nil, value) {
				return here
			}
			if below := find(value, here, match); below != "" {
				return below
			}
		}
	}
	return ""
}
