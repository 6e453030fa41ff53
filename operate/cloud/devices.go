package cloud

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/cleanup"
	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/devspec"
	"gpustack/nova/pools"
)

// DevicesOptions name what nova devices reads, and select the devices.
type DevicesOptions struct {
	Sources ExplainOptions // its Cloud, Confs, Inventories, Reports, Database and API
	// The devices to list: of a host, of an alias, of instances of a project (id, or with a cloud its
	// name), in a state; "" for all.
	Host, Alias, Project string
	State                DeviceState
}

// DeviceState is what is known of a device.
type DeviceState string

// States of devices. Each is what all sources agree on.
const (
	DeviceFree     DeviceState = "free"     // the next guest may get the device
	DeviceAssigned DeviceState = "instance" // an instance has the device
	DeviceToClean  DeviceState = "to-clean" // reserved after its guest, until an operator releases it
	// assigned to none, and not offered: its host is disabled or down, or it is reserved or blocked.
	DeviceDisabled   DeviceState = "disabled"
	DeviceOfHost     DeviceState = "host"       // available to the host
	DeviceContainer  DeviceState = "container"  // available to containers
	DeviceStale      DeviceState = "stale"      // its row does not describe the device
	DeviceSuspicious DeviceState = "suspicious" // its row is wrong, but a repair is not proved to be safe
	DeviceUnknown    DeviceState = "unknown"    // a source cannot show it, or two contradict each other
)

// DeviceStates returns all states.
func DeviceStates() []string {
	return []string{string(DeviceFree), string(DeviceAssigned), string(DeviceToClean), string(DeviceDisabled), string(DeviceOfHost),
		string(DeviceContainer), string(DeviceStale), string(DeviceSuspicious), string(DeviceUnknown)}
}

// Device is a device of a compute node.
type Device struct {
	Host string `json:"host"` // the host's name in Nova
	Node string `json:"node"` // the compute node
	// the host's availability zone; null if it is unknown
	Zone string `json:"availability_zone" null:"zero"`
	// the PCI address; of virtual functions that only Placement shows, that of their physical one
	Address string `json:"address"`
	// the UUID of the resource provider; null if Placement does not show the device
	Provider string `json:"provider" null:"zero"`
	Class    string `json:"resource_class" null:"zero"` // as Provider
	Vendor   string `json:"vendor_id" null:"zero"`      // the function's vendor
	ID       string `json:"product_id" null:"zero"`     // the function's product
	// the product's name, or else its ids or its resource class
	Product string `json:"product"`
	// the aliases of --conf that request the device; without --conf the name that host scan gives
	// the product
	Aliases []string    `json:"alias_names"`
	State   DeviceState `json:"state"` // what all sources agree on
	// the letter in docs/repair.md of a stale, suspicious or unknown row; "" for other devices
	Case   cleanup.Case `json:"case"`
	Reason string       `json:"reason"` // why the device is in this state; "" if the state says it
	// when the row was last changed; of an instance that only Placement shows, when the server was
	// created; null if it is unknown
	Since    *time.Time      `json:"since"`
	Instance *DeviceInstance `json:"instance"`           // the instance that has the device; null for none
	Remedy   host.Text       `json:"remedy" null:"zero"` // the command that says more or releases the device; null for none
	Sources  []string        `json:"shown_by"`           // "database", "placement" and "inventory", as far as they show the device
	kind     pci.DeviceType  // "" if it is unknown
	text     string          // the product's name by an inventory
	row      *cleanup.Device // nil if no database shows it
}

// DeviceInstance is the instance that has a device.
type DeviceInstance struct {
	UUID    string `json:"instance_uuid"`          // the instance
	Name    string `json:"name" null:"zero"`       // its name; null if no source shows it
	Project string `json:"project_id" null:"zero"` // its project; null if no source shows it
}

// Contradiction is a difference between two sources about a device.
type Contradiction struct {
	Host    string    `json:"host"`                // the host's name in Nova
	Address string    `json:"address" null:"zero"` // the PCI address; null for all devices of the host
	Seen    string    `json:"seen"`                // what each source shows
	Remedy  host.Text `json:"remedy"`              // the command that explains it
}

