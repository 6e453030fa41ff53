package rdma

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
)

// RecordFile is the path of the record.
const RecordFile = change.Dir + "/rdma.json"

// FindOwners is the command that lists lines by which other programs set VFs: keys and attributes of
// udev, systemd.link(5), NetworkManager, nmstate, netplan(5), os-net-config, modprobe and scripts.
const FindOwners = "grep -rniE 'num[_-]?vfs|total[_-]vfs|virtual-?function' /etc"

// RecordKind is the kind of the record's file.
const RecordKind = "rdma record"

// Record is what rdma prepare wants of the machine's adapters from the next boot on. The steps of
// gpustack boot are derived from it.
type Record struct {
	Schema   int        `json:"schema"`
	Kind     string     `json:"kind"`
	Netns    NetnsMode  `json:"netns,omitempty"` // NetnsExclusive, or "" to leave the kernel's default
	Adapters []Prepared `json:"adapters"`        // ordered by address
	// Allowed are recorded adapters that leave the host, or whose VFs do, because --allow names them.
	Allowed []pci.Address `json:"allowed"`
	Files   []File        `json:"files"` // files that were written with the record
}

// File is a file that rdma prepare wrote, with the hash of its content.
type File struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
}

// Use is for what VFs of an adapter, or the whole adapter, are prepared.
type Use string

// The two uses. VFs for guests are bound to vfio-pci, VFs for containers to their host driver.
const (
	ForGuests     Use = "guests"
	ForContainers Use = "containers"
)

// Prepared is the record of one adapter.
type Prepared struct {
	Address           pci.Address `json:"address"`                       // the physical function
	VendorID          pci.ID      `json:"vendor_id"`                     // its vendor
	ProductID         pci.ID      `json:"product_id"`                    // its product
	SubsystemVendorID *pci.ID     `json:"subsystem_vendor_id,omitempty"` // the vendor of the board; absent if unknown
	SubsystemID       *pci.ID     `json:"subsystem_id,omitempty"`        // the board; absent if unknown

	Path      []pci.Address `json:"bridges"`    // the bridges above, outermost first
	Driver    string        `json:"driver"`     // its host driver
	LinkLayer string        `json:"link_layer"` // "InfiniBand", "Ethernet", or "" if unknown
	Use       Use           `json:"for"`        // what the functions are recorded for
	// the physical function itself is assigned, without VFs
	Whole bool `json:"whole"`
	// the mode of the eswitch, "switchdev" or "legacy"; absent to leave it
	Eswitch string `json:"eswitch,omitempty"`
	// what the GUIDs of VFs are derived from instead of the adapter's; absent for the adapter's
	GUIDBase *GUID        `json:"guid_base,omitempty"`
	VFs      []PreparedVF `json:"vfs"` // the VFs, by index; none for a whole adapter
}

// Identity returns what identifies the recorded adapter.
func (p Prepared) Identity() pci.Identity {
	return pci.Identity{Address: p.Address, VendorID: &p.VendorID, ProductID: &p.ProductID,
		SubsystemVendorID: p.SubsystemVendorID, SubsystemID: p.SubsystemID, Path: p.Path}
}

// TooMany returns an error if the adapter can have fewer VFs than are wanted. Its hint is the
// command that changes the firmware's limit.
func (p Prepared) TooMany(vfs int, d *pci.Device) error {
	total := d.SRIOV.TotalVFs
	err := fmt.Errorf("%s: its firmware shows no SR-IOV capability, so it can have no VFs", p.Address)
	if total != nil {
		err = fmt.Errorf("%s: %d VFs are more than its firmware allows (sriov_totalvfs is %d)", p.Address, vfs, *total)
	}
	if total != nil && vfs <= *total {
		return nil
	}
	hint := "raise the limit with the adapter vendor's tool"
	if p.Driver == "mlx5_core" {
		hint = fmt.Sprintf("set the limit with mstconfig -d %s set SRIOV_EN=1 NUM_OF_VFS=%d (package mstflint)", p.Address, vfs)
	}
	return host.WithHint(err, hint+", switch SR-IOV on in the machine's firmware, and power the machine off and on")
}

// PreparedVF is the record of one virtual function.
type PreparedVF struct {
	Index   int         `json:"index"`   // from 0
	Address pci.Address `json:"address"` // the address that the VF will have
	// the VF's product (sriov_vf_device), which differs from that of the physical function
	ProductID pci.ID `json:"product_id"`
	Driver    string `json:"driver"` // the driver that the VF is bound to at boot
	// absent on Ethernet: the driver derives it from the MAC address
	NodeGUID *GUID  `json:"node_guid,omitempty"`
	PortGUID *GUID  `json:"port_guid,omitempty"` // absent on Ethernet, likewise
	MAC      string `json:"mac,omitempty"`       // absent on InfiniBand
}

// At returns the record of the adapter at an address, or nil. A nil record has no adapters.
func (r *Record) At(a pci.Address) *Prepared {
	return r.find(func(p Prepared) bool { return p.Address == a })
}

