package modprobe

import (
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// id is what drivers read of an element of ids= (Linux, drivers/vfio/pci/vfio_pci.c and
// drivers/pci/pci-stub.c: sscanf of "%x:%x:%x:%x:%x:%x"). They ignore other elements, and what
// follows it.
var id = host.LazyRegexp(`^(0[xX])?[0-9a-fA-F]+(:(0[xX])?[0-9a-fA-F]+){1,5}`)

// AddIDs returns ids with those elements of comma-separated lists that are not among them, in the
// order of the lists.
func AddIDs(ids []string, lists ...string) []string {
	for element := range strings.SplitSeq(strings.Join(lists, ","), ",") {
		if found := id().FindString(element); found != "" && !slices.Contains(ids, found) {
			ids = append(ids, found)
		}
	}
	return ids
}

// numbers returns what drivers read of an element of ids=: vendor, product, their counterparts of the
// subsystem, class, and the mask of its bits that count. There are two at least, or none.
func numbers(element string) (read []uint32) {
	found := strings.ToLower(id().FindString(element))
	if found == "" {
		return nil
	}
	for number := range strings.SplitSeq(found, ":") {
		n, _ := strconv.ParseUint(strings.TrimPrefix(number, "0x"), 16, 32) // of too large a number the largest
		read = append(read, uint32(n))
	}
	return read
}

// matches compares a function with an element of ids= as the kernel does (Linux, drivers/pci/pci.h,
// pci_match_one_device). Of a function, what is unknown beside its vendor and product matches.
func matches(element string, d *pci.Device) bool {
	read := numbers(element)
	if len(read) == 0 || d.VendorID == nil || d.ProductID == nil {
		return false
	}
	const anyID = 0xffffffff
	for i, has := range []*pci.ID{d.VendorID, d.ProductID, d.SubsystemVendorID, d.SubsystemID} {
		if i < len(read) && has != nil && read[i] != anyID && read[i] != uint32(*has) {
			return false
		}
	}
	// Without a mask the class is ignored. The lowest of its three bytes is not in Class.
	return len(read) < 6 || d.Class == nil || (read[4]>>8^uint32(*d.Class))&(read[5]>>8) == 0
}
