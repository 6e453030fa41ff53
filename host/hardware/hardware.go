package hardware

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jaypipes/ghw"

	"gpustack/host"
)

// Facts are the facts of a machine. Nil stands for what is unknown, as a warning says.
type Facts struct {
	ID *host.MachineID `json:"id"` // the content of /etc/machine-id; Read leaves it out
	// the server's vendor, from the firmware's tables or the device tree
	Vendor *string `json:"vendor"`
	// the server's product name, from the same source
	Product *string `json:"product"`
	BIOS    BIOS    `json:"bios"`                   // the firmware
	Board   Board   `json:"board"`                  // the main board
	CPU     CPU     `json:"cpu"`                    // the processors that are online
	Memory  Memory  `json:"memory"`                 // the memory of the machine
	Nodes   []Node  `json:"numa_nodes" null:"zero"` // the NUMA nodes, by id
	// block devices of hardware, by name, without partitions and virtual devices
	Disks []Disk `json:"disks" null:"zero"`
	NICs  []NIC  `json:"nics" null:"zero"` // network interfaces of hardware, by name
}

// BIOS is the firmware.
type BIOS struct {
	Vendor  *string `json:"vendor"`  // the firmware's vendor
	Version *string `json:"version"` // the firmware's version
	Date    *string `json:"date"`    // the date of this version
}

// Board is the main board.
type Board struct {
	Vendor  *string `json:"vendor"`  // the board's vendor
	Product *string `json:"product"` // the board's product name
	Version *string `json:"version"` // the board's revision
}

// CPU are the processors that are online.
type CPU struct {
	Model   *string `json:"model"`   // the model of the first processor
	Sockets *int    `json:"sockets"` // sockets of the machine
	Cores   *int    `json:"cores"`   // physical cores of the machine
	Threads *int    `json:"threads"` // logical processors of the machine
	// AddressBits is the size of physical addresses, which Nova can pass through to guests; nil
	// where the kernel does not show it (not x86).
	AddressBits *int `json:"address_bits"`
}

// Memory is the memory of the machine or of a NUMA node.
type Memory struct {
	// installed and online, from memory blocks; nil for kernels without them
	Total *int64 `json:"total_bytes"`
	// MemTotal: what the kernel leaves for programs, huge pages included
	Usable    *int64      `json:"usable_bytes"`
	HugePages []HugePages `json:"hugepages" null:"zero"` // the pools by the size of their pages
}

// HugePages is a pool of huge pages.
type HugePages struct {
	Size  int64 `json:"size_bytes"` // the size of a page
	Total int64 `json:"total"`      // pages of the pool
	Free  int64 `json:"free"`       // pages that nothing uses
}

// Node is a NUMA node. It may have memory only, or CPUs only.
type Node struct {
	ID    int  `json:"id"`    // the kernel's number of the node
	Cores *int `json:"cores"` // physical cores that are online; 0 for a node of memory alone
	// logical processors that are online; 0 for a node of memory alone
	Threads *int   `json:"threads"`
	Memory  Memory `json:"memory"` // the memory of the node
}

// Disk is a block device of hardware.
type Disk struct {
	Name       string    `json:"name"`       // the kernel's name: "nvme0n1"
	Size       *int64    `json:"size_bytes"` // the capacity
	Model      *string   `json:"model"`      // nil for disks of virtual machines
	Rotational host.Bool `json:"rotational"` // a disk with spinning platters
	Removable  host.Bool `json:"removable"`  // the medium can be removed
	// "nvme", "scsi" (SATA and SAS too), "virtio", "ide" or "mmc"; nil for others
	Controller *string `json:"controller"`
}

// NIC is a network interface of hardware.
type NIC struct {
	Name    string  `json:"name"`        // the interface's name: "ens1f0"
	Address *string `json:"pci_address"` // nil for an interface without a PCI function, such as USB
	Driver  *string `json:"driver"`      // the bound driver
	Speed   *int    `json:"speed_mbps"`  // nil without a link
}

