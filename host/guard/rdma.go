package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// Classes of the RDMA stack (Linux, Documentation/ABI/stable/sysfs-class-infiniband).
const (
	ibDir    = "/sys/class/infiniband"
	verbsDir = "/sys/class/infiniband_verbs"
	madDir   = "/sys/class/infiniband_mad"
)

// isSM is the bit of a port's capability mask that says that a subnet manager runs there
// (InfiniBand Architecture Specification, volume 1, PortInfo.CapabilityMask).
const isSM = 0x2

// AllNeeds returns what Needs and RDMANeeds return, and the latter apart. Every plan and everything
// that carries one out asks it, so that none sees fewer uses. That uses by RDMA cannot be read is a
// use of each network adapter: it must not keep other functions from leaving the host.
func AllNeeds(root host.Root, devices pci.Devices, running Running) (all, rdma []Need, err error) {
	all, err = Needs(root, devices, running)
	rdma, rdmaErr := RDMANeeds(root, devices)
	if rdmaErr != nil {
		reason := "cannot determine whether the host uses it by RDMA: " + strings.ReplaceAll(rdmaErr.Error(), "\n", "; ")
		rdma = nil
		for i := range devices {
			if d := &devices[i]; isNetwork(d) {
				rdma = append(rdma, Need{Address: d.Address, Code: host.CodeNetwork, Use: UseRDMAUnread, Reason: reason, Subject: "RDMA"})
			}
		}
	}
	return slices.Concat(all, rdma), rdma, err
}

// isNetwork reports whether a function may be a network adapter.
func isNetwork(d *pci.Device) bool {
	const network = 0x02
	return d.Class == nil || *d.Class>>8 == network
}

// RDMANeeds returns the uses of RDMA adapters by the host, beside the addresses and routes that
// Needs finds: storage over RDMA, a subnet manager, and processes with device nodes open. Modules
// that are only loaded are no use: rdma-core loads them. It fails closed, as Needs does.
func RDMANeeds(root host.Root, devices pci.Devices) ([]Need, error) {
	g := rdmaGuard{guard: guard{root: root, devices: devices, at: map[reason]int{}, origins: map[string]origin{}}}
	if err := g.readAdapters(); err != nil || len(g.adapters) == 0 {
		return nil, err
	}
	err := errors.Join(g.readMounts(), g.readRoutes())
	if err == nil {
		err = errors.Join(g.fileServices(), g.nfsServer(), g.scsi(), g.nvme(), g.nvmeTarget(), g.modules(), g.subnetManagers(), g.openNodes())
	}
	needs := g.folded()
	slices.SortStableFunc(needs, func(a, b Need) int { return a.Address.Compare(b.Address) })
	return needs, err
}

// rdmaGuard finds the uses of adapters.
type rdmaGuard struct {
	guard
	adapters []pci.Address // functions of all RDMA devices
	names    []string      // of the RDMA devices
}

func (g *rdmaGuard) readAdapters() (err error) {
	if g.names, err = g.list(ibDir); err != nil {
		return err
	}
	for _, name := range g.names {
		functions, err := g.ofClass(ibDir, name)
		if err != nil {
			return err
		}
		g.adapters = append(g.adapters, functions...)
	}
	g.adapters = pci.Unique(g.adapters)
	return nil
}

// ofClass returns the functions of a device of a class.
func (g *rdmaGuard) ofClass(class, name string) ([]pci.Address, error) {
	target, err := g.device(class, name)
	if err != nil {
		return nil, err
	}
	return g.functions(target)
}

// through adds a use through the functions, or, if there are none, that it may be through any
// adapter.
func (g *rdmaGuard) through(functions []pci.Address, code host.Code, of subject, how string) {
	var adapters []pci.Address
	for _, a := range functions {
		if slices.Contains(g.adapters, a) {
			adapters = append(adapters, a)
		}
	}
	if len(adapters) > 0 {
		g.add(code, adapters, false, "carries ", of, how)
		return
	}
	g.add(code, g.adapters, false, "may carry ", of, how+": the adapter is not determined")
}

// server returns the functions of the interfaces that reach a server, none if that is not known.
func (g *rdmaGuard) server(address string) (functions []pci.Address, err error) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return nil, nil //nolint:nilerr // a name, or no address: not determined
	}
	for _, name := range g.reaches(a) {
		more, err := g.functionsOf(name)
		if err != nil {
			return nil, err
		}
		functions = append(functions, more...)
	}
	return functions, nil
}

