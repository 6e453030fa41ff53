package pci

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// Inspection contains values that Scan does not read because they are slow to read: they are only
// needed for the few functions that are for guests.
type Inspection struct {
	// Answers is No if the configuration space reads as all ones, as that of a card does which has
	// fallen off the bus. It is Unknown if the kernel does not show it.
	Answers host.Bool
	// Resets reports whether the kernel can reset this function alone, where it does not show the
	// methods.
	Resets bool
	// BARs are the memory regions that the function requests. They are nil if the kernel does not
	// show them.
	BARs   []BAR
	Errors Errors
}

// BAR is a memory region of a function.
type BAR struct {
	Number int    `json:"number"`     // 0 to 5
	Size   uint64 `json:"size_bytes"` // 0 if the kernel does not show it
	// its addresses have 64 bits: it may be placed above 4 GiB
	Wide bool `json:"wide"`
	// reads have no side effects, as the function declares
	Prefetchable bool `json:"prefetchable"`
	Unplaced     bool `json:"unplaced"` // the host has assigned no address
}

// Inspect reads an Inspection of each device (Linux, Documentation/ABI/testing/sysfs-bus-pci and
// Documentation/PCI/sysfs-pci.rst), and warnings. A value that the kernel does not show is none.
func Inspect(root host.Root, devices []Device) (map[Address]Inspection, []string) {
	inspected, warnings := revisit(root, devices, (*reader).inspect)
	return inspected, slices.Concat(warnings...)
}

func (r *reader) inspect() (i Inspection) {
	// The standard header, which all users may read. In that of a virtual function, the ids
	// read as all ones, other fields do not (SR-IOV specification, 3.4.1).
	header, err := r.dir.ReadHead("config", make([]byte, 64))
	if _, unread := known(r, "config", &header, err); !unread && len(header) > 0 {
		i.Answers = host.BoolOf(bytes.Count(header, []byte{0xff}) < len(header))
	}
	if r.d.ResetMethods == nil {
		i.Resets, err = r.dir.Exists("reset")
		known(r, "reset", &i.Resets, err)
	}
	if _, unread := file(r, resource, &i.BARs, ParseResource); !unread && i.BARs != nil {
		i.BARs = append(i.BARs, givenUp(header, i.BARs)...)
	}
	i.Errors = r.readErrors()
	return i
}

// revisit reads a value of each device from files in its folder that Scan does not read. It also
// returns the warnings of each, in the order of the devices.
func revisit[T any](root host.Root, devices []Device, read func(*reader) T) (map[Address]T, [][]string) {
	warnings, values := make([][]string, len(devices)), make([]T, len(devices))
	dir, err := root.OpenDir(devicesDir)
	if err != nil {
		return map[Address]T{}, slices.Repeat([][]string{{err.Error()}}, len(devices))
	}
	defer dir.Close() //nolint:errcheck // only read from
	s := scanner{dir: dir, devices: devices}
	s.parallel(len(devices), func(r *reader, i int) {
		d := devices[i]
		d.Warnings = nil
		r.d = &d
		if folder, err := dir.EntryTo(d.Address.String(), d.link).Open(); r.enter(folder, err) {
			values[i] = read(r)
			folder.Close() //nolint:errcheck // only read from
		}
		warnings[i] = d.Warnings
	})
	found := make(map[Address]T, len(devices))
	for i, d := range devices {
		found[d.Address] = values[i]
	}
	return found, warnings
}

// Flags of a region (Linux, include/linux/ioport.h: IORESOURCE_MEM, _PREFETCH, _MEM_64
// and _UNSET).
const (
	regionMemory       = 0x200
	regionPrefetchable = 0x2000
	regionWide         = 0x100000
	regionUnset        = 0x20000000
)

// regions is the number of BARs of a function that is no bridge: the first lines of resource.
const regions = 6

// givenUp returns the memory regions for which Linux has found no addresses and which it then shows
// like regions that do not exist (drivers/pci/setup-bus.c, reset_resource; seen with Linux 6.1).
// Their registers still contain the firmware's address or the bits of their type. It cannot find a
// region below 4 GiB that is not prefetchable and has no address: its register is 0.
func givenUp(header []byte, shown []BAR) (bars []BAR) {
	const headerType, firstRegister = 0x0e, 0x10 // include/uapi/linux/pci_regs.h
	if len(header) < firstRegister+4*regions || header[headerType]&0x7f != 0 {
		return nil
	}
	for n := 0; n < regions; n++ {
		register := binary.LittleEndian.Uint32(header[firstRegister+4*n:])
		io, wide := register&1 != 0, register&7 == 4
		if register != 0 && !io && !slices.ContainsFunc(shown, func(b BAR) bool { return b.Number == n }) {
			bars = append(bars, BAR{Number: n, Wide: wide, Prefetchable: register&8 != 0, Unplaced: true})
		}
		if wide {
			n++ // the upper half of the address
		}
	}
	return bars
}

// ParseResource parses a function's memory regions from the sysfs file resource: a line for each
// region with its first address, its last address and its flags.
func ParseResource(text string) ([]BAR, error) {
	bars := []BAR{}
	number := 0
	for line := range strings.Lines(text) {
		if number == regions {
			break
		}
		fields := strings.Fields(line)
		var n [3]uint64
		var errs []error
		for i := range min(len(fields), len(n)) {
			var err error
			n[i], err = strconv.ParseUint(strings.TrimPrefix(fields[i], "0x"), 16, 64)
			errs = append(errs, err)
		}
		first, last, flags := n[0], n[1], n[2]
		if len(fields) != len(n) || errors.Join(errs...) != nil || last < first || last-first == math.MaxUint64 {
			return nil, fmt.Errorf("not a region: %q", strings.TrimSpace(line))
		}
		if flags&regionMemory != 0 && last > first {
			bars = append(bars, BAR{
				Number: number, Size: last - first + 1,
				Wide: flags&regionWide != 0, Prefetchable: flags&regionPrefetchable != 0, Unplaced: flags&regionUnset != 0,
			})
		}
		number++
	}
	return bars, nil
}
