package pci

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// pciIDsFiles are the paths of pci.ids on Debian and Ubuntu, on RHEL and SUSE, and pciutils'
// default. The first that exists is used.
var pciIDsFiles = []string{
	"usr/share/misc/pci.ids",
	"usr/share/hwdata/pci.ids",
	"usr/share/pci.ids",
	"usr/share/misc/pci.ids.gz",
	"usr/share/pci.ids.gz",
}

// names are the names of the ids that a machine has.
type names struct {
	vendors  map[ID]string
	products map[product]string
	classes  map[Class]string
	bases    map[uint8]string // base classes
}

type product struct{ vendor, product ID }

// wanted returns the ids of devices, with empty names.
func wanted(devices []Device) names {
	n := names{map[ID]string{}, map[product]string{}, map[Class]string{}, map[uint8]string{}}
	for i := range devices {
		d := &devices[i]
		if d.VendorID != nil {
			n.vendors[*d.VendorID] = ""
			if d.ProductID != nil {
				n.products[product{*d.VendorID, *d.ProductID}] = ""
			}
		}
		if d.Class != nil {
			n.classes[*d.Class] = ""
			n.bases[d.Class.base()] = ""
		}
	}
	return n
}

// readNames returns the names for devices: from file, if given, on the machine where the program
// runs, otherwise from the first pci.ids below the root. Without one the names are empty.
func readNames(root host.Root, file string, devices []Device) (names, error) {
	n := wanted(devices)
	if file != "" {
		f, err := os.Open(file)
		if err == nil {
			err = errors.Join(n.findIn(f, path.Ext(file) == ".gz"), f.Close())
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", file, host.Cause(err))
		}
		return n, err
	}
	for _, file := range pciIDsFiles {
		f, err := root.Open(file)
		if host.IsAbsent(err) {
			continue
		}
		if err == nil {
			err = errors.Join(n.findIn(f, path.Ext(file) == ".gz"), f.Close())
		}
		if err != nil {
			return n, host.OfFile(file, err)
		}
		// A snapshot gets only the lines that were used, not a million bytes.
		root.Record(strings.TrimSuffix(file, ".gz"), n.text())
		return n, nil
	}
	return n, nil
}

func (n *names) findIn(r io.Reader, zipped bool) error {
	if zipped {
		z, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		r = z
	}
	return n.find(r)
}

// find reads a pci.ids file once (its grammar is in its first lines) and keeps the names of the ids
// that are wanted. Lines that do not match the grammar are skipped, as lspci does: a missing name
// is no reason to fail.
func (n *names) find(r io.Reader) error {
	s := section{names: n}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, bufio.MaxScanTokenSize), bufio.MaxScanTokenSize) // a megabyte in few calls
	for lines.Scan() {
		s.line(lines.Bytes())
	}
	return lines.Err()
}

// section is the part of a pci.ids file that a line is in.
type section struct {
	names *names
	kind  sectionKind

	vendor ID
	base   uint8
}

type sectionKind int

const (
	unwanted sectionKind = iota
	ofVendor
	ofClass
)

func (s *section) line(line []byte) {
	switch {
	case len(line) < 4 || line[0] == '#':
	case line[0] == '\t' && line[1] == '\t': // subsystem, programming interface
	case line[0] == '\t' && s.kind == ofVendor:
		if id, name, ok := entry(line[1:], 4); ok {
			keep(s.names.products, product{s.vendor, ID(id)}, name)
		}
	case line[0] == '\t' && s.kind == ofClass:
		if sub, name, ok := entry(line[1:], 2); ok {
			keep(s.names.classes, Class(uint16(s.base)<<8|sub), name)
		}
	case line[0] == '\t':
	case line[0] == 'C' && line[1] == ' ':
		s.kind = unwanted
		if id, name, ok := entry(line[2:], 2); ok {
			s.base = uint8(id)
			if keep(s.names.bases, s.base, name) {
				s.kind = ofClass
			}
		}
	default:
		s.kind = unwanted
		if id, name, ok := entry(line, 4); ok {
			s.vendor = ID(id)
			if keep(s.names.vendors, s.vendor, name) {
				s.kind = ofVendor
			}
		}
	}
}

// keep stores a name if it is wanted.
func keep[K comparable](names map[K]string, key K, name []byte) bool {
	_, want := names[key]
	if want {
		names[key] = string(bytes.TrimSpace(name))
	}
	return want
}

// entry splits "10de  NVIDIA Corporation" into an id with the given number of lower-case digits,
// and a name.
func entry(line []byte, digits int) (id uint16, name []byte, ok bool) {
	if len(line) < digits+2 || line[digits] != ' ' {
		return 0, nil, false
	}
	n, err := strconv.ParseUint(string(line[:digits]), 16, 16)
	if err != nil || bytes.ContainsAny(line[:digits], "ABCDEF") {
		return 0, nil, false
	}
	return uint16(n), line[digits:], true
}

// text returns the names that were found in the format of pci.ids.
func (n *names) text() []byte {
	var b bytes.Buffer
	for _, vendor := range slices.Sorted(maps.Keys(n.vendors)) {
		if n.vendors[vendor] == "" {
			continue
		}
		fmt.Fprintf(&b, "%s  %s\n", vendor, n.vendors[vendor])
		var lines []string
		for p, name := range n.products {
			if p.vendor == vendor && name != "" {
				lines = append(lines, fmt.Sprintf("\t%s  %s\n", p.product, name))
			}
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
	}
	for _, base := range slices.Sorted(maps.Keys(n.bases)) {
		if n.bases[base] == "" {
			continue
		}
		fmt.Fprintf(&b, "C %02x  %s\n", base, n.bases[base])
		for _, class := range slices.Sorted(maps.Keys(n.classes)) {
			if class.base() == base && n.classes[class] != "" {
				fmt.Fprintf(&b, "\t%02x  %s\n", uint8(class), n.classes[class])
			}
		}
	}
	return b.Bytes()
}

// apply sets the names of one function, from the list first and from the built-in tables second.
func (n *names) apply(d *Device) {
	if d.VendorID != nil {
		d.Vendor = firstName(n.vendors[*d.VendorID], ownVendors[*d.VendorID])
		if d.ProductID != nil {
			p := product{*d.VendorID, *d.ProductID}
			d.Product = firstName(n.products[p], ownProducts[p], AliasName(p.vendor, p.product, ""))
		}
	}
	if d.Class != nil {
		d.ClassName = firstName(n.classes[*d.Class], ownClasses[*d.Class], n.bases[d.Class.base()])
	}
	if d.IsGPU() && !d.IsManagementConsole() && d.VendorID != nil && d.ProductID != nil {
		if name := AliasName(*d.VendorID, *d.ProductID, host.Value(d.Product)); name != "" {
			d.AliasHint = new(Alias(name))
		}
	}
}

func firstName(names ...string) *string {
	if name := cmp.Or(names...); name != "" {
		return &name
	}
	return nil
}
