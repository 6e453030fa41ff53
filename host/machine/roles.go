package machine

import (
	"bytes"
	"encoding/json"
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

// schemaContainers is the version of the contract's format once something is recorded for
// containers. Releases that read only [Schema] would take a container's GPU for a guest's.
const schemaContainers = 2

// Containers is what container prepare has recorded: the functions whose role is container, and how
// containers get them. It is a part of the contract's file, whose list of functions has a role for
// each, so that no function can have two.
type Containers struct {
	Functions []ContainerFunction // ordered by address
	Options   ContainerOptions
	Files     []Hash // that were written with the record
}

// ContainerFunction is the record of a function for containers.
type ContainerFunction struct {
	Address           pci.Address   `json:"address"`
	VendorID          pci.ID        `json:"vendor_id"`
	ProductID         pci.ID        `json:"product_id"`
	SubsystemVendorID *pci.ID       `json:"subsystem_vendor_id"`
	SubsystemID       *pci.ID       `json:"subsystem_id"`
	Path              []pci.Address `json:"path"` // the bridges above, outermost first
	HCA               bool          `json:"hca"`  // an RDMA adapter, else a GPU
}

// ContainerOptions are the options of container prepare that hold for all its functions.
type ContainerOptions struct {
	GPUKind       string `json:"gpu_kind"`       // of the CDI spec of GPUs
	HCAKind       string `json:"hca_kind"`       // of the CDI spec of RDMA adapters
	UMAD          bool   `json:"umad"`           // adapters are offered with their umad nodes too
	Static        bool   `json:"static"`         // specs are in /etc/cdi instead of /run/cdi
	LibraryPath   bool   `json:"library_path"`   // the spec sets LD_LIBRARY_PATH
	LibraryFolder string `json:"library_folder"` // of the driver's libraries in containers
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
	if c == nil {
		return nil
	}
	return c.Functions
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

// roled is a function in the file, with its role. Functions for guests have none there: earlier
// releases wrote no other.
type roled struct {
	Role Role `json:"role"`
	ContainerFunction
}

// ReadRecord returns what is recorded for guests and for containers, nil for nothing.
func ReadRecord(root host.Root) (*Contract, *Containers, error) {
	data, err := root.ReadFile(ContractFile)
	if host.IsAbsent(err) {
		return nil, nil, nil
	}
	var guests *Contract
	var containers *Containers
	if err == nil {
		guests, containers, err = ParseRecord(data)
	}
	if err != nil {
		return nil, nil, host.OfFile(ContractFile, err)
	}
	return guests, containers, nil
}

// ReadContainers returns what is recorded for containers, or nil.
func ReadContainers(root host.Root) (*Containers, error) {
	_, containers, err := ReadRecord(root)
	return containers, err
}

// ParseContainers returns what the content of the file records for containers, or nil.
func ParseContainers(content []byte) (*Containers, error) {
	_, containers, err := ParseRecord(content)
	return containers, err
}

// ParseRecord returns what the content of the file records for guests and for containers, nil for
// nothing. It fails unless each function has one role.
func ParseRecord(data []byte) (*Contract, *Containers, error) {
	var peek struct {
		Schema int `json:"schema"`
	}
	// What is wrong with the document is reported below, by a reader that names the place.
	switch err := json.Unmarshal(data, &peek); {
	case err == nil && peek.Schema > schemaContainers:
		return nil, nil, host.DecodeSchema(data, schemaContainers, new(struct{}))
	case err != nil || peek.Schema != schemaContainers:
		guests, err := parseGuests(data)
		return guests, nil, err
	}
	var document map[string]json.RawMessage
	if err := host.DecodeJSON(data, &document); err != nil {
		return nil, nil, err
	}
	var functions []json.RawMessage
	var options ContainerOptions
	var files []Hash
	for name, v := range map[string]any{"functions": &functions, "containers": &options, "container_files": &files} {
		text, ok := document[name]
		if !ok {
			return nil, nil, fmt.Errorf("malformed JSON: %s is missing", name)
		}
		if err := host.DecodeJSON(text, v); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	c, ofGuests, err := splitRoles(functions)
	if err != nil {
		return nil, nil, err
	}
	c.Options, c.Files = options, files
	var guests *Contract
	if _, ok := document["driver"]; ok || len(ofGuests) > 0 {
		delete(document, "containers")
		delete(document, "container_files")
		document["schema"] = json.RawMessage(fmt.Sprint(Schema))
		document["functions"] = slices.Concat([]byte("["), bytes.Join(ofGuests, []byte(",")), []byte("]"))
		rest, err := json.Marshal(document)
		if err != nil {
			return nil, nil, err
		}
		if guests, err = parseGuests(rest); err != nil {
			return nil, nil, err
		}
	}
	seen := map[pci.Address]bool{}
	for _, a := range addresses(guests, c) {
		if seen[a] {
			return nil, nil, fmt.Errorf("malformed: %s is recorded twice: a function has one role", a)
		}
		seen[a] = true
	}
	return guests, c, nil
}

// splitRoles returns the functions for containers, and the texts of those for guests.
func splitRoles(functions []json.RawMessage) (*Containers, [][]byte, error) {
	var ofGuests [][]byte
	c := &Containers{Functions: []ContainerFunction{}}
	for i, text := range functions {
		var of struct {
			Role *Role `json:"role"`
		}
		if err := json.Unmarshal(text, &of); err != nil {
			return nil, nil, fmt.Errorf("malformed: functions[%d]: %w", i, err)
		}
		switch {
		case of.Role == nil:
			ofGuests = append(ofGuests, text)
		case *of.Role == OfContainer:
			var f roled
			if err := host.DecodeJSON(text, &f); err != nil {
				return nil, nil, fmt.Errorf("functions[%d]: %w", i, err)
			}
			c.Functions = append(c.Functions, f.ContainerFunction)
		default:
			return nil, nil, fmt.Errorf("malformed: functions[%d]: role %q is unknown", i, *of.Role)
		}
	}
	slices.SortStableFunc(c.Functions, func(a, b ContainerFunction) int { return a.Address.Compare(b.Address) })
	return c, ofGuests, nil
}

func addresses(guests *Contract, containers *Containers) (all []pci.Address) {
	if guests != nil {
		for _, f := range guests.Functions {
			all = append(all, f.Address)
		}
	}
	for _, f := range containers.Functions {
		all = append(all, f.Address)
	}
	return all
}
