package pci

import (
	"fmt"
	"strconv"
	"strings"
)

// Class is the base class and subclass of a function: 0x0300 is a VGA controller. It does not
// contain the programming interface, a third byte.
type Class uint16

// Classes that the program distinguishes (Linux, include/linux/pci_ids.h).
const (
	Controller3D          Class = 0x0302
	HostBridge            Class = 0x0600
	PCIBridge             Class = 0x0604
	CardBusBridge         Class = 0x0607
	SemiTransparentBridge Class = 0x0609 // not in pci_ids.h; PCI Code and ID Assignment
	OtherBridge           Class = 0x0680 // NVSwitches have it, and are endpoints
)

// ParseClass parses a class as sysfs shows it, with the programming interface ("0x030000"), or as
// people write it: four or six digits.
func ParseClass(s string) (Class, error) {
	digits := strings.TrimPrefix(s, "0x")
	if len(digits) != 4 && len(digits) != 6 || !isHex(digits) {
		return 0, fmt.Errorf("not a PCI class: %q", s)
	}
	n, err := strconv.ParseUint(digits[:4], 16, 16)
	return Class(n), err
}

func (c Class) String() string {
	return ID(c).String()
}

func (c Class) base() uint8 {
	return uint8(c >> 8)
}

// IsDisplay reports whether the class is that of display controllers.
func (c Class) IsDisplay() bool {
	return c.base() == 0x03
}

// IsStorage reports whether the class is that of disk controllers.
func (c Class) IsStorage() bool {
	return c.base() == 0x01
}

// IsNetwork reports whether the class is that of network controllers, InfiniBand's among them.
func (c Class) IsNetwork() bool {
	return c.base() == 0x02
}

// IsBridge reports whether functions of the class have other functions behind them. Such a
// function has a bridge's header, is never assigned to a guest, and does not prevent the
// assignment of its group (Linux, vfio_dev_viable in drivers/vfio/group.c and driver_managed_dma
// of pcieport). Host, ISA and other "bridges" of class 06 have a normal header and count as
// endpoints.
func (c Class) IsBridge() bool {
	return c == PCIBridge || c == CardBusBridge || c == SemiTransparentBridge
}

// MarshalText returns the class as String does.
func (c Class) MarshalText() ([]byte, error) {
	return appendHex(nil, uint16(c)), nil
}

// UnmarshalText accepts what ParseClass accepts.
func (c *Class) UnmarshalText(text []byte) (err error) {
	*c, err = ParseClass(string(text))
	return err
}
