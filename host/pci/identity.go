package pci

import (
	"errors"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// Identity is what tells a function from others: the address, the ids and the bridges above it. A
// record has it of each function, so that a boot touches no other one.
type Identity struct {
	Address   Address `json:"address"`
	VendorID  *ID     `json:"vendor_id"`
	ProductID *ID     `json:"product_id"`
	// The ids of the board are nil if the function shows none.
	SubsystemVendorID *ID       `json:"subsystem_vendor_id"`
	SubsystemID       *ID       `json:"subsystem_id"`
	Path              []Address `json:"path"` // the bridges above, outermost first
}

// Difference is how a function differs from a recorded one.
type Difference string

// The differences, the first that applies. Functions that differ in board or slot only are
// identical for a driver that binds them by their ids.
const (
	NoDifference Difference = ""
	Missing      Difference = "missing" // no function is at the address
	IDsUnread    Difference = "unread"  // vendor or product id cannot be read
	OtherProduct Difference = "product" // another vendor or product id
	OtherBoard   Difference = "board"   // other subsystem ids
	OtherSlot    Difference = "slot"    // below other bridges
)

// Compare returns how the function that is now at the recorded address, or nil for none, differs
// from the recorded one. Every record asks it. Subsystem ids that one side does not have are not
// compared.
func (recorded Identity) Compare(now *Identity) Difference {
	switch {
	case now == nil:
		return Missing
	case now.VendorID == nil || now.ProductID == nil:
		return IDsUnread
	case differ(recorded.VendorID, now.VendorID), differ(recorded.ProductID, now.ProductID):
		return OtherProduct
	case !recorded.SameBoard(*now):
		return OtherBoard
	case !slices.Equal(recorded.Path, now.Path):
		return OtherSlot
	}
	return NoDifference
}

// SameBoard reports whether the subsystem ids of two functions do not differ.
func (recorded Identity) SameBoard(now Identity) bool {
	return !differ(recorded.SubsystemVendorID, now.SubsystemVendorID) && !differ(recorded.SubsystemID, now.SubsystemID)
}

// differ reports whether two ids are both known and not the same.
func differ(a, b *ID) bool {
	return a != nil && b != nil && *a != *b
}

// Identity returns the identity of the function at an address, or nil if there is none.
func (ds Devices) Identity(a Address) *Identity {
	d := ds.At(a)
	if d == nil {
		return nil
	}
	return &Identity{Address: a, VendorID: d.VendorID, ProductID: d.ProductID, SubsystemVendorID: d.SubsystemVendorID, SubsystemID: d.SubsystemID,
		Path: ds.Path(d)}
}

// ReadIdentity reads the identity of the function at an address without a scan, for callers that
// wait for one function. It returns nil if there is none. An id that the function does not show is
// nil.
func ReadIdentity(root host.Root, a Address) (*Identity, error) {
	dir := path.Join("/sys/bus/pci/devices", a.String())
	if ok, err := root.Exists(dir); err != nil || !ok {
		return nil, err
	}
	id := Identity{Address: a, Path: []Address{}}
	var errs []error
	for file, into := range map[string]**ID{
		vendor: &id.VendorID, device: &id.ProductID, subsystemVendor: &id.SubsystemVendorID, subsystemDevice: &id.SubsystemID,
	} {
		data, err := root.ReadFile(path.Join(dir, file))
		if host.IsAbsent(err) {
			continue
		}
		var value ID
		if err == nil {
			value, err = ParseID(strings.TrimSpace(string(data)))
		}
		if err != nil {
			errs = append(errs, host.OfFile(path.Join(dir, file), err))
			continue
		}
		*into = &value
	}
	at, err := root.Real(dir)
	if err != nil {
		errs = append(errs, err)
	}
	// A root bus, and the domain of a VMD controller, is a folder of another form.
	for at = path.Dir(at); ; at = path.Dir(at) {
		bridge, err := ParseAddress(path.Base(at))
		if err != nil {
			break
		}
		id.Path = append(id.Path, bridge)
	}
	slices.Reverse(id.Path)
	return &id, errors.Join(errs...)
}
