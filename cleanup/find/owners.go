package find

import (
	"encoding/binary"
	"encoding/hex"
	"maps"
	"math"

	"gpustack/cleanup"
)

// uuid is a uuid in binary form.
type uuid [16]byte

// parseUUID reads a uuid in the form in which Nova writes it: lower case, with hyphens. The text
// of another form is not its only one in the database, which ignores letter case and trailing
// blanks; canonical is false for it, and ok as well if it is no uuid at all.
func parseUUID(text []byte) (id uuid, canonical, ok bool) {
	if id, ok = decodeUUID(text); ok {
		return id, true, true
	}
	id, ok = decodeUUID([]byte(cleanup.KeyOf(string(text))))
	return id, false, ok
}

func decodeUUID(text []byte) (id uuid, ok bool) {
	const form = "00000000-0000-0000-0000-000000000000"
	if len(text) != len(form) {
		return id, false
	}
	nibbles := 0
	for i, c := range text {
		var n byte
		switch {
		case c == '-' && form[i] == '-':
			continue
		case form[i] == '-':
			return id, false
		case '0' <= c && c <= '9':
			n = c - '0'
		case 'a' <= c && c <= 'f':
			n = c - 'a' + 10
		default:
			return id, false
		}
		id[nibbles/2] = id[nibbles/2]<<4 | n
		nibbles++
	}
	return id, true
}

func (id uuid) String() string {
	text := make([]byte, 0, 36)
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, part)
	}
	return string(text)
}

// owner is what was read of an instance that has rows of pci_devices.
type owner struct {
	node     int32  // index of the node that all its rows are on
	requests uint32 // the sum of the CRC-32 of its rows' request ids
	rows     uint16
	state    uint8 // bits
}

// Bits of an owner's state. The rows of an owner are legitimate if it has seenInstance and
// seenExtra alone.
const (
	seenInstance uint8 = 1 << iota // it is on the node, and Nova does not change it
	seenExtra                      // it requests the devices that it has, and has no migration_context
	doubted                        // something else was read of it: its rows must be judged
)

// mostOwners bounds the memory for owners. With more of them, the tables are read again for each
// further range of uuids.
const mostOwners = 1 << 18

// owners are the instances with uuids of one range that have rows of pci_devices. An instance
// costs a place in a map, and a row nothing.
type owners struct {
	most        int
	first, last uint64 // the range, by the first 8 bytes of the uuid
	all         map[uuid]owner
}

func newOwners(most int) *owners {
	return &owners{most: most, last: math.MaxUint64, all: map[uuid]owner{}}
}

// has returns whether a uuid is in the range.
func (o *owners) has(id uuid) bool {
	k := binary.BigEndian.Uint64(id[:])
	return o.first <= k && k <= o.last
}

// add adds a row of an instance that is on a node, with the CRC-32 of its request's id. If there are too many instances, the upper half
// of the range is left for later.
func (o *owners) add(id uuid, node int32, request uint32) {
	if !o.has(id) {
		return
	}
	i, known := o.all[id]
	switch {
	case !known:
		i.node = node
	case i.node != node || i.rows == math.MaxUint16:
		i.state |= doubted
	}
	if i.rows < math.MaxUint16 {
		i.rows++
		i.requests += request
	}
	o.all[id] = i
	for len(o.all) > o.most && o.first < o.last {
		o.last = o.first + (o.last-o.first)/2
		maps.DeleteFunc(o.all, func(id uuid, _ owner) bool { return !o.has(id) })
	}
}

// doubt has the rows of an instance judged. An instance without rows does not matter.
func (o *owners) doubt(id uuid) {
	if i, known := o.all[id]; known {
		i.state |= doubted
		o.all[id] = i
	}
}

// see notes that a record of an instance was read, which must be the only one.
func (o *owners) see(id uuid, i owner, record uint8) {
	if i.state&record != 0 {
		record = doubted
	}
	i.state |= record
	o.all[id] = i
}

// settled returns whether the rows of an instance are legitimate.
func (i owner) settled() bool {
	return i.state == seenInstance|seenExtra
}

// next goes on to the range of the uuids that were left for later. It returns false if there are
// none.
func (o *owners) next() bool {
	if o.last == math.MaxUint64 {
		return false
	}
	o.first, o.last = o.last+1, math.MaxUint64
	clear(o.all)
	return true
}