// Of returns the record of the adapter to which a function belongs, the adapter itself or one of
// its VFs, or nil.
func (r *Record) Of(a pci.Address) *Prepared {
	return r.find(func(p Prepared) bool {
		return p.Address == a || slices.ContainsFunc(p.VFs, func(vf PreparedVF) bool { return vf.Address == a })
	})
}

func (r *Record) find(is func(Prepared) bool) *Prepared {
	if r != nil {
		if i := slices.IndexFunc(r.Adapters, is); i >= 0 {
			return &r.Adapters[i]
		}
	}
	return nil
}

// Whole returns the addresses of adapters that are assigned as a whole. A nil record has none.
func (r *Record) Whole() []pci.Address {
	var whole []pci.Address
	if r != nil {
		whole = append(whole, host.Map(host.Filter(r.Adapters, func(p Prepared) bool { return p.Whole }),
			func(p Prepared) pci.Address { return p.Address })...)
	}
	return whole
}

// VFs returns the VFs that are recorded for a use, of adapters that a machine has. They may not
// exist before the next boot. A nil record has none.
func (r *Record) VFs(use Use, devices pci.Devices) []pci.Address {
	adapters := host.Filter(host.Value(r).Adapters, func(p Prepared) bool { return p.Use == use && devices.At(p.Address) != nil })
	return host.FlatMap(adapters, func(p Prepared) []pci.Address {
		return host.Map(p.VFs, func(vf PreparedVF) pci.Address { return vf.Address })
	})
}

// Left returns the VFs that guests can have until the next boot: of those that this boot has made
// ([steps.Made]) and bound for guests, the ones that are not recorded for guests any more.
func (r *Record) Left(devices pci.Devices, made []pci.Address) []pci.Address {
	recorded := r.VFs(ForGuests, devices)
	return devices.Where(func(d *pci.Device) bool {
		return d.SRIOV.PF != nil && pci.LeavesAlone(d.DriverName()) && !slices.Contains(recorded, d.Address) &&
			(slices.Contains(made, d.Address) || slices.Contains(made, *d.SRIOV.PF))
	})
}

// ReadRecord returns the record, or nil if nothing is recorded.
func ReadRecord(root host.Root) (*Record, error) {
	data, err := root.ReadFile(RecordFile)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ParseRecord(data)
}

// ParseRecord returns the record in the content of its file. Its error names the file.
func ParseRecord(data []byte) (*Record, error) {
	var r Record
	err := host.DecodeSchema(RecordFile, RecordKind, data, &r)
	if errors.Is(err, host.ErrSchema) {
		return nil, err
	}
	if err == nil {
		// As rdma prepare writes it; a person may have edited the file.
		slices.SortStableFunc(r.Adapters, func(a, b Prepared) int { return a.Address.Compare(b.Address) })
		err = r.check()
	}
	if err != nil {
		return nil, host.WithHint(host.OfFile(RecordFile, err),
			host.Textf("restore the file, or remove it and run '%s', and then prepare the adapters again", host.NewCommand("rdma prepare").Flag("none")))
	}
	return &r, nil
}

// check returns an error unless the record is one that rdma prepare can have written. The steps of
// every boot depend on it.
func (r *Record) check() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("malformed: "+format, args...))
		}
	}
	owners := map[string]string{} // of addresses and identities
	unique := func(value, owner string) {
		other, ok := owners[value]
		require(!ok || other == owner, "%s is that of %s and of %s", value, other, owner)
		owners[value] = owner
	}
	require(r.Netns == "" || r.Netns == NetnsExclusive, "netns %q is unknown", r.Netns)
	for _, a := range r.Adapters {
		unique(a.Address.String(), "adapter "+a.Address.String())
	}
	for i, a := range r.Adapters {
		require(a.Eswitch == "" || a.Eswitch == "legacy" || a.Eswitch == "switchdev", "adapter %s has eswitch mode %q", a.Address, a.Eswitch)
		require(r.At(a.Address) == &r.Adapters[i], "adapter %s is listed twice", a.Address)
		require(a.Use == ForGuests || a.Use == ForContainers, "adapter %s is for %q", a.Address, a.Use)
		require(a.Whole != (len(a.VFs) > 0), "adapter %s needs either VFs or whole", a.Address)
		for index, vf := range a.VFs {
			of := fmt.Sprintf("VF %d of %s", index, a.Address)
			require(vf.Index == index, "adapter %s: VF %d is listed as number %d", a.Address, vf.Index, index)
			require(!strings.ContainsAny(vf.Driver, "/.\n"), "adapter %s: VF %d is for driver %q", a.Address, vf.Index, vf.Driver)
			unique(vf.Address.String(), of)
			for _, guid := range []*GUID{vf.NodeGUID, vf.PortGUID} {
				if guid != nil {
					unique(guid.String(), of)
				}
			}
			if vf.MAC != "" {
				unique(strings.ToLower(vf.MAC), of)
			}
		}
	}
	return errors.Join(errs...)
}

// Text returns the content of the record's file.
func (r Record) Text() ([]byte, error) {
	r.Schema, r.Kind = host.Schema, RecordKind
	text, err := json.MarshalIndent(r, "", "  ")
	return append(text, '\n'), err
}