// fileServices adds NFS over RDMA (nfs(5), proto), Lustre over o2ib (lnet(8)), GPFS with verbs, and
// BeeGFS, which uses RDMA unless its client is configured otherwise (connUseRDMA).
func (g *rdmaGuard) fileServices() error {
	for _, m := range g.mounts {
		what := subject{UseRDMAFileSystem, mountsFile, m.String()}
		switch {
		case strings.HasPrefix(m.kind, "nfs") && slices.Contains(m.values("proto"), "rdma"):
			var functions []pci.Address
			for _, address := range m.values("addr") {
				more, err := g.server(address)
				if err != nil {
					return err
				}
				functions = append(functions, more...)
			}
			g.through(functions, host.CodeNetwork, what, ", by NFS over RDMA")
		case m.kind == "lustre" && strings.Contains(m.source, "@o2ib"):
			g.through(nil, host.CodeNetwork, what, ", by Lustre over RDMA")
		case m.kind == "gpfs":
			if yes, err := g.says("/var/mmfs/gen/mmfs.cfg", "verbsRdma", "enable"); err != nil {
				return err
			} else if yes {
				g.through(nil, host.CodeNetwork, what, ", by GPFS with verbsRdma")
			}
		case m.kind == "beegfs":
			if off, err := g.says("/etc/beegfs/beegfs-client.conf", "connUseRDMA", "false"); err != nil {
				return err
			} else if !off {
				g.through(nil, host.CodeNetwork, what, ", by BeeGFS")
			}
		}
	}
	return nil
}

// says reports whether a file sets a key to a value.
func (g *rdmaGuard) says(name, key, value string) (bool, error) {
	lines, err := g.lines(name)
	for _, fields := range lines {
		words := strings.Fields(strings.Replace(strings.Join(fields, " "), "=", " ", 1))
		if len(words) > 1 && words[0] == key && words[1] == value {
			return true, err
		}
	}
	return false, err
}

// nfsServer adds the kernel's NFS server if it listens on RDMA (Linux, fs/nfsd/nfsctl.c, portlist).
func (g *rdmaGuard) nfsServer() error {
	const portlist = "/proc/fs/nfsd/portlist"
	lines, err := g.lines(portlist)
	if slices.ContainsFunc(lines, func(fields []string) bool { return fields[0] == "rdma" }) {
		g.through(nil, host.CodeNetwork, subject{UseRDMAFileSystem, portlist, "the NFS server"}, ", which listens on RDMA")
	}
	return err
}

// scsi adds targets of SRP and sessions of iSER. Their SCSI hosts are below the adapter's function
// (Linux, drivers/infiniband/ulp/srp/ib_srp.c, drivers/infiniband/ulp/iser/iscsi_iser.c); the hosts
// of idle transports do not exist.
func (g *rdmaGuard) scsi() error {
	const dir = "/sys/class/scsi_host"
	hosts, err := g.list(dir)
	if err != nil {
		return err
	}
	for _, name := range hosts {
		driver, err := g.attribute(path.Join(dir, name, "proc_name"))
		if err != nil {
			return err
		}
		of := map[string]string{"ib_srp": "SRP", "srp": "SRP", "iscsi_iser": "iSER", "iser": "iSER"}[driver]
		device, err := g.attribute(path.Join(dir, name, "local_ib_device"))
		if err != nil {
			return err
		}
		if of == "" && device != "" {
			of = "SRP"
		}
		if of == "" {
			continue
		}
		functions, err := g.ofClass(dir, name)
		if err == nil && slices.Contains(g.names, device) {
			functions, err = g.ofClass(ibDir, device)
		}
		if err != nil {
			return err
		}
		g.through(functions, host.CodeDisk, subject{UseRDMADisk, path.Join(dir, name), "disks of " + name}, ", by "+of)
	}
	return nil
}

// nvme adds controllers of NVMe over RDMA.
func (g *rdmaGuard) nvme() error {
	const dir = "/sys/class/nvme"
	controllers, err := g.list(dir)
	if err != nil {
		return err
	}
	for _, name := range controllers {
		transport, err := g.attribute(path.Join(dir, name, "transport"))
		if err != nil {
			return err
		}
		if transport != "rdma" {
			continue
		}
		address, err := g.attribute(path.Join(dir, name, "address"))
		if err != nil {
			return err
		}
		functions, err := g.server(nvmeAddress(address)["traddr"])
		if err != nil {
			return err
		}
		g.through(functions, host.CodeDisk, subject{UseRDMADisk, path.Join(dir, name, "transport"), "the disks of " + name}, ", by NVMe over RDMA")
	}
	return nil
}

