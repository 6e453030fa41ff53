package document

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"gopkg.in/yaml.v3"
)

// maxDocument is the largest size of one document, in bytes. The inventory of every function of a
// large server has less than two million.
const maxDocument = 32 << 20

// errTooLarge is the error of a document of more than maxDocument.
var errTooLarge = fmt.Errorf("larger than %d MiB, which no document of gpustack is", maxDocument>>20)

// readError is an error of the file, not of what it contains.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// split iterates over the documents of a reader: JSON lines, JSON documents one after another, or a
// stream of YAML. It keeps one document in memory, of YAML all. Of JSON lines, each that is
// malformed is an error; otherwise the first malformed document ends the text. After JSON lines,
// a document of several lines may follow. A key that is twice in an object makes a document
// malformed.
func split(name string, in io.Reader) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		s := &splitter{name: name, in: bufio.NewReaderSize(&input{in: in}, 1<<16), line: 1, yield: yield}
		if mark, err := s.in.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" { // a byte order mark
			s.in.Discard(len(mark)) //nolint:errcheck // they were read
		}
		blanks, err := s.skipBlanks()
		first, peekErr := s.in.Peek(1)
		switch {
		case err != nil:
			yield(Document{Name: name, File: name}, err)
		case len(first) == 0 && errors.Is(peekErr, io.EOF):
		case len(first) == 0:
			yield(Document{Name: name, File: name}, peekErr)
		case first[0] != '{':
			s.splitYAML(blanks)
		default:
			s.splitJSON()
		}
	}
}

// input marks errors of a reader as readError.
type input struct{ in io.Reader }

func (i *input) Read(data []byte) (int, error) {
	n, err := i.in.Read(data)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &readError{err}
	}
	return n, err
}

// splitter splits what one reader has.
type splitter struct {
	name  string
	in    *bufio.Reader
	line  int // of the next byte
	yield func(Document, error) bool
}

// document returns the document in JSON that begins at a line, 0 for the only one of the file.
func (s *splitter) document(text []byte, line int) (Document, error) {
	d := Document{Name: s.name, File: s.name, Text: text}
	if line > 0 {
		d.Name = fmt.Sprintf("%s:%d", s.name, line)
	}
	o := outlineOf(text)
	if o.isRepeated {
		return d, fmt.Errorf("an object has the key %.60q twice", o.repeated)
	}
	if d.schema = string(o.fields["schema"]); d.schema != "" {
		d.Kind = Kind(textOf(o.fields["kind"]))
	}
	if last := lastFields[d.Kind]; last != "" && d.schema == schemaText && o.fields[last] == nil {
		return d, fmt.Errorf("ends early: %s is missing", last)
	}
	return d, nil
}

// skipBlanks reads blanks and returns them.
func (s *splitter) skipBlanks() (blanks []byte, err error) {
	for {
		c, err := s.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return blanks, nil
		case err != nil:
			return blanks, err
		case c == '\n':
			s.line++
		case c != ' ' && c != '\t' && c != '\r':
			return blanks, s.in.UnreadByte()
		}
		if len(blanks) == maxDocument {
			return nil, errTooLarge
		}
		blanks = append(blanks, c)
	}
}

