package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/pci"
)

// Kind is how a function leaves the host.
type Kind string

// The kinds.
const (
	// AtBoot: another driver binds the function from the next boot on.
	AtBoot Kind = "at boot"
	// Now: another driver binds the function now. Its users lose it, or the kernel waits for them.
	Now Kind = "now"
	// Removed: an existing VF is removed, or made again.
	Removed Kind = "removed"
	// Making: VFs are made of a function that has none. It stays with its driver.
	Making Kind = "making VFs"
	// Returned: a function of guests returns to its host driver now.
	Returned Kind = "returned"
	// Role: containers are offered the function, which stays with its driver.
	Role Kind = "role"
)

// now reports whether functions that leave in this way must not be in use at this moment.
func (k Kind) now() bool { return k == Now || k == Removed || k == Returned }

// takes reports whether the host loses functions that leave in this way.
func (k Kind) takes() bool { return k == AtBoot || k == Now || k == Removed }

// judge returns the refusal of a function that the host loses, by the first rule that fits, or nil.
// What the file systems that the host boots from need, or may need, and what the kernel has claimed
// never leaves. A GPU, a function of its card and an NVSwitch of its board leave by themselves, any
// other function if --allow names it. It does not ask who uses the function now: see [Host.Leave]. A
// driver for passthrough that has the function now may be there for one guest only: it permits
// nothing at the next boot.
func (h Host) judge(l Leaving) *Refusal {
	d := h.Devices.At(l.Address)
	if d == nil || l.Kind != AtBoot && pci.LeavesAlone(d.DriverName()) {
		return nil
	}
	if r := h.ofRoot(d); r != nil {
		return r
	}
	if claims := h.Needs.Claims[d.Address]; len(claims) > 0 {
		c := claims[0]
		reason := fmt.Sprintf("its disk %s is claimed: %s", c.Disk, c.What)
		return &Refusal{Address: d.Address, Reason: reason, Absolute: true, Err: errClaimed, Code: host.CodeDisk, File: c.File}
	}
	if l.Kind == Removed || l.Whole {
		return h.ofAdapter(d, l.Kind)
	}
	why, code := h.apart(d, l)
	if why == "" {
		return nil
	}
	links := h.Needs.Links[d.Address]
	if in := links.Why(); in != "" && !slices.ContainsFunc(links.Interfaces, func(i guard.Interface) bool { return i.Unknown && !i.Master }) {
		why += "; " + in
	}
	return &Refusal{Address: d.Address, Reason: why + h.loses(d), Code: code}
}

// Never returns the refusal of a function that no option lets leave the host: what the root file
// system needs, or the kernel calls claimed. It is nil for any other function.
func (h Host) Never(a pci.Address) *Refusal {
	if r := h.judge(Leaving{Address: a, Kind: AtBoot}); r != nil && r.Absolute {
		return r
	}
	return nil
}

// Needed returns the functions with a driver of the host that no option lets leave it, or whose
// interface is a port of another one.
func (h Host) Needed() []pci.Address {
	return h.Devices.Where(func(d *pci.Device) bool {
		isPort := slices.ContainsFunc(h.Needs.Links[d.Address].Interfaces, func(i guard.Interface) bool { return i.Master })
		return !pci.LeavesAlone(d.DriverName()) && (isPort || h.Never(d.Address) != nil)
	})
}

// Used returns the functions that the host needs, or whose interfaces or ports it uses.
func (h Host) Used() []pci.Address {
	return h.Devices.Where(func(d *pci.Device) bool { return h.judge(Leaving{Address: d.Address, Kind: Now, Whole: true}) != nil })
}

// ofRoot returns the refusal of a function that the host needs to boot, or may need as far as that
// can be followed, or nil.
func (h Host) ofRoot(d *pci.Device) *Refusal {
	root, links := h.Needs.Root, h.Needs.Links[d.Address]
	refuse := func(code host.Code, format string, args ...any) *Refusal {
		return &Refusal{Address: d.Address, Reason: fmt.Sprintf(format, args...), Absolute: true, Code: code}
	}
	// A device that a hypervisor offers a file system with may have no class.
	isDisk := d.Class == nil || *d.Class < 0x0100 || d.Class.IsStorage() || len(h.Needs.Disks[d.Address]) > 0
	isNetwork := d.Class == nil || d.Class.IsNetwork() || len(links.Interfaces) > 0
	switch what := root.Needs[d.Address]; {
	case what != "":
		return refuse(host.CodeRootDisk, "carries %s, without which the host does not boot", what)
	case root.Network != "" && isNetwork:
		return refuse(host.CodeNetwork, "may be the interface that the host boots with: %s", root.Network)
	case root.Lost != "" && (isDisk || links.IsUp()):
		return refuse(host.CodeRootDisk, "may carry what the host boots from: %s", root.Lost)
	}
	return nil
}