// nvmeTarget adds ports of the kernel's NVMe target (Linux, drivers/nvme/target/configfs.c).
func (g *rdmaGuard) nvmeTarget() error {
	const dir = "/sys/kernel/config/nvmet/ports"
	ports, err := g.list(dir)
	if err != nil {
		return err
	}
	for _, port := range ports {
		kind, err := g.attribute(path.Join(dir, port, "addr_trtype"))
		if err != nil {
			return err
		}
		if kind == "rdma" {
			of := subject{UseRDMADisk, path.Join(dir, port, "addr_trtype"), "port " + port + " of the NVMe target"}
			g.through(nil, host.CodeDisk, of, ", by NVMe over RDMA")
		}
	}
	return nil
}

// modules adds protocols whose module is in use: something holds a reference to it.
func (g *rdmaGuard) modules() error {
	for _, m := range []struct{ name, what string }{{"rds_rdma", "sockets of RDS"}, {"ko2iblnd", "LNet, the network of Lustre"}} {
		name := path.Join("/sys/module", m.name, "refcnt")
		count, err := g.attribute(name)
		if err != nil {
			return err
		}
		if count == "" {
			continue
		}
		n, err := strconv.Atoi(count)
		if err != nil {
			return fmt.Errorf("%s: not a number: %q", name, count)
		}
		if n > 0 {
			g.through(nil, host.CodeNetwork, subject{UseRDMAProtocol, name, m.what}, fmt.Sprintf(" (module %s is in use)", m.name))
		}
	}
	return nil
}

// subnetManagers adds ports where a subnet manager runs.
func (g *rdmaGuard) subnetManagers() error {
	for _, name := range g.names {
		ports, err := g.list(path.Join(ibDir, name, "ports"))
		if err != nil {
			return err
		}
		for _, port := range ports {
			file := path.Join(ibDir, name, "ports", port, "cap_mask")
			text, err := g.attribute(file)
			if err != nil {
				return err
			}
			if text == "" {
				continue
			}
			mask, err := strconv.ParseUint(text, 0, 32)
			if err != nil {
				return fmt.Errorf("%s: not a number: %q", file, text)
			}
			if mask&isSM == 0 {
				continue
			}
			functions, err := g.ofClass(ibDir, name)
			if err != nil {
				return err
			}
			g.add(host.CodeSubnetManager, functions, false, "runs the fabric's ", subject{UseSubnetManager, file, "subnet manager"},
				fmt.Sprintf(", on port %s of %s", port, name))
		}
	}
	return nil
}

// openNodes adds processes that have nodes uverbsN open, and subnet managers, which have issmN
// open. A process with umadN alone reads counters.
func (g *rdmaGuard) openNodes() error {
	pids, err := host.IfPresent(host.PIDs(g.root))
	if err != nil {
		return err
	}
	for _, pid := range pids {
		files, err := g.openedByName(pid)
		if err != nil {
			return err
		}
		for _, file := range files {
			node, ok := strings.CutPrefix(file.File(), "/dev/infiniband/")
			class, code, use, what := verbsDir, host.CodeInUse, UseRDMAProcess, ""
			switch {
			case !ok:
				continue
			case strings.HasPrefix(node, "uverbs"):
				what = "has " + file.String() + " open"
			case strings.HasPrefix(node, "issm"):
				class, code, use, what = madDir, host.CodeSubnetManager, UseSubnetManager, "has "+file.String()+" open, as a subnet manager"
			default:
				continue
			}
			functions, err := g.ofNode(class, node)
			if err != nil {
				return err
			}
			g.add(code, functions, false, "is in use: ", subject{use, host.ProcessFile(pid, "fd"), g.command(pid)}, " "+what)
		}
	}
	return nil
}

// ofNode returns the functions of a device node: by its place in sysfs, or by the RDMA device that
// it names.
func (g *rdmaGuard) ofNode(class, node string) ([]pci.Address, error) {
	functions, err := g.ofClass(class, node)
	if err != nil || len(functions) > 0 {
		return functions, err
	}
	device, err := g.attribute(path.Join(class, node, "ibdev"))
	if err != nil || device == "" {
		return nil, err
	}
	return g.ofClass(ibDir, device)
}