// DeviceTotal counts the listed devices of a product in an availability zone.
type DeviceTotal struct {
	Product string         `json:"product"`                       // as of the devices
	Zone    string         `json:"availability_zone" null:"zero"` // null if it is unknown
	Total   int            `json:"total"`                         // the number of devices
	States  map[string]int `json:"states"`                        // numbers of devices by their state
}

// DeviceList is what nova devices lists.
type DeviceList struct {
	Devices        []Device        `json:"devices"`        // by host and address
	Contradictions []Contradiction `json:"contradictions"` // between sources
	Totals         []DeviceTotal   `json:"totals"`         // of the listed devices, by product and zone
	Warnings       []string        `json:"warnings"`       // what could not be read
}

// ListDevices lists the devices of compute nodes as Placement, the databases and inventories show
// them. It changes nothing. What a source cannot show is unknown; with an error, the list has what the
// others show.
//
// Placement is read before the databases: Nova makes an allocation after the records that explain it.
func ListDevices(ctx context.Context, root host.Root, o DevicesOptions) (DeviceList, error) {
	l := newLister()
	l.root, l.options = root, o.Sources
	if err := l.readFiles(); err != nil {
		return DeviceList{}, err
	}
	aliases, err := nova.DefinedBy(l.facts.Sides)
	if err != nil {
		return DeviceList{}, err
	}
	databases, options, lost, err := l.open(ctx)
	if err != nil {
		return DeviceList{}, err
	}
	if databases != nil {
		defer databases.Close() //nolint:errcheck // only read
	}
	l.fail(lost)
	options.Host, l.proof = o.Host, options.Proof
	if databases == nil || o.Sources.Cloud.HasCredentials() {
		if err := l.readCloud(ctx, &o, databases != nil); err != nil {
			return DeviceList{}, err
		}
	}
	if databases != nil {
		l.fail(databases.Unread())
		if err := l.readRows(ctx, databases, options); err != nil {
			return DeviceList{}, err
		}
	}
	l.join(aliases.Aliases)
	isHost := func(p *place) bool { return p.is(o.Host) }
	if o.Host != "" && !slices.ContainsFunc(slices.Collect(maps.Values(l.places)), isHost) {
		l.fail(fmt.Errorf("--host %s: no source has such a host", o.Host))
	}
	return l.selected(o), l.unread
}

// place is a compute node.
type place struct {
	host, node, zone string
	off              string // why nova-scheduler does not use it; "" if it does
	silent           bool   // its cell does not answer
	hasRows          bool   // a database was read that has the node
}

// is reports whether a name, "" for any, is that of the host or its compute node.
func (p *place) is(name string) bool { return name == "" || name == p.host || name == p.node }

// owner is an instance that has devices.
type owner struct {
	DeviceInstance
	created *time.Time
	isBusy  bool // Nova is building it, or changes it
}

// provided is a provider of PCI devices in Placement.
type provided struct {
	cloud.Provider
	inventories map[string]cloud.Inventory // nil: not read
	once        bool                       // its devices stay reserved after their first guest
}

// lister is one run of ListDevices.
type lister struct {
	explaining
	now            time.Time         // by Nova's clock
	places         map[string]*place // by the name of the node
	providers      []provided
	moves          map[string]string // instances by the uuid of an open migration
	owners         map[string]owner
	proof          cleanup.Proof
	lost           bool                 // Placement could not be read
	groups         map[string][]*Device // by the name that a provider of them has in Placement
	all            []*Device
	contradictions []Contradiction
	unread         error
}

func newLister() *lister {
	return &lister{now: time.Now().UTC(), proof: cleanup.NoProof(), places: map[string]*place{}, moves: map[string]string{}, owners: map[string]owner{},
		groups: map[string][]*Device{}}
}

