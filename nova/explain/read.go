package explain

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Compute is what Read asks Nova.
type Compute interface {
	ComputeServices(ctx context.Context) ([]cloud.ComputeService, error)
	Nodes(ctx context.Context) ([]cloud.Node, error)
	Aggregates(ctx context.Context) ([]cloud.Aggregate, error)
}

// provision is what Read asks Placement.
type provision interface {
	Candidates(ctx context.Context, resources map[string]int, traits []string) (map[string]bool, error)
	Serving(ctx context.Context, class string, amount int, traits []string) ([]cloud.Provider, error)
	PCIProviders(ctx context.Context) ([]cloud.Provider, error)
	Inventories(ctx context.Context, provider string) (map[string]cloud.Inventory, error)
}

// ReadHosts adds the compute nodes of a cloud, their services and aggregates, with as many requests
// as lists have pages. What the user may not read is in Unread. Nodes of services that have none
// are hosts too.
func (f *Facts) ReadHosts(ctx context.Context, c Compute) error {
	services, err := c.ComputeServices(ctx)
	if err := f.unread(Services, err); err != nil {
		return err
	}
	nodes, err := c.Nodes(ctx)
	if err := f.unread(Nodes, err); err != nil {
		return err
	}
	f.Aggregates, err = c.Aggregates(ctx)
	if err := f.unread(Aggregates, err); err != nil {
		return err
	}
	of := map[string]*cloud.ComputeService{}
	for i := range services {
		of[services[i].Host] = &services[i]
	}
	has := map[string]bool{}
	for _, n := range nodes {
		host := cmp.Or(n.Host, n.Name)
		has[host] = true
		f.Hosts = append(f.Hosts, Host{Name: host, Node: n.Name, Provider: n.ID, Service: of[host]})
	}
	for i := range services {
		if !has[services[i].Host] {
			f.Hosts = append(f.Hosts, Host{Name: services[i].Host, Service: &services[i]})
		}
	}
	return nil
}

// unread notes that a source rejects the user, or does not answer. Other errors are returned: that
// the run was interrupted, or that the credentials are wrong.
func (f *Facts) unread(s Source, err error) error {
	var e *cloud.Error
	isTooOld := errors.As(err, &e) && e.Status == http.StatusNotAcceptable // the microversion
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cloud.ErrForbidden), errors.Is(err, cloud.ErrNotFound), errors.Is(err, cloud.ErrNoEndpoint),
		errors.Is(err, cloud.ErrUnavailable), errors.Is(err, cloud.ErrUnreachable), isTooOld:
		if f.Unread == nil {
			f.Unread = map[Source]string{}
		}
		f.Unread[s] = err.Error()
		return nil
	}
	return err
}

// AddInventories adds the inventories to their hosts. Hosts that Nova does not list are added only
// if its lists could not be read; the others are returned.
func (f *Facts) AddInventories(hosts []nova.Host) (strangers []string) {
	byName := map[string]int{}
	for i, h := range f.Hosts {
		byName[h.Node], byName[h.Name] = i, i
	}
	unlisted := f.isUnlisted()
	for i := range hosts {
		h := &hosts[i]
		at, there := byName[h.InNova()]
		if !there {
			at, there = byName[h.Name]
		}
		if !there {
			at = slices.IndexFunc(f.Hosts, func(known Host) bool { return h.Named(known.Name) || h.Named(known.Node) })
			there = at >= 0
		}
		switch {
		case there:
			f.Hosts[at].Devices = h
		case unlisted:
			f.Hosts = append(f.Hosts, Host{Name: h.InNova(), Devices: h})
		default:
			strangers = append(strangers, h.InNova())
		}
	}
	return strangers
}

// ReadProvision is askPlacement for the Placement of a cloud, which may have none.
func (f *Facts) ReadProvision(ctx context.Context, c *cloud.Cloud) error {
	placement, err := c.Placement()
	if errors.Is(err, cloud.ErrNoEndpoint) {
		return f.unread(Candidates, err)
	}
	if err != nil {
		return err
	}
	return f.askPlacement(ctx, placement)
}

// isUnlisted reports whether the hosts of the cloud could not be listed.
func (f *Facts) isUnlisted() bool {
	_, services := f.Unread[Services]
	_, nodes := f.Unread[Nodes]
	return services && nodes
}

// AddStock adds what Nova's database has of a compute node to its host. A host that Nova does not
// list is added only if its lists could not be read.
func (f *Facts) AddStock(host, node, provider string, s Stock) {
	f.Databases = true
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if h.Name == host && (h.Node == "" || h.Node == node) {
			h.Stock, h.Node, h.Provider = &s, node, cmp.Or(h.Provider, provider)
			return
		}
	}
	if f.isUnlisted() {
		f.Hosts = append(f.Hosts, Host{Name: host, Node: node, Provider: provider, Stock: &s})
	}
}

// detailed is the number of hosts whose inventories are read for the evidence of a step.
const detailed = 4

// askPlacement adds what Placement answers about the request of the flavor. The number of requests
// does not depend on the number of hosts: the whole request first, and only if it excludes a host,
// one resource after the other, as nova-scheduler would be answered; then the inventories of a few
// hosts that are excluded.
func (f *Facts) askPlacement(ctx context.Context, p provision) error {
	read := Placement{Details: map[string]map[string]cloud.Inventory{}}
	read.Skipped = f.granular()
	err := f.readPlacement(ctx, p, &read)
	if err == nil {
		f.Placement = &read
	}
	return f.unread(Candidates, err)
}