// Read reads the facts of the machine below the root. It starts no program.
func Read(root host.Root) (Facts, []string) {
	p := &probe{root: root}
	// An explicit context, so that no variable of the environment has an effect on ghw, and a logger:
	// each call of ghw resets the level that WithDisableWarnings sets.
	ctx := ghw.WithChroot(root.Path("/"))(context.Background())
	ctx = ghw.WithDisableTools()(ghw.WithLogger(slog.New(slog.DiscardHandler))(ctx))
	var m Facts
	p.readProduct(ctx, &m)
	topology := p.readCPUs(ctx, &m)
	p.readMemory(ctx, &m)
	p.readNodes(ctx, &m, topology)
	p.readDisks(ctx, &m)
	p.readNICs(ctx, &m)
	return m, p.warnings
}

// dmi is the folder with the tables of the firmware (Linux,
// Documentation/ABI/testing/sysfs-class-dmi), deviceTree what machines without them have.
const (
	dmi        = "sys/class/dmi/id"
	deviceTree = "sys/firmware/devicetree/base"
)

// readProduct reads product, BIOS and board.
func (p *probe) readProduct(ctx context.Context, m *Facts) {
	tables, err := p.root.Exists(dmi)
	tree, treeErr := p.root.Exists(deviceTree)
	switch {
	case err != nil:
		p.failed(dmi, err)
		return
	case !tables && (!tree || treeErr != nil):
		p.warn("/%s is missing: product, BIOS and board are unknown", dmi)
		return
	}
	names := host.Map([]string{
		"sys_vendor", "product_name", "product_family", "product_sku", "product_version", "product_serial", "product_uuid",
		"bios_vendor", "bios_version", "bios_date",
		"board_vendor", "board_name", "board_version", "board_asset_tag", "board_serial",
	}, func(name string) string { return dmi + "/" + name })
	if !p.clear(append(names, deviceTree+"/model", deviceTree+"/compatible", deviceTree+"/serial-number", deviceTree+"/chosen/u-boot,version")...) {
		return
	}
	product, err1 := ghw.Product(ctx)
	bios, err2 := ghw.BIOS(ctx)
	board, err3 := ghw.Baseboard(ctx)
	if err := cmp.Or(err1, err2, err3); err != nil {
		p.failed(dmi, err)
		return
	}
	word := func(value, table, property string) *string {
		name := dmi + "/" + table
		switch {
		case !tables && property == "":
			return nil // device trees have no such property
		case !tables:
			name = deviceTree + "/" + property
		}
		switch _, ok := p.read(name); {
		case ok && value != "":
			return &value
		case ok:
			p.warn("/%s: is empty", name)
		}
		return nil
	}
	m.Vendor, m.Product = word(product.Vendor, "sys_vendor", "compatible"), word(product.Name, "product_name", "model")
	m.BIOS = BIOS{word(bios.Vendor, "bios_vendor", ""), word(bios.Version, "bios_version", ""), word(bios.Date, "bios_date", "")}
	m.Board = Board{word(board.Vendor, "board_vendor", "compatible"), word(board.Product, "board_name", "model"), word(board.Version, "board_version", "")}
}

// probe reads what ghw will read, and collects warnings.
type probe struct {
	root     host.Root
	warnings []string
}

// warn adds a warning, once: several subjects depend on some files.
func (p *probe) warn(format string, args ...any) {
	p.warnings = host.Union(p.warnings, fmt.Sprintf(format, args...))
}

// failed adds a warning about a file.
func (p *probe) failed(name string, err error) {
	p.warn("%v", host.OfFile(name, err))
}

// read returns the content of a small file without white space around it. Unless it can be read,
// there is a warning.
func (p *probe) read(name string) (string, bool) {
	text, err := p.root.ReadHead(name, host.MaxAttribute)
	if err != nil {
		p.failed(name, err)
		return "", false
	}
	return strings.Trim(string(text), " \t\n\x00"), true
}
