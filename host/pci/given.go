package pci

import (
	"strings"

	"gpustack/host"
)

// ParseGiven parses an address as operators write and paste it: as ParseAddress does, and in the
// forms of libvirt (pci_0000_84_00_0: virsh nodedev-list) and lshw (pci@0000:84:00.0).
func ParseGiven(s string) (Address, error) {
	written := strings.TrimPrefix(strings.TrimSpace(s), "pci@")
	if parts := strings.Split(written, "_"); len(parts) == 5 && parts[0] == "pci" {
		written = strings.Join(parts[1:4], ":") + "." + parts[4]
	}
	if a, err := ParseAddress(written); err == nil {
		return a, nil
	}
	return ParseAddress(s) // whose error names what was given
}

// Like returns the functions that an operator may mean by a text that is neither an address nor the
// ids of a product: a part of the address such as "84:00", the id of a vendor or product, or a part
// of the product's name.
func (ds Devices) Like(text string) (found Devices) {
	word := squeezed(text)
	if len(word) < 2 {
		return nil
	}
	for i := range ds {
		d := &ds[i]
		address := d.Address.String()
		_, short, _ := strings.Cut(address, ":")
		part := strings.ToLower(strings.TrimSpace(text))
		switch {
		case strings.Contains(part, ":") && (strings.HasPrefix(address, part) || strings.HasPrefix(short, part)),
			len(part) == 2 && strings.HasPrefix(short, part+":"),
			d.VendorID != nil && d.ProductID != nil && (part == d.VendorID.String()+":"+d.ProductID.String() || part == d.ProductID.String()),
			d.VendorID != nil && part == d.VendorID.String() && d.IsGPU(),
			d.AliasHint != nil && squeezed(string(*d.AliasHint)) == word,
			len(word) > 2 && d.Product != nil && strings.Contains(squeezed(*d.Product), word):
			found = append(found, *d)
		}
	}
	return found
}

// squeezed returns a name in lower case without what separates its words.
func squeezed(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" -_.", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// Meant returns the function or product that an operator may mean by a selector that selects none:
// the same product of the vendor that makes it, or the same slot in another domain or with another
// function. It returns "" if there is none.
func (ds Devices) Meant(s Selector) string {
	for i := range ds {
		d := &ds[i]
		switch a, byAddress := s.Address(); {
		case d.IsBridge():
		case byAddress:
			if d.Address.Bus == a.Bus && d.Address.Slot == a.Slot && (d.Address.Domain == a.Domain || d.Address.Function == a.Function) {
				return d.Address.String()
			}
		case d.VendorID != nil && d.ProductID != nil && (*d.ProductID == s.product || *d.ProductID == s.vendor && *d.VendorID == s.product):
			return d.VendorID.String() + ":" + d.ProductID.String()
		}
	}
	return ""
}

// Listing is a command that lists what a selector may name.
type Listing struct {
	command host.Command
	what    string // "all functions"
	gpus    bool   // whether a GPU is meant
}

// ListFunctions returns the command that lists all functions.
func ListFunctions() Listing {
	return Listing{host.NewCommand("host scan").Flag("all"), "all functions", true}
}

// ListAdapters returns the command that lists RDMA adapters.
func ListAdapters() Listing {
	return Listing{host.NewCommand("rdma scan"), "the adapters", false}
}

// Hint returns the text that names the command.
func (l Listing) Hint() host.Text {
	return host.Textf("'%s' lists %s", l.command, l.what)
}

// NotFound returns err, which says that the machine has no function of a selector, with a hint:
// what may be meant, and the command that lists the functions.
func (ds Devices) NotFound(err error, s Selector, list Listing) error {
	hint := list.Hint()
	if meant := ds.Meant(s); meant != "" {
		hint = host.Textf("did you mean %s? %s", meant, hint)
	} else if gpus := ds.Defaults(); list.gpus && len(gpus) > 0 && len(gpus) <= 8 { // more are too many for a line
		hint = host.Textf("the GPUs are %s; %s", Joined(gpus, ", "), hint)
	}
	return host.WithHint(err, hint)
}

// SelectorOf returns the selector of one function.
func SelectorOf(a Address) Selector { return Selector{address: a, byAddress: true} }
