package probe

import (
	"fmt"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// ID identifies a product, as an alias of Nova does.
type ID struct {
	Vendor, Product pci.ID
}

// ParseID parses a product as "10de:11b4".
func ParseID(s string) (ID, error) {
	vendor, product, _ := strings.Cut(s, ":")
	v, err := pci.ParseID(vendor)
	if err == nil {
		var p pci.ID
		if p, err = pci.ParseID(product); err == nil {
			return ID{v, p}, nil
		}
	}
	return ID{}, fmt.Errorf("not VENDOR:PRODUCT: %q", s)
}

func (id ID) String() string {
	return id.Vendor.String() + ":" + id.Product.String()
}

// MarshalText returns the product as String does, so that it can be the key of a JSON object.
func (id ID) MarshalText() ([]byte, error) {
	return []byte(id.String()), nil
}

// UnmarshalText accepts what ParseID accepts.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

// Report is what a guest printed.
type Report struct {
	Devices []Device // all PCI functions but bridges
	Unread  bool     // the guest has no /sys, so that nothing is known of its devices
}

// Device is a PCI function of a guest.
type Device struct {
	Address  pci.Address
	ID       ID
	Class    *pci.Class // nil in reports of earlier commits
	Assigned bool       // all memory regions have addresses; false too if Unread
	Unread   bool       // the guest's kernel does not show the regions
}

// unseen matches what a terminal does not show: escape sequences (ECMA-48, sections 5.3, 5.4 and
// 8.3.89) and control characters other than line feeds.
var unseen = host.LazyRegexp(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x09\x0b-\x1f\x7f]`)

// Plain returns a console's text without escape sequences and control characters other than line
// feeds, so that it can be shown on another terminal.
func Plain(console string) string {
	return unseen().ReplaceAllString(strings.ToValidUTF8(console, ""), "")
}

// Parse returns the last complete report with nonce in a console's text. It returns false if there
// is none: kernel messages may break a line, and Nova returns only the end of a long console (Nova,
// nova/virt/libvirt/driver.py, MAX_CONSOLE_BYTES: 100 KiB).
func Parse(console, nonce string) (Report, bool) {
	text, mark := Plain(console), "GPUSTACK-PROBE v1 nonce="+nonce+" "
	for {
		at := strings.LastIndex(text, mark)
		if at < 0 {
			return Report{}, false
		}
		line, _, _ := strings.Cut(text[at+len(mark):], "\n")
		if r, whole := parseLine(line); whole {
			return r, true
		}
		text = text[:at]
	}
}

// parseLine parses a report from its number of devices on. What follows END does not matter: the
// kernel may have printed it.
func parseLine(line string) (r Report, whole bool) {
	line, _, whole = strings.Cut(line, " END")
	count, functions, _ := strings.Cut(line, " ")
	if count == "devices=unread" && functions == "" {
		r.Unread = true
		return r, whole
	}
	seen := map[pci.Address]bool{}
	for word := range strings.FieldsSeq(functions) {
		d, ok := parseDevice(word)
		if !ok || seen[d.Address] {
			return r, false
		}
		seen[d.Address] = true
		r.Devices = append(r.Devices, d)
	}
	return r, whole && count == "devices="+strconv.Itoa(len(r.Devices))
}

func parseDevice(word string) (d Device, ok bool) {
	address, rest, _ := strings.Cut(word, "=")
	a, err := pci.ParseAddress(address)
	if err != nil || len(rest) < len("10de:11b4:") {
		return d, false
	}
	id, err := ParseID(rest[:len("10de:11b4")])
	if err != nil || rest[len("10de:11b4")] != ':' {
		return d, false
	}
	state, text, withClass := strings.Cut(rest[len("10de:11b4:"):], ":")
	d = Device{Address: a, ID: id, Assigned: state == "ok", Unread: state == "unread"}
	if withClass {
		class, err := pci.ParseClass(text)
		if d.Class = &class; err != nil || len(text) != len("0302") {
			return d, false
		}
	}
	return d, d.Assigned || d.Unread || state == "unassigned"
}
