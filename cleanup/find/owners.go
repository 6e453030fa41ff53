package find

import (
	"database/sql/driver"
	"encoding/hex"
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
	digits := make([]byte, 0, 2*len(id))
	for i, c := range text {
		switch {
		case (c == '-') != (form[i] == '-'), 'A' <= c && c <= 'F':
			return id, false
		case c != '-':
			digits = append(digits, c)
		}
	}
	_, err := hex.Decode(id[:], digits)
	return id, err == nil
}

// Value returns the uuid as an argument of a statement.
func (id uuid) Value() (driver.Value, error) { return id.String(), nil }

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

// owners are the instances that have rows of pci_devices. An instance costs a place in a map, of some 50
// bytes, and a row nothing.
type owners map[uuid]owner

// add adds a row of an instance that is on a node, with the CRC-32 of its request's id.
func (o owners) add(id uuid, node int32, request uint32) {
	i, known := o[id]
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
	o[id] = i
}

// doubt has the rows of an instance judged. An instance without rows does not matter.
func (o owners) doubt(id uuid) {
	if i, known := o[id]; known {
		i.state |= doubted
		o[id] = i
	}
}

// see notes that a record of an instance was read, which must be the only one.
func (o owners) see(id uuid, i owner, record uint8) {
	if i.state&record != 0 {
		record = doubted
	}
	i.state |= record
	o[id] = i
}

// settled returns whether the rows of an instance are legitimate.
func (i owner) settled() bool {
	return i.state == seenInstance|seenExtra
}
