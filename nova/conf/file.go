package conf

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// File is a configuration file, line by line.
type File struct {
	text     string
	lines    []line
	sections []section
	options  []Option
}

// Source is a file together with its name, by which messages call it.
type Source struct {
	Name string
	File *File
}

// MarshalText returns the name, which is what documents have of a file.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.Name), nil }

// line is a line with what ends it: "\n", "\r\n", "\r", or "" for the last.
type line struct {
	text, end string
}

type section struct {
	name string
	at   int // the line of its header
}

// Option is one assignment, as it stands in the file.
type Option struct {
	Section string // as written
	Key     string
	Value   string // continuation lines are joined by line feeds
	first   int    // its lines in the file
	last    int
}

// Line returns the number of the first line of the option, from 1.
func (o Option) Line() int {
	return o.first + 1
}

// Name is the name of an option: its section and key.
type Name struct {
	Section, Key string
}

func (n Name) String() string {
	return "[" + n.Section + "] " + n.Key
}

// is reports whether an option has the name. Sections other than DEFAULT are compared without case
// (oslo.config, cfg.py, _normalize_group_name), keys with it.
func (n Name) is(o Option) bool {
	return o.Key == n.Key && sameSection(o.Section, n.Section)
}

func sameSection(a, b string) bool {
	const defaultSection = "DEFAULT"
	if a == defaultSection || b == defaultSection {
		return a == b
	}
	return strings.ToLower(a) == strings.ToLower(b) //nolint:staticcheck // as oslo.config does, which folds no case
}

// SyntaxError is a line that oslo.config rejects. It does not quote the line, which may contain a
// secret.
type SyntaxError struct {
	Line    int
	Problem string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d: %s", e.Line, e.Problem)
}

// Parse reads a file by the grammar of oslo.config 1.0 to 10 (iniparser.py,
// BaseParser.parse; cfg.py, ConfigParser). What oslo.config rejects is a [SyntaxError].
func Parse(text []byte) (*File, error) {
	return parse(string(text))
}

func parse(text string) (*File, error) {
	f := &File{text: text, lines: split(text)}
	if !utf8.ValidString(text) {
		for i, l := range f.lines {
			if !utf8.ValidString(l.text) {
				return nil, &SyntaxError{i + 1, "not UTF-8"}
			}
		}
	}
	if strings.HasPrefix(text, "\ufeff") {
		return nil, &SyntaxError{1, "byte order mark at the beginning of the file"}
	}
	p := parser{file: f}
	for i, l := range f.lines {
		if problem := p.line(i, trimRight(l.text)); problem != "" {
			return nil, &SyntaxError{i + 1, problem}
		}
	}
	return f, nil
}

type parser struct {
	file *File
	open bool // the next line may continue an option
}

// line parses a line, without trailing white space.
func (p *parser) line(i int, text string) (problem string) {
	f := p.file
	switch {
	case text == "":
		p.open = false
	case text[0] == ' ' || text[0] == '\t':
		if !p.open {
			return "continuation line without an option before it"
		}
		o := &f.options[len(f.options)-1]
		o.Value += "\n" + strings.TrimLeftFunc(text, isSpace)
		o.last = i
	case text[0] == '[':
		p.open = false
		if !strings.HasSuffix(text, "]") {
			return "section header does not end with ]"
		}
		if len(text) <= 2 {
			return "section header without a name"
		}
		f.sections = append(f.sections, section{text[1 : len(text)-1], i})
	case text[0] == '#' || text[0] == ';':
		// A comment ends an option: continuation lines must not follow it.
		p.open = false
	default:
		p.open = false
		at := indexSign(text)
		if at < 0 {
			return "not an option, a section header or a comment"
		}
		key := strings.TrimFunc(text[:at], isSpace)
		if key == "" {
			return "option without a name"
		}
		if len(f.sections) == 0 {
			return "option before the first section header"
		}
		f.options = append(f.options, Option{
			Section: f.sections[len(f.sections)-1].name, Key: key, Value: unquote(strings.TrimFunc(text[at+1:], isSpace)), first: i, last: i,
		})
		p.open = true
	}
	return ""
}

// unquote removes one pair of quotes. To oslo.config a value of a single quote character is a pair,
// and so empty.
func unquote(value string) string {
	if value != "" && (value[0] == '"' || value[0] == '\'') && value[0] == value[len(value)-1] {
		return value[1:max(1, len(value)-1)]
	}
	return value
}

// isSpace reports whether Python's str.strip removes a character.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f
}

// trimRight returns a line without trailing white space. It is called for each of the thousands of
// lines of a sample file, of which few have any.
func trimRight(text string) string {
	if text == "" || isGraphic(text[len(text)-1]) {
		return text
	}
	return strings.TrimRightFunc(text, isSpace)
}

// isBlank reports whether a line is empty or white space.
func isBlank(text string) bool {
	return text == "" || !isGraphic(text[0]) && strings.TrimFunc(text, isSpace) == ""
}

// isGraphic reports whether a byte is a character of ASCII that isSpace does not match.
func isGraphic(b byte) bool {
	return ' ' < b && b < utf8.RuneSelf
}

// indexSign returns the index of the first colon or equals sign, or -1.
func indexSign(text string) int {
	for i := range len(text) {
		if text[i] == ':' || text[i] == '=' {
			return i
		}
	}
	return -1
}

// split splits text at the line ends that Python recognizes.
func split(text string) []line {
	lines := make([]line, 0, strings.Count(text, "\n")+1)
	for l := range linesOf(text) {
		lines = append(lines, l)
	}
	return lines
}

// linesOf returns the lines of split one by one.
func linesOf(text string) iter.Seq[line] {
	returns := strings.Contains(text, "\r")
	return func(yield func(line) bool) {
		for text != "" {
			at := strings.IndexByte(text, '\n')
			end := at + 1
			if at < 0 {
				at, end = len(text), len(text)
			}
			if returns {
				if i := strings.IndexByte(text[:at], '\r'); i >= 0 && (i+1 < at || at == len(text)) {
					at, end = i, i+1 // it ends the line by itself
				} else if i >= 0 {
					at = i
				}
			}
			if !yield(line{text[:at], text[at:end]}) {
				return
			}
			text = text[end:]
		}
	}
}

// Bytes returns the text of the file.
func (f *File) Bytes() []byte {
	return []byte(f.text)
}

// Options returns all options in the order of the file.
func (f *File) Options() []Option {
	return slices.Clone(f.options)
}

// Find returns the options that have one of the names, in the order of the file.
func (f *File) Find(names ...Name) []Option {
	var found []Option
	for _, o := range f.options {
		if slices.ContainsFunc(names, func(n Name) bool { return n.is(o) }) {
			found = append(found, o)
		}
	}
	return found
}

// Sections returns the names of all section headers in the order of the file.
func (f *File) Sections() []string {
	var names []string
	for _, s := range f.sections {
		names = append(names, s.name)
	}
	return names
}

// ParseName returns the name that String returned.
func ParseName(text string) (Name, bool) {
	section, key, ok := strings.Cut(strings.TrimPrefix(text, "["), "]")
	return Name{section, strings.TrimPrefix(key, " ")}, ok && strings.HasPrefix(text, "[")
}
