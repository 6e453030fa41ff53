package hardware

import (
	"context"
	"path"
	"strconv"
	"strings"

	"github.com/jaypipes/ghw"

	"gpustack/host"
	"gpustack/host/pci"
)

const (
	blockDir = "sys/block"
	netDir   = "sys/class/net"
	udevData = "run/udev/data"
	mounts   = "proc/self/mounts"
)

// readDisks reads the block devices that have hardware: their folder has a link to its device.
func (p *probe) readDisks(ctx context.Context, m *Facts) {
	found, ok := p.list(blockDir, "*", "the disks are unknown")
	if !ok {
		return
	}
	disk := blockDir + "/*/"
	if !p.clear(mounts, blockDir+"/*", disk+"size", disk+"removable", disk+"dev", disk+"queue/physical_block_size", disk+"queue/rotational",
		disk+"device/vendor", disk+"device/model", disk+"*/dev", disk+"*/size", udevData+"/b*") || !p.mountsAreWhole() {
		return
	}
	info, err := ghw.Block(ctx)
	if err != nil {
		p.failed(blockDir, err)
		return
	}
	known := host.By(info.Disks, func(d *ghw.Disk) (string, *ghw.Disk) { return d.Name, d })
	m.Disks = []Disk{}
	for _, name := range found {
		dir := blockDir + "/" + name
		if hardware, err := p.exists(dir + "/device"); err != nil {
			p.failed(dir, err)
			m.Disks = nil
			return
		} else if !hardware {
			continue // of the device mapper, of md, loop, zram
		}
		d := Disk{Name: name}
		if of := known[name]; of != nil {
			p.describe(&d, of, dir)
		} else {
			p.warn("/%s: size and model are unknown", dir)
		}
		m.Disks = append(m.Disks, d)
	}
}

// describe sets what ghw says of a disk, as far as the files that it comes from can be read.
func (p *probe) describe(d *Disk, of *ghw.Disk, dir string) {
	if n, ok := p.number(dir + "/size"); ok && n<<9 == int64(of.SizeBytes) {
		d.Size = new(n << 9)
	}
	if flag, ok := p.read(dir + "/queue/rotational"); ok {
		d.Rotational = host.BoolOf(flag == "1")
	}
	if _, ok := p.read(dir + "/removable"); ok {
		d.Removable = host.BoolOf(of.IsRemovable)
	}
	if of.StorageController != ghw.StorageControllerUnknown {
		d.Controller = new(strings.ToLower(of.StorageController.String()))
	}
	if of.Model != "" && of.Model != "unknown" {
		// udev writes an underscore for a blank (udev, builtin path_id and ata_id).
		d.Model = new(strings.ReplaceAll(of.Model, "_", " "))
		return
	}
	file := dir + "/device/model" // disks of virtual machines have none
	text, err := host.IfPresent(p.root.ReadHead(file, host.MaxAttribute))
	if err != nil {
		p.failed(file, err)
	} else if model := strings.TrimSpace(string(text)); model != "" {
		d.Model = &model
	}
}

// mountsAreWhole reports whether each line of the list of mounts has a first character: ghw, which
// looks for partitions in it, needs one.
func (p *probe) mountsAreWhole() bool {
	text, err := host.IfPresent(p.root.ReadTable(mounts))
	if err != nil {
		p.failed(mounts, err)
		return false
	}
	for line := range strings.Lines(string(text)) {
		if strings.TrimSuffix(line, "\n") == "" {
			p.warn("/%s: has an empty line: the disks are unknown", mounts)
			return false
		}
	}
	return true
}

// readNICs reads the network interfaces that have hardware.
func (p *probe) readNICs(ctx context.Context, m *Facts) {
	found, ok := p.list(netDir, "*", "the network interfaces are unknown")
	if !ok {
		return
	}
	nic := netDir + "/*/"
	if !p.clear(netDir+"/*", nic+"device", nic+"device/subsystem", nic+"device/driver",
		nic+"addr_assign_type", nic+"address", nic+"speed", nic+"duplex") {
		return
	}
	info, err := ghw.Network(ctx)
	if err != nil {
		p.failed(netDir, err)
		return
	}
	known := host.By(info.NICs, func(n *ghw.NIC) (string, *ghw.NIC) { return n.Name, n })
	m.NICs = []NIC{}
	for _, name := range found {
		dir := netDir + "/" + name
		hardware, err := p.exists(dir + "/device")
		switch {
		case err != nil:
			p.failed(dir, err)
			m.NICs = nil
			return
		case !hardware, known[name] == nil: // a bridge, a bond, bonding_masters
			continue
		}
		n := NIC{Name: name, Address: p.address(dir, known[name].PCIAddress)}
		if place, err := p.root.Real(dir + "/device/driver"); err == nil {
			if there, err := p.root.Exists(place); err == nil && there && path.Base(place) != "driver" {
				n.Driver = new(path.Base(place))
			}
		}
		// The kernel shows no speed, or -1, while an interface is down (Linux,
		// Documentation/ABI/testing/sysfs-class-net).
		if speed, err := strconv.Atoi(known[name].Speed); err == nil && speed > 0 {
			n.Speed = &speed
		}
		m.NICs = append(m.NICs, n)
	}
}

// address returns the PCI address of an interface. ghw finds it only where the interface itself is
// a link, as the kernel shows it; an archive may contain a folder in its place.
func (p *probe) address(dir string, known *string) *string {
	if known == nil {
		place, err := p.root.Real(dir + "/device")
		if err != nil {
			p.failed(dir+"/device", err)
			return nil
		}
		known = new(path.Base(place))
	}
	a, err := pci.ParseAddress(*known)
	if err != nil {
		return nil // of USB, or virtio
	}
	return new(a.String())
}
