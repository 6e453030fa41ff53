package hardware

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jaypipes/ghw"

	"gpustack/host"
)

// Machine are the facts of a machine. Nil stands for what is unknown, as a warning says.
type Machine struct {
	Vendor  *string `json:"vendor"`
	Product *string `json:"product"`
	BIOS    BIOS    `json:"bios"`
	Board   Board   `json:"board"`
	CPU     CPU     `json:"cpu"`
	Memory  Memory  `json:"memory"`
	Nodes   []Node  `json:"numa_nodes" null:"zero"` // by id
	Disks   []Disk  `json:"disks" null:"zero"`      // by name, without partitions and virtual devices
	NICs    []NIC   `json:"nics" null:"zero"`       // by name, those of hardware only
}

// BIOS is the firmware.
type BIOS struct {
	Vendor  *string `json:"vendor"`
	Version *string `json:"version"`
	Date    *string `json:"date"`
}

// Board is the main board.
type Board struct {
	Vendor  *string `json:"vendor"`
	Product *string `json:"product"`
	Version *string `json:"version"`
}

// CPU are the processors that are online.
type CPU struct {
	Model   *string `json:"model"`
	Sockets *int    `json:"sockets"`
	Cores   *int    `json:"cores"`
	Threads *int    `json:"threads"`
	// AddressBits is the size of physical addresses, which Nova can pass through to guests.
	AddressBits *int `json:"address_bits"`
}

// Memory is the memory of the machine or of a NUMA node.
type Memory struct {
	Total  *int64 `json:"total_bytes"`  // installed and online
	Usable *int64 `json:"usable_bytes"` // MemTotal, what the kernel has left for programs
	// HugePages are the pools by the size of their pages. They are part of the usable memory.
	HugePages []HugePages `json:"hugepages" null:"zero"`
}

// HugePages is a pool of huge pages.
type HugePages struct {
	Size  int64 `json:"size_bytes"`
	Total int64 `json:"total"`
	Free  int64 `json:"free"`
}

// Node is a NUMA node. It may have memory only, or CPUs only.
type Node struct {
	ID      int    `json:"id"`
	Cores   *int   `json:"cores"`
	Threads *int   `json:"threads"`
	Memory  Memory `json:"memory"`
}

// Disk is a block device of hardware.
type Disk struct {
	Name       string    `json:"name"`
	Size       *int64    `json:"size_bytes"`
	Model      *string   `json:"model"`
	Rotational host.Bool `json:"rotational"`
	Removable  host.Bool `json:"removable"`
	Controller *string   `json:"controller"` // nvme, scsi (SATA too), virtio, ide, mmc
}

// NIC is a network interface of hardware.
type NIC struct {
	Name    string  `json:"name"`
	Address *string `json:"pci_address"` // nil for one without a PCI function, such as USB
	Driver  *string `json:"driver"`
	Speed   *int    `json:"speed_mbps"` // nil without a link
}

// Read reads the facts of the machine below the root. It starts no program.
func Read(root host.Root) (Machine, []string) {
	p := &probe{root: root}
	// An explicit context, so that no variable of the environment has an effect on ghw, and a logger:
	// each call of ghw resets the level that WithDisableWarnings sets.
	ctx := ghw.WithChroot(root.Path("/"))(context.Background())
	ctx = ghw.WithDisableTools()(ghw.WithLogger(slog.New(slog.DiscardHandler))(ctx))
	var m Machine
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
func (p *probe) readProduct(ctx context.Context, m *Machine) {
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
	var names []string
	for _, name := range []string{
		"sys_vendor", "product_name", "product_family", "product_sku", "product_version", "product_serial", "product_uuid",
		"bios_vendor", "bios_version", "bios_date",
		"board_vendor", "board_name", "board_version", "board_asset_tag", "board_serial",
	} {
		names = append(names, dmi+"/"+name)
	}
	if !p.clear(append(names, deviceTree+"/model", deviceTree+"/compatible", deviceTree+"/serial-number", deviceTree+"/chosen/u-boot,version")...) {
		return
	}
	product, err1 := ghw.Product(ctx)
	bios, err2 := ghw.BIOS(ctx)
	board, err3 := ghw.Baseboard(ctx)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			p.failed(dmi, err)
			return
		}
	}
	word := func(value, table, property string) *string {
		name := dmi + "/" + table
		if !tables {
			name = deviceTree + "/" + property
		}
		if !tables && property == "" {
			return nil // device trees have no such property
		}
		_, ok := p.read(name)
		if ok && value == "" {
			p.warn("/%s: is empty", name)
		}
		if !ok || value == "" {
			return nil
		}
		return &value
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
	if w := fmt.Sprintf(format, args...); !slices.Contains(p.warnings, w) {
		p.warnings = append(p.warnings, w)
	}
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
