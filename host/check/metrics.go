package check

import (
	"maps"
	"slices"

	"gpustack/host/machine"
	"gpustack/host/metrics"
	"gpustack/host/pci"
)

var (
	functionsExpected = metrics.Family{Name: "gpustack_functions_expected", Type: metrics.Gauge,
		Help: "Number of PCI functions that are recorded for guests."}
	functionsPresent = metrics.Family{Name: "gpustack_functions", Type: metrics.Gauge,
		Help:   "Number of PCI functions that are recorded for guests and present, by the driver that each is bound to.",
		Labels: []string{"driver", "product"}}
	functionMissing = metrics.Family{Name: "gpustack_function_missing", Type: metrics.Gauge,
		Help:   "Whether a recorded PCI function is not at its address, or does not answer.",
		Labels: []string{"address", "product"}}
	pcieErrors = metrics.Family{Name: "gpustack_pcie_errors_total", Type: metrics.Counter,
		Help:   "PCIe errors of a function for guests that the kernel has counted since it found the function.",
		Labels: []string{"address", "severity"}}
)

// The values of the label driver for a function without a driver, and for one whose driver cannot
// be read. An empty value would be no label (Prometheus, "Data model").
const (
	noDriver      = "none"
	unknownDriver = "unknown"
)

// Metrics returns the samples of the functions for guests of a machine that was observed by
// [machine.ObserveCheck]. What is unknown has no sample.
func Metrics(m machine.Machine) (samples []metrics.Sample) {
	v := newView(m)
	if v.phase != unseen {
		samples = append(samples, functionsExpected.Of(float64(len(v.Contract.Value.All()))))
	}
	if v.Devices.Seen() {
		samples = append(samples, v.functionSamples()...)
	}
	for _, a := range slices.SortedFunc(maps.Keys(m.Inspected), pci.Address.Compare) {
		e := m.Inspected[a].Errors
		for _, s := range []struct {
			severity string
			count    *uint64
		}{{"correctable", e.Correctable}, {"nonfatal", e.NonFatal}, {"fatal", e.Fatal}} {
			if s.count != nil {
				samples = append(samples, pcieErrors.Of(float64(*s.count), a.String(), s.severity))
			}
		}
	}
	return samples
}

// functionSamples returns the samples of each recorded function, and counts those that are present.
func (v view) functionSamples() (samples []metrics.Sample) {
	type kind struct{ driver, product string }
	count := map[kind]int{}
	var kinds []kind
	for _, f := range v.Contract.Value.All() {
		missing, known := v.isMissing(f)
		if !known {
			continue
		}
		samples = append(samples, functionMissing.OfBool(missing, f.Address.String(), f.IDs()))
		if missing {
			continue
		}
		k := kind{noDriver, f.IDs()}
		switch d := v.Devices.Value.At(f.Address); {
		case d.DriverUnread():
			k.driver = unknownDriver
		case d.Driver != nil:
			k.driver = *d.Driver
		}
		if count[k]++; count[k] == 1 {
			kinds = append(kinds, k)
		}
	}
	for _, k := range kinds {
		samples = append(samples, functionsPresent.Of(float64(count[k]), k.driver, k.product))
	}
	return samples
}

// isMissing reports whether no function of the recorded product is at its address, or it does not
// answer. known is false if that cannot be read.
func (v view) isMissing(f machine.Function) (missing, known bool) {
	if v.isLost(f.Address) {
		return true, true
	}
	switch f.Identity().Compare(v.Devices.Value.Identity(f.Address)) {
	case pci.Missing, pci.OtherProduct:
		return true, true
	case pci.IDsUnread:
		return false, false
	case pci.NoDifference, pci.OtherBoard, pci.OtherSlot:
	}
	return false, true
}
