package guard

import (
	"fmt"
	"path"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// Folders of the kernel's targets in configfs.
const (
	lioDir   = "/sys/kernel/config/target/core"
	nvmetDir = "/sys/kernel/config/nvmet/subsystems"
)

// offered adds a disk that a target offers to other machines. device is a name in /dev, or a file,
// whose file system has been added.
func (g *guard) offered(device, file, what string) error {
	if !strings.HasPrefix(device, "/dev/") {
		return nil
	}
	name, err := g.block(device)
	if err != nil {
		return err
	}
	of := subject{UseTarget, file, what}
	if name != "" {
		return g.above(name, false, of)
	}
	functions, err := g.character(path.Base(device))
	g.add(host.CodeDisk, functions, false, "carries ", of, "")
	return err
}

// character returns the functions of a character device, found by its name in the classes of NVMe
// controllers and SCSI devices.
func (g *guard) character(name string) ([]pci.Address, error) {
	for _, class := range []string{"/sys/class/nvme", "/sys/class/nvme-generic", "/sys/class/scsi_generic"} {
		target, err := g.device(class, name)
		if err != nil {
			return nil, err
		}
		if target != "" {
			return g.hardware(target)
		}
	}
	return nil, nil
}

// lio adds the disks of LIO's targets (Linux, drivers/target/target_core_configfs.c): backends
// iblock_N and pscsi_N claim a disk, and sysfs has no link to them. udev_path is optional: info has
// the numbers of the disk (iblock_show_configfs_dev_params in drivers/target/target_core_iblock.c).
func (g *guard) lio() error {
	backends, err := g.list(lioDir)
	if err != nil {
		return err
	}
	for _, backend := range backends {
		names, err := g.entries(path.Join(lioDir, backend))
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := g.lioDisk(backend, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *guard) lioDisk(backend, name string) error {
	dir := path.Join(lioDir, backend, name)
	entries, err := g.entries(dir)
	if err != nil || len(entries) == 0 {
		return err // an attribute of the backend
	}
	enabled, err := g.attribute(path.Join(dir, "enable"))
	if err != nil || enabled == "0" {
		return err
	}
	file := path.Join(dir, "udev_path")
	device, err := g.attribute(file)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("the target %s/%s of LIO", backend, name)
	if device != "" {
		return g.offered(device, file, what)
	}
	file = path.Join(dir, "info")
	info, err := g.lines(file)
	if err != nil {
		return err
	}
	for _, words := range info {
		if len(words) < 4 || words[0] != "Major:" || words[2] != "Minor:" {
			continue
		}
		disk, err := g.numbered(words[1] + ":" + words[3])
		if err == nil && disk != "" {
			err = g.above(disk, false, subject{UseTarget, file, what})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nvmeTargets adds the disks and controllers that the NVMe target offers (Linux,
// drivers/nvme/target/configfs.c).
func (g *guard) nvmeTargets() error {
	subsystems, err := g.list(nvmetDir)
	if err != nil {
		return err
	}
	for _, subsystem := range subsystems {
		dir := path.Join(nvmetDir, subsystem)
		namespaces, err := g.list(path.Join(dir, "namespaces"))
		if err != nil {
			return err
		}
		for _, n := range namespaces {
			if err := g.nvmeTarget(path.Join(dir, "namespaces", n), fmt.Sprintf("namespace %s of the NVMe target %s", n, subsystem)); err != nil {
				return err
			}
		}
		if err := g.nvmeTarget(path.Join(dir, "passthru"), "the controller of the NVMe target "+subsystem); err != nil {
			return err
		}
	}
	return nil
}

func (g *guard) nvmeTarget(dir, what string) error {
	enabled, err := g.attribute(path.Join(dir, "enable"))
	if err != nil || enabled == "0" {
		return err
	}
	file := path.Join(dir, "device_path")
	device, err := g.attribute(file)
	if err != nil {
		return err
	}
	return g.offered(device, file, what)
}