// add adds a device to those that a provider of a name has.
func (l *lister) add(provider string, p *place, d Device) *Device {
	d.Host, d.Node, d.Zone, d.Address = p.host, p.node, p.zone, strings.ToLower(d.Address)
	d.Aliases, d.Sources = []string{}, append([]string{}, d.Sources...)
	l.groups[provider], l.all = append(l.groups[provider], &d), append(l.all, &d)
	return &d
}

// judge returns the command that judges the rows and allocations of a compute node.
func (p *place) judge() host.Text {
	return host.NewCommand("repair-migration").Flag("host", p.host).Text()
}

// contradict adds what sources contradict each other in about some devices, and the command that
// explains it.
func (l *lister) contradict(p *place, address, seen string, remedy host.Text, devices ...*Device) {
	l.contradictions = append(l.contradictions, Contradiction{p.host, strings.ToLower(address), seen, remedy})
	for _, d := range devices {
		if d.Case == "" {
			d.State, d.Reason, d.Instance, d.Remedy = DeviceUnknown, "sources contradict each other", nil, remedy
		}
	}
}

// placeOf returns the compute node in the name of a provider, and the address (nova/compute/
// pci_placement_translator.py).
func (l *lister) placeOf(provider string) (at *place, address string) {
	i := max(0, strings.LastIndexByte(provider, '_'))
	node, address := provider[:i], strings.TrimPrefix(provider[i:], "_")
	if l.places[node] == nil {
		l.places[node] = &place{host: node, node: node}
	}
	return l.places[node], address
}

// join compares what the sources show.
func (l *lister) join(aliases []nova.Named) {
	for i := range l.providers {
		l.joinProvider(&l.providers[i])
	}
	for _, h := range l.hosts {
		l.joinInventory(h)
	}
	for _, d := range l.all {
		at, use := l.places[d.Node], l.proof.Holder(d.Host, d.Address, time.Time{})
		// Rows are judged by guest reports already.
		if use.Named && d.row == nil && (d.State == DeviceFree || d.State == DeviceToClean) {
			l.contradict(at, d.Address, fmt.Sprintf("guest %s uses the device by the report of its host, "+
				"and Placement has no allocation", use.Guest), at.judge(), d)
		}
		switch {
		case d.State != DeviceFree:
		case at.silent:
			d.State, d.Reason = DeviceUnknown, "its cell does not answer"
		case l.lost:
			d.State, d.Reason = DeviceUnknown, "Placement, which may reserve the device, could not be read"
		case at.off != "":
			d.State, d.Reason = DeviceDisabled, at.off
		}
		if d.Instance != nil {
			if o, known := l.owners[cleanup.KeyOf(d.Instance.UUID)]; known {
				*d.Instance = o.DeviceInstance
				d.Since = cmp.Or(d.Since, o.created)
			}
		}
		l.name(d, aliases)
	}
}

// joinProvider compares a provider with the rows of its devices.
func (l *lister) joinProvider(p *provided) {
	at, address := l.placeOf(p.Name)
	group := l.groups[p.Name]
	if p.inventories == nil && len(group) == 0 {
		group = []*Device{l.add(p.Name, at, Device{Address: address, State: DeviceFree})}
	}
	for _, d := range group {
		d.Provider = p.UUID
		switch {
		case p.inventories != nil:
			d.Sources = append(d.Sources, "placement")
		case d.State == DeviceFree:
			d.State, d.Reason = DeviceUnknown, "Placement has not shown what the provider has"
		}
	}
	for class, i := range p.inventories {
		held, idle := map[string]int{}, max(0, i.Total-i.Used)
		for consumer, n := range i.Held {
			held[cmp.Or(l.moves[consumer], consumer)] += n
		}
		reserved := min(idle, i.Reserved)
		for _, d := range group {
			d.Class = class
		}
		if len(group) == 0 {
			group = l.provide(p, at, address, class, held, idle)
			if at.hasRows {
				l.contradict(at, address, "Placement has the device, and the database has no row of it", at.judge(), group...)
			}
		} else if seen := l.compare(group, held); seen != "" {
			l.contradict(at, address, seen, at.judge(), group...)
		}
		for _, d := range group {
			if d.State == DeviceFree && reserved > 0 {
				reserved--
				l.reserve(d, p.once)
			}
		}
	}
}

