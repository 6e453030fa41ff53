package pci

import (
	"fmt"
	"strconv"
	"strings"
)

// Errors are the numbers of errors of a function's PCIe link that the kernel has counted since it
// found the function (Linux, Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats). A number
// is nil where the kernel counts none: of functions without Advanced Error Reporting, and on
// machines whose firmware handles errors. No driver is asked, so functions that are bound to
// vfio-pci have them too.
type Errors struct {
	Correctable, NonFatal, Fatal *uint64
}

// readErrors reads the numbers of errors of a function.
func (r *reader) readErrors() Errors {
	read := func(name, total string) *uint64 {
		n, _ := file(r, name, new(uint64), func(text string) (uint64, error) { return totalOf(text, total) })
		return n
	}
	return Errors{
		Correctable: read("aer_dev_correctable", "TOTAL_ERR_COR"),
		NonFatal:    read("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL"),
		Fatal:       read("aer_dev_fatal", "TOTAL_ERR_FATAL"),
	}
}

// totalOf returns the number in the line of a total. Other lines are of single errors.
func totalOf(text, total string) (uint64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, total+" "); ok {
			n, err := strconv.ParseUint(strings.TrimSuffix(value, "\n"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s is %q, which is not a number", total, strings.TrimSpace(value))
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("has no %s", total)
}
