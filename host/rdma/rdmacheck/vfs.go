package rdmacheck

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// vfs compares number, addresses and drivers of virtual functions with the record.
func (v view) vfs() []host.Finding {
	total := 0
	findings := v.recorded(func(p rdma.Prepared, d *pci.Device) (findings []host.Finding) {
		if p.Whole || v.differs(p) != "" {
			return nil
		}
		if err := p.TooMany(len(p.VFs), d); err != nil && !d.SRIOVUnread() {
			return []host.Finding{{Status: host.Fail, File: machine.AttributeFile(p.Address, "sriov_totalvfs"), Seen: err.Error(),
				Effect: "no boot makes what is recorded", Remedy: host.HintOf(err)}}
		}
		if v.phase != effective {
			return checklist.NA("%s: %s take effect at the next boot", p.Address, host.Numbered(len(p.VFs), "virtual function"))
		}
		fail := func(file, seen, effect string) {
			findings = append(findings, host.Finding{Status: host.Fail, File: file, Seen: seen, Effect: effect, Remedy: restart})
		}
		file := machine.AttributeFile(p.Address, "sriov_numvfs")
		switch n := d.SRIOV.NumVFs; {
		case n == nil:
			return checklist.NA("%s: %s is not shown by the kernel", p.Address, file)
		case *n != len(p.VFs):
			fail(file, fmt.Sprintf("%s has %s, recorded are %d", p.Address, host.Numbered(*n, "virtual function"), len(p.VFs)),
				"guests and containers that are to have them cannot start")
			if *n > 0 {
				findings[0].Remedy = host.Textf("%s; lines of other programs that set VFs: %s", findings[0].Remedy, rdma.FindOwners)
			}
			return findings
		}
		for _, f := range p.VFs {
			at := v.Devices.At(f.Address)
			switch {
			case at == nil:
				fail(file, fmt.Sprintf("virtual function %d of %s is not at %s", f.Index, p.Address, f.Address), "what refers to this address fails")
			case at.ProductID != nil && *at.ProductID != f.ProductID:
				fail(machine.AttributeFile(f.Address, "device"), fmt.Sprintf("%s has product id %s, recorded is %s", f.Address, at.ProductID, f.ProductID),
					"Nova's device_spec does not match it")
			case at.DriverUnread():
				findings = append(findings, checklist.NA("%s: the driver cannot be read", f.Address)...)
			case at.DriverName() == f.Driver || pci.LeavesAlone(f.Driver) && pci.LeavesAlone(at.DriverName()):
				total++
			default:
				fail(machine.AttributeFile(f.Address, "driver"), fmt.Sprintf("%s is bound to %s instead of %s", f.Address, driverText(at), f.Driver),
					"it cannot be used as recorded, for "+string(p.Use))
			}
		}
		return findings
	})
	return checklist.OrPass(findings, "%s as recorded", host.Numbered(total, "virtual function"))
}
