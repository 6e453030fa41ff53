package prepare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
)

// ContractFile is where the contract lies.
const ContractFile = change.Dir + "/contract.json"

// Contract is what was asked for and what was planned for it: what the machine is
// to be after its reboot.
type Contract struct {
	Schema   int           `json:"schema"`
	Driver   string        `json:"driver"`
	Selected []pci.Address `json:"selected"`                // by the operator, or as the default
	Allowed  []pci.Address `json:"allowed"`                 // refusals that were lifted
	Unsafe   bool          `json:"allow_unsafe_interrupts"` // was asked for
	NVSwitch NVSwitch      `json:"nvswitch,omitempty"`      // "" where no choice was made
	// Functions are all that go to guests: those selected, and all that go with them.
	Functions []Function `json:"functions"`
	Arguments []string   `json:"arguments"` // that the kernel is to be started with
	Files     []Hash     `json:"files"`
}

// Function is one that goes to guests.
type Function struct {
	Address           pci.Address   `json:"address"`
	VendorID          pci.ID        `json:"vendor_id"`
	ProductID         pci.ID        `json:"product_id"`
	SubsystemVendorID *pci.ID       `json:"subsystem_vendor_id"`
	SubsystemID       *pci.ID       `json:"subsystem_id"`
	Path              []pci.Address `json:"path"`                 // the bridges above, from the root port down
	SysfsPath         string        `json:"sysfs_path,omitempty"` // its folder without links, if it is bound by address
	BootVGA           bool          `json:"boot_vga,omitempty"`   // it was the console
	Group             *int          `json:"group"`                // null while the IOMMU is off
	Members           []pci.Address `json:"members"`
	Driver            string        `json:"driver"`
	By                By            `json:"by"`
}

// ids is the product, as drivers take it.
func (f Function) ids() string {
	return f.VendorID.String() + ":" + f.ProductID.String()
}

// isAt reports whether the device at a recorded address is the recorded function. Among those that
// are bound by address there may be identical devices, which only the board and the slot tell apart.
func (n Node) isAt(f Function) bool {
	d := n.device(f.Address)
	return d != nil && d.IsVendor(f.VendorID) && d.ProductID != nil && *d.ProductID == f.ProductID && (f.By == ByIDs ||
		!differs(d.SubsystemVendorID, f.SubsystemVendorID) && !differs(d.SubsystemID, f.SubsystemID) && slices.Equal(n.path(d), f.Path))
}

// described is what tells a recorded function from others.
func (f Function) described() string {
	if f.By == ByIDs {
		return f.ids()
	}
	return f.ids() + " below " + orRoot(f.Path)
}

// holdsWith tells whether a driver is recorded for a function. Nothing is in no record.
func (c *Contract) holdsWith(a pci.Address, driver string) bool {
	return c != nil && slices.ContainsFunc(c.Functions, func(f Function) bool { return f.Address == a && f.Driver == driver })
}

// wasConsole reports whether a function is recorded as the console. Nothing is in no record.
func (c *Contract) wasConsole(a pci.Address) bool {
	return c != nil && slices.ContainsFunc(c.Functions, func(f Function) bool { return f.Address == a && f.BootVGA })
}

// By is how a function is bound at boot.
type By string

// A driver takes every function of a product by ids, or one by its address: the
// way for twins of which one stays, and where the kernel itself holds a driver
// that would be faster.
const (
	ByIDs     By = "ids"
	ByAddress By = "address"
)

// Hash identifies what a file of ours holds.
type Hash struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
}

const schema = 1

// ReadContract returns what is recorded, or nil.
func ReadContract(root host.Root) (*Contract, error) {
	data, err := root.ReadFile(ContractFile)
	if host.IsAbsent(err) {
		return nil, nil
	}
	var c Contract
	if err == nil {
		err = host.DecodeSchema(data, schema, &c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ContractFile, host.Cause(err))
	}
	return &c, nil
}

// text writes a contract with a line for each field, and for each function and
// file, so that its diff can be read.
func (c Contract) text() ([]byte, error) {
	var b bytes.Buffer
	var errs []error
	field := func(before, name string, value any) {
		line, err := json.Marshal(value)
		errs = append(errs, err)
		fmt.Fprintf(&b, "%s  %q: %s", before, name, line)
	}
	field("{\n", "schema", c.Schema)
	field(",\n", "driver", c.Driver)
	field(",\n", "selected", c.Selected)
	field(",\n", "allowed", c.Allowed)
	field(",\n", "allow_unsafe_interrupts", c.Unsafe)
	if c.NVSwitch != "" { // records made without the choice stay byte for byte as they are
		field(",\n", "nvswitch", c.NVSwitch)
	}
	b.WriteString(",\n  \"functions\": ")
	errs = append(errs, lines(&b, c.Functions))
	field(",\n", "arguments", c.Arguments)
	b.WriteString(",\n  \"files\": ")
	errs = append(errs, lines(&b, c.Files))
	b.WriteString("\n}\n")
	return b.Bytes(), errors.Join(errs...)
}

// lines writes a list with a line for each element.
func lines[T any](b *bytes.Buffer, list []T) error {
	separator := "[\n"
	for _, element := range list {
		line, err := json.Marshal(element)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%s    %s", separator, line)
		separator = ",\n"
	}
	if len(list) == 0 {
		b.WriteString("[")
	}
	b.WriteString("]")
	return nil
}
