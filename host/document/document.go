// Package document reads documents that the operator hands over: files, folders and standard
// input, in which a command of gpustack has printed JSON or YAML, on another machine or earlier.
// [Source.Each] returns those of one kind. Each kind is recognized, so that a wrong one is named.
//
// The paths are those of the machine where the program runs, never below a root, and no document
// is changed.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"gpustack/host"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Source is the files, folders and Stdin in which documents are.
type Source struct {
	Paths []string
	Stdin io.Reader
	Warn  func(warning string) // called for what is ignored in a folder; nil for no warnings
}

// Document is one document.
type Document struct {
	// Name is that of the file, with the line where the document begins if there are several.
	Name string
	Text []byte // as JSON
}

// fields returns the fields of the document, nil unless it is an object.
func (d Document) fields() map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(d.Text, &fields) != nil {
		return nil
	}
	return fields
}

// Each calls read for each document of a kind in the order of the paths, and within a folder by
// name. The error joins those of read and of all files: of one that cannot be read or that contains
// no document, of a folder without a document, and of documents of other kinds or versions.
func (s Source) Each(want Kind, read func(Document) error) error {
	var errs []error
	for _, path := range s.Paths {
		files, err := s.files(path, want)
		errs = append(errs, err)
		for _, file := range files {
			text, err := s.ReadFile(file)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			errs = append(errs, each(Name(file), text, want, read))
		}
	}
	return errors.Join(errs...)
}

// ReadFile returns the content of a file, or of standard input for [Stdin].
func (s Source) ReadFile(path string) ([]byte, error) {
	var text []byte
	var err error
	if path == Stdin {
		text, err = io.ReadAll(s.Stdin)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name(path), host.Cause(err))
	}
	return text, nil
}

// Name returns the name of a path for messages.
func Name(path string) string {
	if path == Stdin {
		return "standard input"
	}
	return path
}

// files returns the files of a path: itself or, of a folder, those whose names end like those of
// documents. Others are ignored with a warning, unless they are hidden.
func (s Source) files(path string, want Kind) ([]string, error) {
	if path == Stdin {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, nil // ReadFile has the error
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, host.Cause(err))
	}
	var files, ignored []string
	for _, e := range entries {
		switch {
		case isDocument(e.Name()) && !e.IsDir():
			files = append(files, filepath.Join(path, e.Name()))
		case !strings.HasPrefix(e.Name(), "."):
			ignored = append(ignored, e.Name())
		}
	}
	if s.Warn != nil && len(ignored) > 0 {
		names := ignored[:min(len(ignored), 5)]
		more := ""
		if n := len(ignored) - len(names); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		s.Warn(fmt.Sprintf("%s: ignored, because only files that end in %s are read: %s%s", path, strings.Join(suffixes(), ", "), strings.Join(names, ", "), more))
	}
	if len(files) == 0 {
		return nil, host.WithHint(fmt.Errorf("%s: this folder has no file that ends in %s", path, strings.Join(suffixes(), ", ")), want.hint())
	}
	return files, nil
}

// suffixes returns the endings of documents' names.
func suffixes() []string {
	return []string{".json", ".jsonl", ".yaml", ".yml"}
}

func isDocument(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.ContainsFunc(suffixes(), func(s string) bool { return strings.HasSuffix(name, s) })
}

// each calls read for each document in a text.
func each(name string, text []byte, want Kind, read func(Document) error) error {
	var errs []error
	found := false
	for d, err := range split(name, text) {
		found = true
		if err != nil {
			errs = append(errs, host.WithHint(fmt.Errorf("%s: not %s: %w", d.Name, want, err), want.hint()))
			continue
		}
		if err = d.check(want); err == nil {
			err = read(d)
		}
		errs = append(errs, err)
	}
	if !found {
		return host.WithHint(fmt.Errorf("%s: is empty; expected %s", name, want), want.hint())
	}
	return errors.Join(errs...)
}

// split iterates over the documents in a text: JSON lines, JSON documents one after another, or a
// stream of YAML. Of JSON lines, each that is malformed is an error; otherwise the first malformed
// document ends the text.
func split(name string, text []byte) iter.Seq2[Document, error] {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // a byte order mark
	first, rest, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	switch {
	case len(first) == 0:
		return func(func(Document, error) bool) {}
	case first[0] != '{':
		return splitYAML(name, text)
	case len(rest) > 0 && json.Valid(first):
		return splitLines(name, text)
	}
	return splitJSON(name, text)
}

// splitLines splits JSON lines.
func splitLines(name string, text []byte) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		n := 0
		for line := range bytes.Lines(text) {
			n++
			line = bytes.TrimSpace(line)
			if len(line) == 0 {
				continue
			}
			d := Document{fmt.Sprintf("%s:%d", name, n), line}
			var err error
			if !json.Valid(line) {
				err = fmt.Errorf("not JSON: %.60q", line)
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// splitJSON splits JSON documents of any number of lines.
func splitJSON(name string, text []byte) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		decoder := json.NewDecoder(bytes.NewReader(text))
		for first := true; ; first = false {
			var document json.RawMessage
			start := decoder.InputOffset()
			err := decoder.Decode(&document)
			if errors.Is(err, io.EOF) {
				return
			}
			d := Document{name, document}
			if !first || err == nil && decoder.More() {
				d.Name = fmt.Sprintf("%s:%d", name, line(text, start+blanks(text[start:])))
			}
			var syntax *json.SyntaxError
			switch {
			case errors.As(err, &syntax):
				err = fmt.Errorf("line %d: not JSON: %w", line(text, syntax.Offset), err)
			case err != nil: // io.ErrUnexpectedEOF
				err = fmt.Errorf("ends early: %w", err)
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// line returns the number of the line that contains an offset.
func line(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(int(offset), len(text))], []byte("\n"))
}

// blanks returns the number of blanks at the beginning of a text.
func blanks(text []byte) int64 {
	return int64(len(text) - len(bytes.TrimLeft(text, " \t\r\n")))
}

// splitYAML splits a stream of YAML.
func splitYAML(name string, text []byte) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		several := bytes.Contains(text, []byte("\n---"))
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var node yaml.Node
			err := decoder.Decode(&node)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Document{Name: name}, fmt.Errorf("neither JSON nor YAML: %w", err))
				return
			}
			d := Document{Name: name}
			if several {
				d.Name = fmt.Sprintf("%s:%d", name, node.Line)
			}
			var value any
			if err = node.Decode(&value); err == nil {
				d.Text, err = json.Marshal(value)
			}
			if !yield(d, err) {
				return
			}
		}
	}
}
