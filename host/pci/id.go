package pci

import (
	"fmt"
	"strconv"
	"strings"
)

// ID is a vendor, product or subsystem id. It is written as four lower-case hexadecimal digits,
// the form that Nova compares.
type ID uint16

// NVIDIA is NVIDIA's vendor id.
const NVIDIA ID = 0x10de

// ParseID parses four hexadecimal digits of either case, with or without "0x".
func ParseID(s string) (ID, error) {
	digits := strings.TrimPrefix(s, "0x")
	if len(digits) != 4 || !isHex(digits) {
		return 0, fmt.Errorf("not an id of four hexadecimal digits: %q", s)
	}
	n, err := strconv.ParseUint(digits, 16, 16)
	return ID(n), err
}

func (id ID) String() string {
	return string(appendHex(make([]byte, 0, 4), uint16(id)))
}

// MarshalText returns the id as String does.
func (id ID) MarshalText() ([]byte, error) {
	return appendHex(nil, uint16(id)), nil
}

// UnmarshalText accepts what ParseID accepts.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}
