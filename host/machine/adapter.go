package machine

import (
	"errors"
	"path"
	"slices"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Adapter is an RDMA adapter of the host that shares an IOMMU group with a GPU.
type Adapter struct {
	Devices, Interfaces []string     // its RDMA devices and network interfaces
	Needs               []guard.Need // that it may be in another network namespace; see Machine.Needs for its other uses
	Unread              error        // what it is cannot be read
}

// readAdapters reads the RDMA adapters that share an IOMMU group with a GPU. What cannot be read of
// one is an error of it: on other machines it does not matter.
func readAdapters(root host.Root, devices pci.Devices) map[pci.Address]*Adapter {
	gpus := map[int]bool{}
	for i := range devices {
		if d := &devices[i]; d.IsGPU() && d.IOMMUGroup != nil {
			gpus[*d.IOMMUGroup] = true
		}
	}
	adapters := map[pci.Address]*Adapter{}
	for i := range devices {
		d := &devices[i]
		if d.IOMMUGroup == nil || !gpus[*d.IOMMUGroup] || d.IsGPU() || d.IsBridge() || d.IsVF() || d.DriverName() == "" {
			continue
		}
		if a, found := readAdapter(root, d); found {
			adapters[d.Address] = a
		}
	}
	return adapters
}

// AdaptersByDriver returns the functions that are RDMA adapters by their drivers, without their
// uses.
func AdaptersByDriver(devices pci.Devices) map[pci.Address]*Adapter {
	adapters := map[pci.Address]*Adapter{}
	for i := range devices {
		if d := &devices[i]; !d.IsVF() && rdma.HasDriver(d) {
			adapters[d.Address] = &Adapter{}
		}
	}
	return adapters
}

// readAdapter reads one function, and reports whether it is an RDMA adapter. One whose interface or
// RDMA device is not shown may be in use in another network namespace.
func readAdapter(root host.Root, d *pci.Device) (*Adapter, bool) {
	const infiniband = 0x0207
	list := func(folder string) ([]string, error) {
		dir := path.Join(DevicesDir, d.Address.String(), folder)
		names, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			return nil, err
		}
		slices.Sort(names)
		return names, nil
	}
	var a Adapter
	var devicesErr, interfacesErr error
	a.Devices, devicesErr = list("infiniband")
	a.Interfaces, interfacesErr = list("net")
	if !rdma.HasDriver(d) && devicesErr == nil && len(a.Devices) == 0 {
		return nil, false
	}
	away, awayErr := Moved(root, d)
	a.Unread = errors.Join(devicesErr, interfacesErr, awayErr)
	if a.Unread == nil && (away || d.Class != nil && *d.Class == infiniband && len(a.Devices) == 0) {
		a.Needs = []guard.Need{{Address: d.Address, Code: host.CodeInUse, Use: guard.UseNetworkNamespace,
			Subject: "another network namespace", File: path.Join(DevicesDir, d.Address.String(), "net"),
			Reason: "its RDMA device or network interface is not shown here: another network namespace may have it"}}
	}
	return &a, true
}
