// Package document reads documents that the operator hands over: files, folders and standard
// input, in which a command of gpustack has printed JSON or YAML, on another machine or earlier.
// [Source.Each] returns those of one kind. Each kind is recognized, so that a wrong one is named.
//
// The paths are those of the machine where the program runs, never below a root, and no document
// is changed.
package document

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpustack/host"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// Source is the files, folders and Stdin in which documents are.
type Source struct {
	Paths []string
	Stdin io.Reader
	Warn  func(warning string) // called for what is ignored in a folder; nil for no warnings
	// Ignore is called for each document that another command of gpustack has printed, which is then
	// no error; nil if it is.
	Ignore func(Document)
	// Broken is called with the error of each file of a folder, and returns what is left of it; nil if
	// all errors are returned.
	Broken func(file string, err error) error
}

// Document is one document.
type Document struct {
	// Name is that of the file, with the line where the document begins if there are several.
	Name string
	File string // the name without the line
	Kind Kind
	Text []byte // as JSON

	schema string // the value of the field, "" without it
}

// IsAlone reports whether no other document is in the file.
func (d Document) IsAlone() bool { return d.Name == d.File }

// Each calls read for each document of a kind in the order of the paths, and within a folder by
// name. The error joins those of read and of all files: of one that cannot be read or that contains
// no document, of a folder without a document, and of documents of other versions or, unless they are
// in a folder, of other kinds.
func (s Source) Each(want Kind, read func(Document) error) error {
	return s.EachOf(Kinds{want}, read)
}

// EachOf is Each for documents of several kinds. Of a file or standard input it keeps one document
// in memory if they are JSON, and all if they are YAML.
func (s Source) EachOf(want Kinds, read func(Document) error) error {
	var errs []error
	for _, path := range s.Paths {
		files, err := s.files(path, want)
		errs = append(errs, err)
		if len(files) == 1 && files[0] == path {
			errs = append(errs, s.eachIn(path, want, read))
			continue
		}
		in, others, found := s, 0, 0
		if in.Ignore == nil { // a folder may have what other commands print
			in.Ignore = func(Document) { others++ }
		}
		for _, file := range files {
			err := in.eachIn(file, want, func(d Document) error { found++; return read(d) })
			if err != nil && s.Broken != nil {
				err = s.Broken(file, err)
			}
			errs = append(errs, err)
		}
		if others > 0 && found == 0 {
			errs = append(errs, host.WithHint(fmt.Errorf("%s: this folder does not have %s", path, want), want[0].hint()))
		}
	}
	return errors.Join(errs...)
}

// eachIn calls read for each document of a file, or of standard input for [Stdin].
func (s Source) eachIn(path string, want Kinds, read func(Document) error) error {
	name := Name(path)
	in := s.Stdin
	if path != Stdin {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return host.WithHint(fmt.Errorf("%s: %w", name, host.Cause(err)), want[0].hintFor(path))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, host.Cause(err))
		}
		defer f.Close() //nolint:errcheck // only read from
		in = f
	}
	var errs []error
	found := false
	for d, err := range split(name, in) {
		found = true
		var broken *readError
		switch {
		case errors.As(err, &broken):
			errs = append(errs, fmt.Errorf("%s: %w", d.Name, host.Cause(broken.error)))
			continue
		case err != nil:
			errs = append(errs, host.WithHint(fmt.Errorf("%s: not %s: %w", d.Name, want, err), want[0].hint()))
			continue
		}
		if err = d.check(want); err == nil {
			err = read(d)
		} else if s.Ignore != nil && d.Kind.isOutput() && !slices.Contains(want, d.Kind) {
			s.Ignore(d)
			err = nil
		}
		errs = append(errs, err)
	}
	if !found {
		return host.WithHint(fmt.Errorf("%s: is empty; expected %s", name, want), want[0].hint())
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
func (s Source) files(path string, want Kinds) ([]string, error) {
	if path == Stdin {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, nil // eachIn returns the error
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, host.Cause(err))
	}
	var files, ignored []string
	for _, e := range entries {
		switch {
		case isDocument(e.Name()) && (e.Type().IsRegular() || e.Type() == fs.ModeSymlink): // opening a pipe would block
			files = append(files, filepath.Join(path, e.Name()))
		case !strings.HasPrefix(e.Name(), "."):
			ignored = append(ignored, e.Name())
		}
	}
	if s.Warn != nil && len(ignored) > 0 {
		s.Warn(fmt.Sprintf("%s: ignored, because only regular files that end in %s are read: %s", path, strings.Join(suffixes(), ", "), host.Shortened(ignored, 5)))
	}
	if len(files) == 0 {
		return nil, host.WithHint(fmt.Errorf("%s: this folder has no file that ends in %s", path, strings.Join(suffixes(), ", ")), want[0].hint())
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
