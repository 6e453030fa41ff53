package rdmacheck

import (
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/gate"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// recorded returns the findings of a check for every recorded adapter, or one that says why it does
// not apply.
func (v view) recorded(judge func(rdma.Prepared, *pci.Device) []host.Finding) []host.Finding {
	switch {
	case !v.Record.Seen():
		return checklist.Unread(v.Record.File, v.Record.Err)
	case v.Record.Value == nil:
		return checklist.NA("nothing is recorded")
	case v.Devices == nil:
		return checklist.NA("the PCI functions of the machine are not shown")
	}
	return host.FlatMap(v.Record.Value.Adapters, func(p rdma.Prepared) []host.Finding { return judge(p, v.Devices.At(p.Address)) })
}

// differs returns how the function at the address of a recorded adapter differs from it, or "".
func (v view) differs(p rdma.Prepared) string {
	now := v.Devices.Identity(p.Address)
	switch p.Identity().Compare(now) {
	case pci.Missing:
		return fmt.Sprintf("%s is missing", p.Address)
	case pci.IDsUnread:
		return fmt.Sprintf("%s: vendor and product id cannot be read", p.Address)
	case pci.OtherProduct:
		return fmt.Sprintf("%s is %s:%s, recorded is %s:%s", p.Address, now.VendorID, now.ProductID, p.VendorID, p.ProductID)
	case pci.OtherBoard:
		return fmt.Sprintf("%s is on another board: its subsystem ids are not the recorded ones", p.Address)
	case pci.OtherSlot:
		return fmt.Sprintf("%s is in another slot: the bridges above it are %v, recorded are %v", p.Address, now.Path, p.Path)
	case pci.NoDifference:
	}
	return ""
}

// functions finds recorded adapters that are missing, replaced, or bound to another driver, and
// those that have come into use before the boot which takes them from the host.
func (v view) functions() []host.Finding {
	found := 0
	findings := v.recorded(func(p rdma.Prepared, d *pci.Device) []host.Finding {
		f := host.Finding{Status: host.Fail, File: "/sys/bus/pci/devices/" + p.Address.String()}
		differs := v.differs(p)
		switch {
		case differs != "":
			f.Seen, f.Effect = differs, "what is recorded of it is not done at boot"
			f.Remedy = host.Textf("%s, then prepare the adapter at its present address: %s",
				host.NewCommand("rdma prepare").Flag("remove", p.Address.String()), host.NewCommand("rdma scan"))
		case p.Whole && v.phase == effective && p.Use == rdma.ForGuests && !pci.LeavesAlone(d.DriverName()):
			f.Seen = fmt.Sprintf("%s is bound to %s instead of vfio-pci", p.Address, driverText(d))
			f.Effect, f.Remedy = "no guest can have it", restart
		case !p.Whole && d.DriverName() != p.Driver && !d.DriverUnread():
			f.Seen = fmt.Sprintf("%s is bound to %s, recorded is its host driver %s", p.Address, driverText(d), p.Driver)
			f.Effect, f.Remedy = "it has no virtual functions", host.Textf("echo %s > /sys/bus/pci/drivers/%s/bind", p.Address, p.Driver)
			if pci.LeavesAlone(d.DriverName()) { // the kernel binds no function that has a driver
				f.Remedy = rdma.Release(p.Address)
			}
		default:
			found++
			return nil
		}
		return []host.Finding{f}
	})
	return checklist.OrPass(append(findings, v.used()...), "%s as recorded", host.Numbered(found, "adapter"))
}

// used finds uses of functions that leave the host at the next boot.
func (v view) used() (findings []host.Finding) {
	if v.Used.Err != nil {
		return checklist.Unread(v.Used.File, v.Used.Err)
	}
	for _, err := range v.Used.Value {
		if isUnknown(err) || errors.Is(err, gate.ErrAllowUnread) {
			findings = append(findings, checklist.Prevented(err))
			continue
		}
		findings = append(findings, host.Finding{
			Status: host.Fail, File: v.Record.File, Seen: "has come into use since it was recorded: " + err.Error(),
			Effect: "if it is in use at the next boot, it remains as it is; else the host loses it", Remedy: host.Plain("end the use"),
		})
	}
	return findings
}

// isUnknown reports whether an error says that the guests which use a function are unknown.
func isUnknown(err error) bool {
	var refusal interface{ Refusal() (host.Code, string) }
	if !errors.As(err, &refusal) {
		return false
	}
	code, _ := refusal.Refusal()
	return code == host.CodeGuestsUnknown
}

// restart is the remedy of what the steps of a boot should have done.
var restart = host.Textf("systemctl restart gpustack-boot.service, then %s again", host.NewCommand("rdma check"))

func driverText(d *pci.Device) string {
	if name := d.DriverName(); name != "" {
		return name
	}
	return "no driver"
}
