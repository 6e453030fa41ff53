package pci

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// Address is the address of a PCI function: domain, bus, slot and function number, as in the
// kernel's directory names ("0000:84:00.1"). Domains have 16 bits on most machines and more behind
// Intel VMD and Hyper-V.
type Address struct {
	Domain   uint32
	Bus      uint8
	Slot     uint8 // 0 to 31
	Function uint8 // 0 to 7
}

// ParseAddress parses an address in the kernel's form or as people write it: hexadecimal digits of
// either case, the domain optional if it is 0.
func ParseAddress(s string) (Address, error) {
	rest, function, ok := strings.Cut(s, ".")
	if !ok || len(function) != 1 || function[0] < '0' || function[0] > '7' {
		return Address{}, notAddress(s)
	}
	parts := strings.Split(rest, ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...)
	}
	if len(parts) != 3 || len(parts[0]) < 4 || len(parts[0]) > 8 || len(parts[1]) != 2 || len(parts[2]) != 2 {
		return Address{}, notAddress(s)
	}
	var n [3]uint64
	for i, part := range parts {
		var err error
		if n[i], err = strconv.ParseUint(part, 16, 32); err != nil {
			return Address{}, notAddress(s)
		}
	}
	if n[2] > 31 {
		return Address{}, notAddress(s)
	}
	return Address{Domain: uint32(n[0]), Bus: uint8(n[1]), Slot: uint8(n[2]), Function: function[0] - '0'}, nil
}

// LastOn returns the last function on a path of sysfs, and whether there is one.
func LastOn(place string) (Address, bool) {
	for _, element := range slices.Backward(strings.Split(place, "/")) {
		if a, err := ParseAddress(element); err == nil {
			return a, true
		}
	}
	return Address{}, false
}

// notAddress is the error for a text that is no address. It is written out only if it is printed: a
// scan parses every folder of sysfs above a function.
type notAddress string

func (e notAddress) Error() string { return fmt.Sprintf("not a PCI address: %q", string(e)) }

// String returns the address in the kernel's form (pci_setup_device in drivers/pci/probe.c:
// "%04x:%02x:%02x.%d").
func (a Address) String() string {
	return string(a.append(make([]byte, 0, 16)))
}

func (a Address) append(b []byte) []byte {
	if a.Domain > 0xffff {
		b = strconv.AppendUint(b, uint64(a.Domain), 16)
	} else {
		b = appendHex(b, uint16(a.Domain))
	}
	return append(b,
		':', hexDigits[a.Bus>>4], hexDigits[a.Bus&15],
		':', hexDigits[a.Slot>>4], hexDigits[a.Slot&15],
		'.', '0'+a.Function)
}

// Joined returns addresses with a separator between each two.
func Joined(addresses []Address, separator string) string {
	return strings.Join(host.Map(addresses, Address.String), separator)
}

// Compare orders addresses by domain, bus, slot and function.
func (a Address) Compare(b Address) int {
	return cmp.Compare(a.number(), b.number())
}

func (a Address) number() uint64 {
	return uint64(a.Domain)<<24 | uint64(a.Bus)<<16 | uint64(a.Slot)<<8 | uint64(a.Function)
}

// SameSlot reports whether both functions are in one slot, and so on one card: their addresses
// differ at most in the function number.
func (a Address) SameSlot(b Address) bool {
	return a.Card() == b.Card()
}

// Card returns the address that all functions of a card share: function 0 of the slot.
func (a Address) Card() Address {
	a.Function = 0
	return a
}

// MarshalText returns the address as String does.
func (a Address) MarshalText() ([]byte, error) {
	return a.append(nil), nil
}

// UnmarshalText accepts what ParseAddress accepts.
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAddress(string(text))
	return err
}

const hexDigits = "0123456789abcdef"

// appendHex appends four hexadecimal digits.
func appendHex(b []byte, n uint16) []byte {
	return append(b, hexDigits[n>>12], hexDigits[n>>8&15], hexDigits[n>>4&15], hexDigits[n&15])
}

func isHex(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return len(s) > 0
}