// provide adds the devices of a provider that no database shows.
func (l *lister) provide(p *provided, at *place, address, class string, held map[string]int, idle int) (group []*Device) {
	d := Device{Address: address, Provider: p.UUID, Class: class, Sources: []string{"placement"}, State: DeviceFree}
	if vendor, product, ok := devspec.IDsOf(class); ok {
		d.Vendor, d.ID = vendor.String(), product.String()
	}
	for range idle {
		group = append(group, l.add(p.Name, at, d))
	}
	for consumer, n := range held {
		d.State, d.Instance, d.Reason, d.Remedy = DeviceAssigned, &DeviceInstance{UUID: consumer}, "", nil
		if _, known := l.owners[cleanup.KeyOf(consumer)]; !known {
			d.State, d.Instance = DeviceUnknown, nil
			d.Reason = "consumer " + consumer + " is neither a server nor a migration that is open"
			d.Remedy = at.judge()
		}
		for range n {
			group = append(group, l.add(p.Name, at, d))
		}
	}
	return group
}

// compare returns what differs between rows and the allocations on their provider, "" for nothing.
// Instances that Nova is changing, and rows that are judged to be wrong, are not compared.
func (l *lister) compare(group []*Device, held map[string]int) string {
	rows := map[string]int{}
	for _, d := range group {
		switch {
		case d.Case != "":
			return ""
		case d.Instance != nil:
			rows[cleanup.KeyOf(d.Instance.UUID)]++
		}
	}
	var differ []string
	for uuid := range held {
		rows[uuid] += 0
	}
	for _, uuid := range slices.Sorted(maps.Keys(rows)) {
		if !l.owners[uuid].isBusy && rows[uuid] != held[uuid] {
			differ = append(differ, fmt.Sprintf("instance %s has %s by the database, and %d by Placement",
				uuid, host.Numbered(rows[uuid], "device"), held[uuid]))
		}
	}
	return strings.Join(differ, "; ")
}

// reserve sets the state of a device that Placement reserves.
func (l *lister) reserve(d *Device, once bool) {
	if d.State, d.Reason = DeviceDisabled, "reserved in Placement"; !once {
		return
	}
	// Without a time of change, an hour ago, as of allocations (cleanup.Unproved).
	row, since := cleanup.Device{Address: d.Address, Type: cleanup.TypePCI}, l.now.Add(-time.Hour)
	if d.row != nil {
		row, since = *d.row, d.row.LastChange()
	}
	isProved, why := l.proof.At(l.now).Absent(d.Host, "", []cleanup.Device{row}, since)
	d.State, d.Reason = DeviceToClean, "reserved after its guest (one_time_use); "+why
	d.Remedy = host.Textf("%s; %s", cleanup.ReportStep("", d.Host), host.NewCommand("nova devices").Flag("guests", d.Host+".json"))
	if isProved {
		d.Reason = "no guest has the device, by the report of its host"
		d.Remedy = host.Textf("openstack resource provider inventory set --amend --resource %s:reserved=0 %s", d.Class, d.Provider)
	}
}

// joinInventory adds what an inventory shows of GPUs.
func (l *lister) joinInventory(h nova.Host) {
	at := l.places[h.InNova()]
	for _, p := range l.places {
		if at == nil && (h.Named(p.host) || h.Named(p.node)) {
			at = p
		}
	}
	if at == nil {
		at = &place{host: h.InNova(), node: h.InNova()}
		l.places[at.node] = at
	}
	for i := range h.Devices {
		f := &h.Devices[i]
		group := l.groups[providerName(at.node, f.Address.String())]
		for _, d := range group {
			if d.Address == f.Address.String() {
				d.describe(f)
			}
		}
		check := host.NewCommand("nova check").Flag("inventory", h.Name+".json").Text()
		d := Device{Address: f.Address.String(), State: DeviceOfHost}
		switch inContainers := slices.Contains(h.Containers, f.Address); {
		case len(group) > 0 && inContainers:
			l.contradict(at, d.Address, "the inventory has the device for containers, and Nova offers it", check, group...)
			continue
		case len(group) > 0 || !f.IsGPU() || f.IsManagementConsole():
			continue
		case inContainers:
			d.State = DeviceContainer
		case slices.Contains(h.Given, f.Address):
			d.State, d.Reason, d.Remedy = DeviceUnknown, "prepared for guests, and no other source shows the device", check
		}
		l.add(providerName(at.node, d.Address), at, d).describe(f)
	}
}