// apart returns why a function does not leave the host by itself, and the code of the reason, or "".
func (h Host) apart(d *pci.Device, l Leaving) (why string, code host.Code) {
	gpu, below := h.Devices.GPUOf(d), h.Needs.Below[d.Address]
	switch {
	case l.IDs != "":
		return fmt.Sprintf("is not recorded, but ids=%s of the record match it: %s", l.IDs, h.Label(d)), host.CodeIdentical
	case d.IsConsole():
		return "is the console (" + d.ConsoleBy() + ")", host.CodeConsole
	case d.IsManagementConsole():
		return "is the management controller's console", host.CodeConsole
	case (d.IsGPU() || gpu != nil) && l.Apart:
		return shares(d) + " but is not selected itself", host.CodeGroup
	case (d.IsGPU() || gpu != nil) && below == "":
		return "", ""
	case d.IsGPU():
		return "is a GPU, and has " + below + " below it", host.CodeInUse
	case gpu != nil:
		return fmt.Sprintf("is a part of GPU %s, and has %s below it", gpu.Address, below), host.CodeInUse
	case d.IsNVSwitch() && l.Guests:
		return "", ""
	case d.VPDUnread():
		return errVPDUnread.Error(), host.CodeNVSwitch
	}
	if l.Apart {
		return shares(d) + " but is not part of it: " + h.Label(d), host.CodeGroup
	}
	return "is no GPU: " + h.Label(d), host.CodeGroup
}

// ofAdapter returns the refusal of a VF that is removed, or of an RDMA adapter that rdma prepare
// assigns to guests as a whole: it leaves by itself if its interfaces are seen to be idle. Each
// port of an adapter must be down, too, and the functions of its card that remain as idle: a boot
// does not ask for these, because their use may begin before it. Of several VFs that a physical
// function has, --allow names that function.
func (h Host) ofAdapter(d *pci.Device, kind Kind) *Refusal {
	links, reason := h.Needs.Links[d.Address], ""
	switch {
	case !links.Idle():
		reason = "has a network interface in use: " + links.Why()
	case kind != Removed && (kind != AtBoot || !d.IsVF()): // the port of a VF is active with that of its adapter
		reason = links.Active
	}
	for _, a := range h.remaining(d) {
		other := h.Needs.Links[a]
		if use := cmp.Or(other.Why(), other.Active); reason == "" && use != "" && kind == AtBoot {
			reason = fmt.Sprintf("the host uses %s: %s", a, use)
		}
	}
	if reason == "" {
		return nil
	}
	return &Refusal{Address: d.Address, Reason: reason + h.loses(d), Code: host.CodeNetwork}
}

// loses returns what the card of a function loses, or "".
func (h Host) loses(d *pci.Device) string {
	others := h.remaining(d)
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("; the host keeps %s of the same card, and a guest can reset or reflash the whole card", Shortened(others))
}

// remaining returns the other functions of a card that is no GPU's, which stay with the host if the
// function leaves: those of its IOMMU group go with it.
func (h Host) remaining(d *pci.Device) []pci.Address {
	if h.Devices.GPUOf(d) != nil || d.IsVF() || d.IOMMUGroup == nil { // without groups, the whole slot goes
		return nil
	}
	return h.Devices.Slot(d.Address).Where(func(o *pci.Device) bool {
		return !o.IsVF() && !o.IsBridge() && !pci.LeavesAlone(o.DriverName()) && (o.IOMMUGroup == nil || *o.IOMMUGroup != *d.IOMMUGroup)
	})
}

// Label returns a name of a function that operators recognize, such as "NIC eno1 (mlx5_core)", by
// its network interfaces or disks, or else its address.
func (h Host) Label(d *pci.Device) string {
	interfaces := host.Map(h.Needs.Links[d.Address].Interfaces, func(i guard.Interface) string { return i.Name })
	names := slices.Concat(h.Needs.Disks[d.Address], interfaces)
	if len(names) == 0 {
		return d.Label()
	}
	label := d.Kind() + " " + strings.Join(names, " ")
	if d.Driver != nil {
		label += " (" + *d.Driver + ")"
	}
	return label
}

// shares returns what a function shares with a selected one.
func shares(d *pci.Device) string {
	if d.IOMMUGroup == nil {
		return "shares the slot of a selected device"
	}
	return fmt.Sprintf("shares IOMMU group %d with a selected device", *d.IOMMUGroup)
}

// GPUPrograms are the programs whose only subject are GPUs and their displays, by their names in
// /proc/PID/comm (at most 15 bytes). They hold GPUs for as long as they run, and lose nothing by a
// reboot after which the GPUs are for guests: nvidia-persistenced, DCGM and its exporter, NVIDIA's
// imex, powerd and Kubernetes device plugin, the exporters of AMD and Intel, and what plays sound.
func GPUPrograms() []string {
	return []string{"nvidia-persiste", "nv-hostengine", "dcgm-exporter", "nvidia-imex", "nvidia-powerd", "nvidia-device-p", "gpu-feature-dis",
		"gpuagent", "amd-device-metr", "amd-smi-exporte", "k8s-device-plug", "xpumd", "intel_gpu_expor",
		"alsactl", "wireplumber", "pipewire", "pipewire-pulse", "pulseaudio"}
}

// fabricManager is the name of NVIDIA's fabric manager, which connects the GPUs of a board: it loses
// nothing if none of them remains with the host.
const fabricManager = "nv-fabricmanage"

// isGPUProgram reports whether a holder of a function loses nothing if no GPU remains.
func isGPUProgram(holder guard.Holder, allGo bool) bool {
	return slices.Contains(GPUPrograms(), holder.Command) || holder.Command == fabricManager && allGo
}
