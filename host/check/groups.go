package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/iommu"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// groups checks whether the group of each recorded function has its recorded members and can be
// assigned to a guest. A group in which all functions are bound to pci-stub has no VFIO device
// node, so its members are checked, as in every group.
func (v view) groups() []host.Finding {
	if f := v.notComparable(); f != nil {
		if functions := v.Guests; v.phase == unprepared && len(functions) > 0 {
			return checklist.NA("nothing is recorded; bound now to %s", holders(functions))
		}
		return f
	}
	if !v.isOn() {
		return checklist.NA("the IOMMU is off or not shown")
	}
	byNumber := host.By(iommu.Groups(v.Devices.Value), func(g iommu.Group) (int, iommu.Group) { return g.Number, g })
	var findings []host.Finding
	done := map[int]bool{}
	parted := map[pci.Address]bool{} // reported as no longer in their group
	waits := false
	for _, f := range v.Contract.Value.Functions {
		d := v.Devices.Value.At(f.Address)
		if d == nil || v.unsettled[f.Address] {
			continue
		}
		if d.IOMMUGroup == nil && !v.Types.Seen() {
			findings = append(findings, host.Finding{Status: host.NA, File: machine.GroupsDir, Seen: fmt.Sprintf("%s: its IOMMU group cannot be read", f.Address)})
			continue
		}
		if d.IOMMUGroup == nil {
			parted[f.Address] = true
			findings = append(findings, host.Finding{
				Status: host.Fail, File: machine.AttributeFile(f.Address, "iommu_group"), Seen: f.Address.String() + " has no IOMMU group",
				Effect: "it cannot be assigned to a guest", Remedy: host.Plain("the kernel's log shows why: journalctl -k -g 'DMAR|AMD-Vi|SMMU'"),
			})
			continue
		}
		if number := *d.IOMMUGroup; !done[number] {
			done[number] = true
			found, wait := v.group(f, byNumber[number], parted)
			findings = append(findings, found...)
			waits = waits || wait
		}
	}
	switch {
	case findings != nil:
		return findings
	case len(done) == 0:
		return checklist.NA("no recorded function is unchanged")
	case waits:
		return checklist.NA("%s with functions to be bound at the next boot", host.Numbered(len(done), "group"))
	}
	return checklist.Pass("%s can be assigned to guests, with the recorded members", host.Numbered(len(done), "group"))
}

// group checks the group of a recorded function. It ignores recorded functions that block the
// group: either the next boot binds them, or another check reports them.
func (v view) group(f machine.Function, g iommu.Group, parted map[pci.Address]bool) (findings []host.Finding, waits bool) {
	finding := host.Finding{
		Status: host.Fail, File: fmt.Sprintf("%s/%d/devices", machine.GroupsDir, g.Number),
		Effect: fmt.Sprintf("group %d cannot be assigned to guests as prepared", g.Number),
	}
	adapted := sync.OnceValue(func() host.Text { return v.adapted(f) })
	add := func(seen string, a pci.Address) {
		finding.Seen, finding.Remedy = fmt.Sprintf("group %d %s %s", g.Number, seen, a), adapted()
		findings = append(findings, finding)
	}
	var come []pci.Address
	if f.Group != nil {
		recorded, members := host.Set(f.Members), host.Set(g.Members)
		come = host.Filter(g.Members, func(a pci.Address) bool { return !recorded[a] && !v.movedTo[a] })
		for _, a := range f.Members {
			if said := v.unsettled[a] || parted[a] || parted[f.Address]; !said && !members[a] {
				parted[a] = true
				add("no longer contains", a)
			}
		}
		for _, a := range come {
			add("now also contains", a)
		}
	}
	reported := host.Set(come)
	for _, b := range g.Blockers {
		recorded := v.Recorded(b.Address) != nil
		switch {
		case recorded:
			waits = waits || v.phase == pending
		case !reported[b.Address]:
			finding.Seen = fmt.Sprintf("group %d contains %s, %s", g.Number, b.Address, b.Reason)
			finding.Remedy = host.Textf("move one of the cards to another slot, or assign both to guests: %s",
				host.NewCommand("host prepare").Flag("device", b.Address.String()))
			findings = append(findings, finding)
		}
	}
	return findings, waits
}

// regrouped reports whether a recorded function is in a group with other members than recorded.
func (v view) regrouped(f machine.Function) bool {
	return f.Group != nil && slices.ContainsFunc(iommu.Groups(v.Devices.Value), func(g iommu.Group) bool {
		return slices.Contains(g.Members, f.Address) && !slices.Equal(g.Members, f.Members)
	})
}

// adapted returns the remedy of a recorded function whose group has other members: host prepare
// adapts to them, or where it refuses one of them, the function returns to the host with its card.
func (v view) adapted(f machine.Function) host.Text {
	n, prepare := selection.NewNode(v.Machine), host.NewCommand("host prepare")
	if s, err := n.Choose(selection.Options{}); err == nil && len(n.Decide(s, machine.Uses{}, nil).Refused) == 0 {
		return host.Textf("the slot, kernel or firmware determines the groups; %s adapts to the current ones", prepare)
	}
	if command, accepted := v.without(f.Address); accepted {
		return host.Textf("move one of the cards to another slot, or return this one to the host: %s", command)
	}
	return host.Textf("move one of the cards to another slot; '%s' shows what is refused", prepare.Flag("dry-run"))
}

// holders returns the drivers that functions are bound to.
func holders(functions []pci.Device) string {
	var names []string
	for _, d := range functions {
		names = host.Union(names, cmp.Or(d.DriverName(), "no driver"))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