func (f *Facts) readPlacement(ctx context.Context, p provision, read *Placement) error {
	var err error
	if read.Steps, err = f.narrow(ctx, p, f.query(false).asks()); err != nil {
		return err
	}
	if read.Shared, err = f.shared(ctx, p); err != nil {
		return err
	}
	if err := f.detail(ctx, p, read); err != nil {
		return err
	}
	return f.readDevices(ctx, p, read)
}

// shared returns the providers with enough shared CPUs for a guest with dedicated ones, nil if
// nova-scheduler does not ask for them (nova/scheduler/manager.py, select_destinations).
func (f *Facts) shared(ctx context.Context, p provision) (map[string]bool, error) {
	steps, err := f.narrow(ctx, p, f.query(true).asks())
	if err != nil || len(steps) == 0 {
		return nil, err
	}
	return steps[len(steps)-1].Roots, nil // none, if the last step is not the last one that is asked for
}

// narrow asks for the whole request, and if that excludes a host, for its parts.
func (f *Facts) narrow(ctx context.Context, p provision, list []Ask) (steps []Step, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	all, err := ask(ctx, p, list[len(list)-1])
	if err != nil {
		return nil, err
	}
	if all.Missing == "" && !slices.ContainsFunc(f.Hosts, func(h Host) bool { return h.Provider != "" && !all.Roots[h.Provider] }) {
		for _, a := range list {
			steps = append(steps, Step{Ask: a, Roots: all.Roots})
		}
		return steps, nil
	}
	for _, a := range list[:len(list)-1] {
		one, err := ask(ctx, p, a)
		if err != nil {
			return nil, err
		}
		steps = append(steps, one)
		if one.Missing != "" || len(one.Roots) == 0 {
			return steps, nil // the rest is judged on no host
		}
	}
	return append(steps, all), nil
}

func ask(ctx context.Context, p provision, a Ask) (Step, error) {
	roots, err := p.Candidates(ctx, a.resources, a.traits)
	if errors.Is(err, cloud.ErrUnknownName) {
		return Step{Ask: a, Missing: err.Error()}, nil
	}
	return Step{Ask: a, Roots: roots}, err
}

// detail reads the inventories of some hosts that each step is the first to exclude.
func (f *Facts) detail(ctx context.Context, p provision, read *Placement) error {
	isLeft := host.By(f.Hosts, func(h Host) (string, bool) { return h.Provider, h.Provider != "" })
	for _, s := range read.Steps {
		n := 0
		for _, h := range f.Hosts {
			if !isLeft[h.Provider] || s.Roots[h.Provider] {
				continue
			}
			isLeft[h.Provider] = false
			if n++; n > detailed || s.Class == "" || s.Missing != "" {
				continue
			}
			inventories, err := p.Inventories(ctx, h.Provider)
			if errors.Is(err, cloud.ErrNotFound) { // deleted meanwhile
				continue
			}
			if err != nil {
				return err
			}
			read.Details[h.Provider] = inventories
		}
	}
	return nil
}

// readDevices counts the free devices of all hosts in Placement, if nova-scheduler asks Placement
// for them. Of each device's provider only the root is read.
func (f *Facts) readDevices(ctx context.Context, p provision, read *Placement) error {
	isOn := f.isOn(nova.Side.Scheduler, nova.PCIInPlacement)
	_, request := f.judgeFlavor()
	if !isOn || f.Release < nova.Antelope || len(request) == 0 {
		return nil
	}
	wanted := f.readAliases(request).deviceAsks(request)
	if len(wanted) == 0 {
		return nil
	}
	providers, err := p.PCIProviders(ctx)
	if err != nil {
		return err
	}
	tree := map[string]int{}
	for _, provider := range providers {
		tree[provider.Root]++
	}
	for _, w := range wanted {
		d := Devices{DeviceAsk: w, Free: map[string]int{}, Tree: tree, Detail: map[string]cloud.Inventory{}}
		// A provider that can serve n devices is counted n times, once for each amount up to n.
		for amount := 1; amount <= w.Count; amount++ {
			serving, err := p.Serving(ctx, w.Class, amount, w.Traits)
			if errors.Is(err, cloud.ErrUnknownName) {
				d.Missing = true
				break
			}
			if err != nil {
				return err
			}
			for _, provider := range serving {
				d.Free[provider.Root]++
			}
			if len(serving) == 0 {
				break
			}
		}
		if err := f.detailDevices(ctx, p, &d, providers); err != nil {
			return err
		}
		read.Devices = append(read.Devices, d)
	}
	return nil
}

// detailDevices reads the inventories of the devices of one host that has too few free ones: all of
// them may be reserved, as one-time-use devices are after a guest.
func (f *Facts) detailDevices(ctx context.Context, p provision, d *Devices, providers []cloud.Provider) error {
	hosts := map[string]bool{}
	for _, h := range f.Hosts {
		if d.Free[h.Provider] < d.Count && d.Tree[h.Provider] > 0 && len(hosts) == 0 {
			hosts[h.Provider] = true
		}
	}
	const most = 8 // devices of a host
	read := map[string]int{}
	for _, provider := range providers {
		if !hosts[provider.Root] || read[provider.Root] == most || d.Missing {
			continue
		}
		read[provider.Root]++
		inventories, err := p.Inventories(ctx, provider.UUID)
		if errors.Is(err, cloud.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if i, there := inventories[d.Class]; there {
			d.Detail[provider.Root+"/"+provider.UUID] = i
		}
	}
	return nil
}
