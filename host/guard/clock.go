package guard

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// ptpDir is the class of PTP clocks (Linux, Documentation/ABI/testing/sysfs-ptp).
const ptpDir = "/sys/class/ptp"

// clocks adds PTP clocks of functions: those that a process has open, and those that the
// configuration of an enabled service names, or whose network interface it names.
func (g *guard) clocks() error {
	names, err := g.list(ptpDir)
	if err != nil {
		return err
	}
	clocks := map[string][]pci.Address{}
	for _, name := range names {
		target, err := g.device(ptpDir, name)
		if err != nil {
			return err
		}
		functions, err := g.functions(target)
		if err != nil {
			return err
		}
		if len(functions) > 0 { // else of the kernel, or of a hypervisor
			clocks["/dev/"+name] = functions
		}
	}
	if len(clocks) == 0 {
		return nil
	}
	return errors.Join(g.openClocks(clocks), g.clockServices(clocks))
}

// openClocks adds clocks that processes have open. Users without permission to read the descriptors
// of others get their own processes alone: they cannot change anything either.
func (g *guard) openClocks(clocks map[string][]pci.Address) error {
	pids, err := host.IfPresent(host.PIDs(g.root))
	if err != nil {
		return err
	}
	for _, pid := range pids {
		files, err := g.openedByName(pid)
		if errors.Is(err, unix.EACCES) && os.Geteuid() != 0 {
			continue
		}
		if err != nil {
			return err
		}
		for _, file := range files {
			of := subject{UsePTP, host.ProcessFile(pid, "fd"), g.command(pid)}
			g.add(host.CodeNetwork, clocks[file.File()], false, "has the PTP clock of ", of, ", which has "+file.String()+" open")
		}
	}
	return nil
}