// readLine reads a line with its end.
func (s *splitter) readLine() (line []byte, err error) {
	for {
		part, err := s.in.ReadSlice('\n')
		if len(line)+len(part) > maxDocument {
			return nil, errTooLarge
		}
		line = append(line, part...)
		switch {
		case err == nil:
			s.line++
			return line, nil
		case errors.Is(err, io.EOF):
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// splitJSON splits JSON lines, if the first line is a document and not the only one, or else JSON
// documents of any number of lines.
func (s *splitter) splitJSON() {
	at := s.line
	first, err := s.readLine()
	if err != nil {
		s.yield(Document{Name: s.name, File: s.name}, err)
		return
	}
	if !json.Valid(first) {
		s.splitObjects(first, at, true)
		return
	}
	if _, err := s.skipBlanks(); err != nil {
		s.yield(Document{Name: s.name, File: s.name}, err)
		return
	}
	if _, err := s.in.Peek(1); errors.Is(err, io.EOF) {
		s.yield(s.document(bytes.TrimSpace(first), 0))
		return
	}
	if s.yield(s.document(bytes.TrimSpace(first), at)) {
		s.splitLines()
	}
}

// splitLines splits further JSON lines, up to a document of several lines.
func (s *splitter) splitLines() {
	for {
		at := s.line
		line, err := s.readLine()
		ends := err != nil || len(line) == 0
		if next, _ := s.in.Peek(1); err == nil && goesOn(line, next) { // a later read returns the error of Peek
			s.splitObjects(line, at, false)
			return
		}
		line = bytes.TrimSpace(line)
		switch {
		case err != nil:
			s.yield(Document{Name: fmt.Sprintf("%s:%d", s.name, at), File: s.name}, err)
		case ends, len(line) == 0:
		case !json.Valid(line):
			ends = !s.yield(Document{Name: fmt.Sprintf("%s:%d", s.name, at), File: s.name}, fmt.Errorf("not JSON: %.60q", line))
		default:
			ends = !s.yield(s.document(line, at))
		}
		if ends {
			return
		}
	}
}

// goesOn reports whether a line is the first one of a JSON document of several lines, by the byte
// that begins the next line. A line that ends within a value was truncated, as was one that a
// further document follows.
func goesOn(line, next []byte) bool {
	line = bytes.TrimSpace(line)
	if !bytes.HasPrefix(line, []byte("{")) || !bytes.ContainsRune([]byte("{[,"), rune(line[len(line)-1])) {
		return false
	}
	var text json.RawMessage
	return errors.Is(json.NewDecoder(io.MultiReader(bytes.NewReader(line), bytes.NewReader(next))).Decode(&text), io.ErrUnexpectedEOF)
}

// splitObjects splits JSON documents of any number of lines. The first line, which begins at a line
// of the file, has been read. isStart means that no document is before it.
func (s *splitter) splitObjects(first []byte, at int, isStart bool) {
	lines := &lineCounter{in: io.MultiReader(bytes.NewReader(first), s.in), line: at}
	decoder := json.NewDecoder(lines)
	for n := 0; ; n++ {
		decoder.More() // skips blanks
		start := lines.at(decoder.InputOffset())
		var text json.RawMessage
		err := decoder.Decode(&text)
		if errors.Is(err, io.EOF) {
			return
		}
		lines.since = 0
		if isStart && n == 0 && (err != nil || !decoder.More()) {
			start = 0
		}
		var syntax *json.SyntaxError
		var broken *readError
		d := Document{Name: s.name, File: s.name}
		switch {
		case err == nil:
			d, err = s.document(text, start)
			if !s.yield(d, err) {
				return
			}
			continue
		case errors.As(err, &syntax):
			err = fmt.Errorf("line %d: not JSON: %w", lines.at(syntax.Offset), err)
		case errors.Is(err, io.ErrUnexpectedEOF):
			err = fmt.Errorf("ends early: %w", err)
		case !errors.As(err, &broken):
			err = fmt.Errorf("line %d: %w", lines.at(decoder.InputOffset()), err)
		}
		if start > 0 {
			d.Name = fmt.Sprintf("%s:%d", s.name, start)
		}
		s.yield(d, err)
		return
	}
}

// lineCounter determines the line of an offset of what is read through it. It fails after
// maxDocument bytes in which since was not set to 0.
type lineCounter struct {
	in    io.Reader
	line  int     // of the offset that was asked for last
	ends  []int64 // offsets of later ends of lines
	read  int64
	since int
}

func (l *lineCounter) Read(data []byte) (int, error) {
	if l.since > maxDocument {
		return 0, errTooLarge
	}
	n, err := l.in.Read(data[:min(len(data), maxDocument+1-l.since)])
	for i, c := range data[:n] {
		if c == '\n' {
			l.ends = append(l.ends, l.read+int64(i))
		}
	}
	l.read += int64(n)
	l.since += n
	return n, err
}

// at returns the number of the line that contains an offset, which must not be less than that of
// the last call.
func (l *lineCounter) at(offset int64) int {
	for len(l.ends) > 0 && l.ends[0] < offset {
		l.ends = l.ends[1:]
		l.line++
	}
	return l.line
}

// splitYAML splits a stream of YAML, whose blanks at the beginning have been read.
func (s *splitter) splitYAML(blanks []byte) {
	text, err := io.ReadAll(io.LimitReader(io.MultiReader(bytes.NewReader(blanks), s.in), maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = errTooLarge
	}
	if err != nil {
		s.yield(Document{Name: s.name, File: s.name}, err)
		return
	}
	several := bytes.Contains(text, []byte("\n---"))
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return
		}
		d := Document{Name: s.name, File: s.name}
		if err != nil {
			s.yield(d, fmt.Errorf("neither JSON nor YAML: %w", err))
			return
		}
		line := 0
		if several {
			line = node.Line
			d.Name = fmt.Sprintf("%s:%d", s.name, line)
		}
		var value any
		var converted []byte
		if err = node.Decode(&value); err == nil {
			converted, err = json.Marshal(value)
		}
		if err == nil {
			d, err = s.document(converted, line)
		}
		if !s.yield(d, err) {
			return
		}
	}
}