// providerName is the inverse of placeOf.
func providerName(node, address string) string { return node + "_" + strings.ToUpper(address) }

// describe adds what an inventory shows of the function.
func (d *Device) describe(f *pci.Device) {
	if d.Sources = append(d.Sources, "inventory"); f.VendorID != nil && f.ProductID != nil {
		d.Vendor, d.ID = f.VendorID.String(), f.ProductID.String()
	}
	d.kind = cmp.Or(host.Value(f.DeviceType), d.kind)
	d.text = nova.AliasName(f)
}

// name adds the names of the product and of the aliases that request the device.
func (l *lister) name(d *Device, aliases []nova.Named) {
	vendor, vendorErr := pci.ParseID(d.Vendor)
	product, productErr := pci.ParseID(d.ID)
	isKnown := vendorErr == nil && productErr == nil
	if d.Product = d.text; d.Product == "" && isKnown {
		d.Product = cmp.Or(pci.AliasName(vendor, product, ""), d.Vendor+":"+d.ID)
	}
	d.Product = cmp.Or(d.Product, d.Class, "unknown")
	if len(l.facts.Sides) == 0 && isKnown && d.Product != d.Vendor+":"+d.ID {
		d.Aliases = []string{d.Product}
	}
	pool := pools.Pool{Vendor: d.Vendor, Product: d.ID, Type: string(d.kind), Count: 1}
	for _, a := range aliases {
		asked := map[string]any{"vendor_id": a.VendorID.String(), "product_id": a.ProductID.String()}
		if a.DeviceType != "" && d.kind != "" {
			asked["device_type"] = a.DeviceType
		}
		isAsked := a.ResourceClass != "" && devspec.ResourceClass(a.ResourceClass, 0, 0) == d.Class
		if a.HasIDs {
			isAsked = (pools.Devices{Release: nova.Newest}).Selects(pools.NewRequest([]map[string]any{asked}), pool)
		}
		if isAsked && !slices.Contains(d.Aliases, a.Name) {
			d.Aliases = append(d.Aliases, a.Name)
		}
	}
}

// selected returns the list of the devices that options select.
func (l *lister) selected(o DevicesOptions) DeviceList {
	list := DeviceList{[]Device{}, []Contradiction{}, []DeviceTotal{}, append([]string{}, l.warnings...)}
	for _, d := range l.all {
		if l.places[d.Node].is(o.Host) && (o.State == "" || o.State == d.State) &&
			(o.Alias == "" || slices.Contains(d.Aliases, o.Alias)) &&
			(o.Project == "" || d.Instance != nil && d.Instance.Project == o.Project) {
			list.Devices = append(list.Devices, *d)
		}
	}
	slices.SortStableFunc(list.Devices, func(a, b Device) int {
		return slices.Compare([]string{a.Host, a.Node, a.Address, string(a.State)}, []string{b.Host, b.Node, b.Address, string(b.State)})
	})
	list.Contradictions = append(list.Contradictions, host.Filter(l.contradictions, func(c Contradiction) bool {
		return o.Host == "" || c.Host == o.Host
	})...)
	for _, d := range list.Devices {
		i, found := slices.BinarySearchFunc(list.Totals, d, func(t DeviceTotal, d Device) int {
			return cmp.Or(strings.Compare(t.Product, d.Product), strings.Compare(t.Zone, d.Zone))
		})
		if !found {
			list.Totals = slices.Insert(list.Totals, i, DeviceTotal{Product: d.Product, Zone: d.Zone, States: map[string]int{}})
		}
		list.Totals[i].Total++
		list.Totals[i].States[string(d.State)]++
	}
	return list
}
