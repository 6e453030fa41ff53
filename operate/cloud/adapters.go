package cloud

import (
	"errors"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/nova"
)

// adaptersOf returns the adapters of the machine as nova configure needs them: those with an RDMA
// device now, and those that rdma prepare has recorded.
func adaptersOf(root host.Root, devices pci.Devices) ([]nova.Adapter, error) {
	stack, err := rdma.Read(root, devices, rdma.Options{})
	record, recordErr := rdma.ReadRecord(root)
	if err := errors.Join(err, recordErr); err != nil {
		return nil, err
	}
	var adapters []nova.Adapter
	for _, a := range stack.Adapters {
		if a.Address == nil || a.Function == nil || a.Function.IsVF() || record.At(*a.Address) != nil {
			continue
		}
		adapter := nova.Adapter{Address: *a.Address}
		for _, port := range a.Ports {
			adapter.LinkLayer = port.LinkLayer
		}
		adapters = append(adapters, adapter)
	}
	for _, p := range host.Value(record).Adapters {
		vfs := host.Map(p.VFs, func(vf rdma.PreparedVF) nova.AdapterVF {
			return nova.AdapterVF{Address: vf.Address, ProductID: vf.ProductID}
		})
		adapters = append(adapters, nova.Adapter{Address: p.Address, LinkLayer: p.LinkLayer, Whole: p.Whole, Containers: p.Use == rdma.ForContainers, VFs: vfs})
	}
	return adapters, nil
}
