package cleanup

import (
	"bytes"
	"hash/crc32"
)

// Requested returns how many devices a pci_requests asks for: the sum that ParseRequests returns,
// but without allocating memory. ids is the sum of the CRC-32 of the
// request ids, one for each device. ok is false for a
// text that is not as Nova writes it; it may be valid nevertheless.
func Requested(text []byte) (n int, ids uint32, ok bool) {
	s := scanner{text: text}
	ok = s.list(func() bool {
		counts, count := 0, 0
		var id []byte
		ok := s.object(func(key []byte) bool {
			switch string(key) {
			case "count":
				var ok bool
				counts++
				count, ok = s.number()
				return ok && count >= 0 && counts == 1
			case "request_id":
				if id != nil {
					return false
				}
				if s.literal("null") {
					return true
				}
				id = s.quoted()
				return id != nil
			case "spec":
				return s.list(func() bool { return s.object(func([]byte) bool { return s.value(0) }) })
			}
			for _, known := range []string{"count", "request_id", "spec"} {
				if bytes.EqualFold(key, []byte(known)) {
					return false // encoding/json ignores letter case
				}
			}
			return s.value(0)
		})
		n += count
		if len(id) > 0 {
			ids += uint32(count) * crc32.ChecksumIEEE(id)
		}
		return ok
	})
	return n, ids, ok && s.at == len(s.text)
}

// scanner reads JSON in ASCII without escapes and fractions, and with no white space but blanks
// after commas and colons: the form in which Python's json module writes it.
type scanner struct {
	text []byte
	at   int
}

func (s *scanner) next(c byte) bool {
	if s.at >= len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) literal(text string) bool {
	if !bytes.HasPrefix(s.text[s.at:], []byte(text)) {
		return false
	}
	s.at += len(text)
	return true
}

// separator reads a separator and the blanks after it.
func (s *scanner) separator(c byte) bool {
	ok := s.next(c)
	for s.next(' ') {
	}
	return ok
}

// list reads a list, with element for each of its elements.
func (s *scanner) list(element func() bool) bool {
	if !s.next('[') {
		return false
	}
	for first := true; !s.next(']'); first = false {
		if !first && !s.separator(',') || !element() {
			return false
		}
	}
	return true
}

// object reads an object, with value for the value of each key.
func (s *scanner) object(value func(key []byte) bool) bool {
	if !s.next('{') {
		return false
	}
	for first := true; !s.next('}'); first = false {
		if !first && !s.separator(',') {
			return false
		}
		key := s.quoted()
		if key == nil || !s.separator(':') || !value(key) {
			return false
		}
	}
	return true
}

// value reads any value.
func (s *scanner) value(depth int) bool {
	const deepest = 10
	if depth > deepest || s.at >= len(s.text) {
		return false
	}
	switch s.text[s.at] {
	case '"':
		return s.quoted() != nil
	case '[':
		return s.list(func() bool { return s.value(depth + 1) })
	case '{':
		return s.object(func([]byte) bool { return s.value(depth + 1) })
	case 'n':
		return s.literal("null")
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	}
	_, ok := s.number()
	return ok
}

// quoted reads a string and returns its text, nil if there is none.
func (s *scanner) quoted() []byte {
	if !s.next('"') {
		return nil
	}
	for begin := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[begin : s.at-1]
		case c == '\\' || c < ' ' || c > '~':
			return nil
		}
	}
	return nil
}

// number reads an integer.
func (s *scanner) number() (n int, ok bool) {
	negative := s.next('-')
	begin := s.at
	for ; s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9'; s.at++ {
		n = 10*n + int(s.text[s.at]-'0')
	}
	if negative {
		n = -n
	}
	// A leading zero is no JSON, and what is longer may be too large for an int.
	digits := s.at - begin
	return n, digits == 1 || digits > 1 && digits < 9 && s.text[begin] != '0'
}
