package iommu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// tablesDir contains the firmware's ACPI tables, which only root can read (Linux,
// Documentation/ABI/testing/sysfs-firmware-acpi).
const tablesDir = "sys/firmware/acpi/tables"

// dmar is the table that describes the IOMMU of Intel platforms. AMD platforms have IVRS, ARM IORT,
// virtual machines VIOT (Linux, Documentation/arch/x86/iommu.rst and
// Documentation/arch/arm64/acpi_object_usage.rst).
const dmar = "DMAR"

var tables = []string{dmar, "IVRS", iort, "VIOT"}

// iort describes interrupts and SMMUs of ARM platforms: one that is switched off is not in it.
const iort = "IORT"

// Firmware is what the firmware's tables show of an IOMMU.
type Firmware struct {
	Tables []string // names of the tables that describe an IOMMU; none: the firmware offers none
	// IORTErr is the error of reading IORT, which may describe one then.
	IORTErr error
	// Remaps is whether the platform can remap interrupts; Unknown unless a DMAR table was read.
	// RemapsErr is the error of reading it.
	Remaps    host.Bool
	RemapsErr error
}

// DMARFile is the table that shows whether an Intel platform can remap interrupts.
const DMARFile = "/" + tablesDir + "/" + dmar

// TablesDir is the directory of the firmware's ACPI tables.
const TablesDir = "/" + tablesDir

// ReadFirmware reads the names of the firmware's tables, and DMAR. It returns an error if the
// directory cannot be read.
func ReadFirmware(root host.Root) (Firmware, error) {
	names, err := root.ReadDir(tablesDir)
	if err != nil {
		return Firmware{}, err
	}
	f := Firmware{Tables: host.Filter(names, func(name string) bool { return slices.Contains(tables, name) })}
	if i := slices.Index(f.Tables, iort); i >= 0 {
		var smmu bool
		if smmu, f.IORTErr = hasSMMU(root); !smmu {
			f.Tables = slices.Delete(f.Tables, i, i+1)
		}
	}
	if slices.Contains(f.Tables, dmar) {
		f.Remaps, f.RemapsErr = readFlags(root)
	}
	return f, nil
}

var errNoDMAR = errors.New("not a DMAR table")

// errNoIORT is the error of a table that is malformed.
var errNoIORT = errors.New("not an IORT table")

// IORTFile is the table that shows whether an ARM platform has an SMMU.
const IORTFile = "/" + tablesDir + "/" + iort

// hasSMMU reports whether IORT has a node of an SMMU. Its header has the length at 4, and after 36
// bytes the number of nodes and the offset of the first; a node begins with its type and length
// (Arm, DEN0049, IO Remapping Table; Linux, include/acpi/actbl2.h, ACPI_IORT_NODE_SMMU and _V3).
func hasSMMU(root host.Root) (bool, error) {
	const header, smmu, smmu3 = 48, 3, 4
	data, err := root.ReadFile(IORTFile)
	if err != nil {
		return false, err
	}
	if len(data) < header || string(data[:4]) != iort {
		return false, errNoIORT
	}
	at := int(binary.LittleEndian.Uint32(data[40:]))
	for range binary.LittleEndian.Uint32(data[36:]) {
		if at < header || at+3 > len(data) {
			return false, errNoIORT
		}
		if kind := data[at]; kind == smmu || kind == smmu3 {
			return true, nil
		}
		at += max(1, int(binary.LittleEndian.Uint16(data[at+1:])))
	}
	return false, nil
}

// readFlags reads INTR_REMAP, the first of the DMAR table's flags, which follow the header of 36
// bytes and the address width (Intel, Virtualization Technology for Directed I/O, DMA Remapping
// Reporting Structure; Linux, include/acpi/actbl1.h, ACPI_DMAR_INTR_REMAP).
func readFlags(root host.Root) (host.Bool, error) {
	const flagsAt, length = 37, 48
	data, err := root.ReadHead(DMARFile, length)
	if err != nil {
		return host.Unknown, err
	}
	if len(data) < length || string(data[:4]) != dmar || binary.LittleEndian.Uint32(data[4:]) < length {
		return host.Unknown, errNoDMAR
	}
	return host.BoolOf(data[flagsAt]&1 != 0), nil
}

// Unit is an IOMMU that the kernel uses: dmar0, ivhd0, smmu3.0x….
type Unit struct {
	Name string
	// Remaps is whether it can remap interrupts.
	Remaps host.Bool
}

// ReadUnits returns the IOMMUs that the kernel uses, ordered by name (Linux,
// Documentation/ABI/testing/sysfs-class-iommu). Warnings name the files that cannot be read or
// parsed.
func ReadUnits(root host.Root) (units []Unit, warnings []string, err error) {
	names, err := root.ReadDir(unitsDir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		u := Unit{Name: name}
		if u.Remaps, err = readCapabilities(root, name); err != nil {
			warnings = append(warnings, host.OfFile(capabilities(name), err).Error())
		}
		units = append(units, u)
	}
	return units, warnings, nil
}

func capabilities(unit string) string {
	return path.Join(unitsDir, unit, "intel-iommu/ecap")
}

// readCapabilities reads Interrupt Remapping support, bit 3 of the extended capabilities of an
// Intel unit (Virtualization Technology for Directed I/O, Extended Capability Register), which are
// in hexadecimal (Linux, Documentation/ABI/testing/sysfs-class-iommu-intel-iommu).
func readCapabilities(root host.Root, unit string) (host.Bool, error) {
	data, err := root.ReadHead(capabilities(unit), 64)
	if host.IsAbsent(err) {
		return host.Unknown, nil
	}
	if err != nil {
		return host.Unknown, err
	}
	text := strings.TrimSpace(string(data))
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return host.Unknown, fmt.Errorf("not a hexadecimal number: %q", text)
	}
	return host.BoolOf(n&(1<<3) != 0), nil
}

// ReadTypes returns the number of groups of each type: "identity" if the host's devices access
// memory without translation, otherwise "DMA" or "DMA-FQ" (Linux,
// Documentation/ABI/testing/sysfs-kernel-iommu_groups). Old kernels show no types. Warnings name
// the groups whose type cannot be read.
func ReadTypes(root host.Root) (types map[string]int, warnings []string, err error) {
	groups, err := root.ReadDir(groupsDir)
	if err != nil {
		return nil, nil, err
	}
	dir, err := root.OpenDir(groupsDir)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close() //nolint:errcheck // only read from
	types = map[string]int{}
	buf := make([]byte, host.MaxAttribute+1)
	for _, group := range groups {
		name, err := readType(dir, group, buf)
		switch {
		case err != nil && !host.IsAbsent(err):
			warnings = append(warnings, host.OfFile(path.Join(groupsDir, group, "type"), err).Error())
		case err == nil:
			types[name]++
		}
	}
	return types, warnings, nil
}

// readOf reads an attribute of a group in the folder of groups.
func readOf(groups *host.Dir, group, name string, buf []byte) ([]byte, error) {
	entry, err := groups.Entry(group)
	if err != nil {
		return nil, err
	}
	return entry.ReadAttribute(name, buf)
}

func readType(dir *host.Dir, group string, buf []byte) (string, error) {
	data, err := readOf(dir, group, "type", buf)
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(data))
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("not a group type: %q", name)
	}
	return name, nil
}
