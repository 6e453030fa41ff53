package host

import (
	"errors"
	"fmt"
)

// ErrName means that a text is not the name of a host.
var ErrName = WithHint(errors.New("is not the name of a host"),
	"a hostname, or the option host of Nova, has letters, digits, dots, dashes, underscores and colons, up to 253, and does not begin with a dash")

// Name is a hostname, or the name of a compute service in Nova: "a hostname, FQDN or IP address"
// (nova/conf/netconf.py, host). It cannot contain anything else, because names from documents of nodes
// end in inventories, paths and command lines, which root of one node must not control.
type Name string

var name = LazyRegexp(`^[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}$`)

// ParseName returns the name of a host.
//
// Errors: ErrName.
func ParseName(text string) (Name, error) {
	if !name().MatchString(text) {
		return "", fmt.Errorf("%.60q %w", text, ErrName)
	}
	return Name(text), nil
}

// UnmarshalText sets the name; an empty text is no name.
//
// Errors: ErrName.
func (n *Name) UnmarshalText(text []byte) (err error) {
	*n = ""
	if len(text) > 0 {
		*n, err = ParseName(string(text))
	}
	return err
}

// ErrMachineID means that a text is not the id of a machine.
var ErrMachineID = errors.New("is not the id of a machine, 32 hexadecimal digits in lower case")

// MachineID is the id of a machine: 32 hexadecimal digits in lower case (machine-id(5)).
type MachineID string

var machineID = LazyRegexp(`^[0-9a-f]{32}$`)

// ParseMachineID returns the id of a machine.
//
// Errors: ErrMachineID.
func ParseMachineID(text string) (MachineID, error) {
	if !machineID().MatchString(text) {
		return "", fmt.Errorf("%.60q %w", text, ErrMachineID)
	}
	return MachineID(text), nil
}

// UnmarshalText sets the id.
//
// Errors: ErrMachineID.
func (m *MachineID) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMachineID(string(text))
	return err
}
