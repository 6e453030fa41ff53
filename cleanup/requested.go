package cleanup

import (
	"bytes"
	"hash/crc32"
)

// Requested sums up texts of pci_requests. A cloud has few that differ by more than their request
// ids: only the first of those that are alike is parsed.
type Requested struct {
	counts map[string][]int // of each request with an id, and of all, by the text without the ids; nil: not as Nova writes it
	text   []byte
	ids    []uint32
}

// mostRequested limits the texts that are kept.
const mostRequested = 1000

// Of returns how many devices a pci_requests asks for, and the sum of the CRC-32 of its request ids,
// one for each device. ok is false for a text that is not as Nova writes it; it may be valid
// nevertheless.
func (s *Requested) Of(text []byte) (n int, ids uint32, ok bool) {
	const before, length = `"request_id": "`, 36
	s.text, s.ids = s.text[:0], s.ids[:0]
	rest := text
	for k := bytes.Index(rest, []byte(before)); k >= 0; k = bytes.Index(rest, []byte(before)) {
		begin := k + len(before)
		if len(rest) < begin+length || bytes.ContainsAny(rest[begin:begin+length], `"\`) {
			return 0, 0, false
		}
		s.text, s.ids = append(s.text, rest[:begin]...), append(s.ids, crc32.ChecksumIEEE(rest[begin:begin+length]))
		rest = rest[begin+length:]
	}
	s.text = append(s.text, rest...)
	counts, known := s.counts[string(s.text)]
	if !known {
		counts = s.parse(string(text))
		if s.counts == nil {
			s.counts = map[string][]int{}
		}
		if len(s.counts) < mostRequested {
			s.counts[string(s.text)] = counts
		}
	}
	if counts == nil {
		return 0, 0, false
	}
	for k, id := range s.ids {
		ids += uint32(counts[k]) * id
	}
	return counts[len(s.ids)], ids, true
}

// parse returns the count of each request with an id, and of all, nil if the ids are not those that
// were found in the text.
func (s *Requested) parse(text string) (counts []int) {
	requests, err := ParseRequests(text)
	for _, r := range requests {
		if r.ID == "" {
			continue
		}
		if k := len(counts); k == len(s.ids) || s.ids[k] != crc32.ChecksumIEEE([]byte(r.ID)) {
			return nil
		}
		counts = append(counts, r.Count)
	}
	if err != nil || len(counts) != len(s.ids) {
		return nil
	}
	return append(counts, asked(requests))
}
