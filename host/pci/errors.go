package pci

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gpustack/host"
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
//
// Errors: each file that cannot be read or is malformed; its number is nil.
func (f function) readErrors(e *Errors) (err error) {
	read := func(name, total string) *uint64 {
		data, readErr := f.dir.ReadAttribute(name, f.buf)
		if host.IsAbsent(readErr) {
			return nil
		}
		n, readErr := totalOf(data, total, readErr)
		if readErr != nil {
			err = errors.Join(err, f.fault(name, readErr))
			return nil
		}
		return &n
	}
	e.Correctable = read("aer_dev_correctable", "TOTAL_ERR_COR")
	e.NonFatal = read("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL")
	e.Fatal = read("aer_dev_fatal", "TOTAL_ERR_FATAL")
	return err
}

// totalOf returns the number in the line of a total. Other lines are of single errors.
func totalOf(data []byte, total string, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
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
