package machine

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/pci"
)

// Role is what a function is for.
type Role string

// The roles. One that is recorded neither by host prepare nor by container prepare is the host's.
const (
	OfHost      Role = "host"      // recorded for neither
	OfGuest     Role = "guest"     // recorded by host prepare
	OfContainer Role = "container" // recorded by container prepare
)

// contractKind is the kind of the contract's file.
const contractKind = "contract"

// Containers is what container prepare has recorded: the functions whose role is container, and how
// containers get them. It is a section of the contract's file: ParseRecord refuses a function that
// both sections have.
type Containers struct {
	Options   ContainerOptions    `json:"options"`
	Functions []ContainerFunction `json:"functions"` // ordered by address
	Files     []Hash              `json:"files"`     // that were written with the record
}

// ContainerFunction is the record of a function for containers.
type ContainerFunction struct {
	Address           pci.Address   `json:"address"`             // the function
	VendorID          pci.ID        `json:"vendor_id"`           // the function's vendor
	ProductID         pci.ID        `json:"product_id"`          // the function's product
	SubsystemVendorID *pci.ID       `json:"subsystem_vendor_id"` // the vendor of the board; null if unknown
	SubsystemID       *pci.ID       `json:"subsystem_id"`        // the board; null if unknown
	Path              []pci.Address `json:"bridges"`             // the bridges above, outermost first
	HCA               bool          `json:"hca"`                 // an RDMA adapter; otherwise a GPU
	// the GPU's UUID; absent if the driver had not shown it
	UUID string `json:"uuid,omitempty"`
}

// ContainerOptions are the options of container prepare that hold for all its functions.
type ContainerOptions struct {
	UMAD bool `json:"umad_nodes"` // adapters are offered with their umad nodes too
	// the specs are in /etc/cdi, written once; otherwise each boot writes them to /run/cdi
	Static      bool `json:"static"`
	LibraryPath bool `json:"library_path"` // the spec sets LD_LIBRARY_PATH
}

// At returns the record of the function at an address, or nil. A nil record has no functions.
func (c *Containers) At(a pci.Address) *ContainerFunction {
	if c == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(c.Functions, a, func(f ContainerFunction, a pci.Address) int { return f.Address.Compare(a) })
	if !ok {
		return nil
	}
	return &c.Functions[i]
}

// All returns the recorded functions. A nil record has none.
func (c *Containers) All() []ContainerFunction {
	return host.Value(c).Functions
}

// Addresses returns the addresses of the recorded functions. A nil record has none.
func (c *Containers) Addresses() []pci.Address {
	return host.Map(c.All(), func(f ContainerFunction) pci.Address { return f.Address })
}

// Without returns the addresses that are not recorded for containers. A nil record has none.
func (c *Containers) Without(addresses []pci.Address) []pci.Address {
	return slices.DeleteFunc(slices.Clone(addresses), func(a pci.Address) bool { return c.At(a) != nil })
}

// Less returns the record without some functions. A nil record has none.
func (c *Containers) Less(functions []pci.Address) *Containers {
	if c == nil {
		return nil
	}
	rest := *c
	rest.Functions = slices.DeleteFunc(slices.Clone(c.Functions), func(f ContainerFunction) bool { return slices.Contains(functions, f.Address) })
	return &rest
}

// identity returns what identifies the recorded function.
func (f ContainerFunction) identity() pci.Identity {
	return pci.Identity{Address: f.Address, VendorID: &f.VendorID, ProductID: &f.ProductID,
		SubsystemVendorID: f.SubsystemVendorID, SubsystemID: f.SubsystemID, Path: f.Path}
}

// IsAt reports whether the device at the recorded address is the recorded function.
func (f ContainerFunction) IsAt(devices pci.Devices) bool {
	return f.identity().Compare(devices.Identity(f.Address)) == pci.NoDifference
}

// RoleOf returns the role of the function at an address. Either record may be nil.
func RoleOf(guests *Contract, containers *Containers, a pci.Address) Role {
	switch {
	case guests.At(a) != nil:
		return OfGuest
	case containers.At(a) != nil:
		return OfContainer
	default:
		return OfHost
	}
}

// ReadRecord returns what is recorded for guests and for containers, nil for nothing.
func ReadRecord(root host.Root) (*Contract, *Containers, error) {
	data, err := root.ReadFile(ContractFile)
	if host.IsAbsent(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, host.OfFile(ContractFile, err)
	}
	guests, containers, err := ParseRecord(data)
	if err != nil && !errors.Is(err, host.ErrSchema) {
		err = host.WithHint(err, host.Textf("restore the file, or remove it, run '%s', which returns all functions to the host, and prepare again, for containers too",
			host.NewCommand("host prepare").Flag("none")))
	}
	return guests, containers, err
}

// ReadContainers returns what is recorded for containers, or nil.
func ReadContainers(root host.Root) (*Containers, error) {
	_, containers, err := ReadRecord(root)
	return containers, err
}

// ParseRecord returns what the content of the file records for guests and for containers, nil for
// nothing. It fails unless each function has one role. Its error names the file.
func ParseRecord(data []byte) (*Contract, *Containers, error) {
	var file recordFile
	if err := host.DecodeSchema(ContractFile, contractKind, data, &file); err != nil {
		return nil, nil, err
	}
	if err := file.check(); err != nil {
		return nil, nil, host.OfFile(ContractFile, fmt.Errorf("malformed: %w", err))
	}
	return file.Guests, file.Containers, nil
}

// recordFile is the file, with a section for each role: null if nothing has it, for a section that
// is missing may have another name by mistake.
type recordFile struct {
	Guests     *Contract   `json:"guests"`
	Containers *Containers `json:"containers"`
}

// check orders the functions by address, as they are written: a person may have edited the file. It
// returns an error unless each has one role, and each selected one is recorded, as in every
// contract that host prepare writes: without its record, it cannot be compared with the machine.
func (r recordFile) check() error {
	if r.Guests == nil && r.Containers == nil {
		return errors.New("records neither guests nor containers")
	}
	all := slices.Concat(r.Guests.Addresses(), r.Containers.Addresses())
	slices.SortFunc(all, pci.Address.Compare)
	for i := range len(all) - 1 {
		if all[i] == all[i+1] {
			return fmt.Errorf("%s is recorded twice: a function has one role", all[i])
		}
	}
	slices.SortFunc(r.Guests.All(), func(a, b Function) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(r.Containers.All(), func(a, b ContainerFunction) int { return a.Address.Compare(b.Address) })
	for _, a := range host.Value(r.Guests).Selected {
		if r.Guests.At(a) == nil {
			return fmt.Errorf("selected %s is not among the functions", a)
		}
	}
	return nil
}
