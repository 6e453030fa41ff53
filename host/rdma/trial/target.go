package trial

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Errors of ports that cannot be tested.
var (
	ErrNoDevices = host.WithHint(errors.New("this machine has no RDMA device"), host.Textf("%s shows what is missing", host.NewCommand("rdma check")))
	// ErrUnknownDevice says that a selector is neither an address nor a name of an RDMA device.
	ErrUnknownDevice = host.WithHint(errors.New("is no RDMA device of this machine"), host.Textf("%s lists them", host.NewCommand("rdma scan")))
	ErrUnknownPort   = host.WithHint(errors.New("is no port of this device"), host.Textf("%s lists them", host.NewCommand("rdma scan")))
	ErrFamily        = host.WithHint(errors.New("has no address of this family"), "use an IPv4 address of both machines, or an IPv6 address of both")
)

// Target is a port that can be tested.
type Target struct {
	Adapter   rdma.Adapter
	Port      rdma.Port
	Addresses []Address // at least one; IPv4 first
}

// Address is an IP address of a port.
type Address = rdma.Address

// String returns the name of the RDMA device and the port: "mlx5_0 port 1".
func (t Target) String() string {
	return fmt.Sprintf("%s port %d", t.Adapter.Name, t.Port.Number)
}

// Title returns the port with the PCI address of its adapter, if it has one.
func (t Target) Title() string {
	name := t.Adapter.Name
	if t.Adapter.Address != nil {
		name = t.Adapter.Title() + " (" + name + ")"
	}
	return fmt.Sprintf("%s port %d", name, t.Port.Number)
}

// Skipped is a port, or an adapter without one, that cannot be tested, and why.
type Skipped struct {
	Adapter rdma.Adapter
	Port    *int // nil for an adapter without an RDMA device
	Err     error
}

// Select returns the adapters that a selector names: the PCI address or the name of an RDMA
// device, which may be followed by a slash and a port, as in rdma(8): mlx4_0/2. "" names all.
func Select(s rdma.Stack, selector string) ([]rdma.Adapter, error) {
	if selector == "" {
		if len(s.Adapters) == 0 {
			return nil, ErrNoDevices
		}
		return s.Adapters, nil
	}
	device, port, onePort := strings.Cut(selector, "/")
	address, err := pci.ParseGiven(device)
	for _, a := range s.Adapters {
		if slices.Contains(a.Parts, device) {
			return nil, host.WithHint(fmt.Errorf("%s is a device of a part of %s, and has no verbs", device, a.Title()), host.Plain("--device "+a.Name))
		}
	}
	found := slices.DeleteFunc(slices.Clone(s.Adapters), func(a rdma.Adapter) bool {
		return a.Name != device && a.Elsewhere != device && (err != nil || a.Address == nil || *a.Address != address)
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("%s %w", device, ErrUnknownDevice)
	}
	if !onePort {
		return found, nil
	}
	for i, a := range found {
		found[i].Ports = slices.DeleteFunc(slices.Clone(a.Ports), func(p rdma.Port) bool { return strconv.Itoa(p.Number) != port })
		if len(found[i].Ports) == 0 {
			return nil, fmt.Errorf("%s: port %q %w", device, port, ErrUnknownPort)
		}
	}
	return found, nil
}

// Targets returns the ports of adapters that can be tested, and the others. The adapters must have
// been read with their GIDs. addresses returns the IP addresses of a network interface.
func Targets(adapters []rdma.Adapter, addresses func(netdev string) ([]netip.Addr, error)) (targets []Target, skipped []Skipped) {
	for _, a := range adapters {
		if a.Name == "" {
			skipped = append(skipped, Skipped{a, nil, fmt.Errorf("%s %w", a.Title(), rdma.NoDevice(&a, nil))})
			continue
		}
		for _, p := range a.Ports {
			reached, err := a.Reach(p, addresses)
			t := Target{Adapter: a, Port: p, Addresses: reached}
			if err != nil {
				skipped = append(skipped, Skipped{a, &p.Number, fmt.Errorf("%s %w", t, err)})
				continue
			}
			targets = append(targets, t)
		}
	}
	return targets, skipped
}

// At returns the target that has an IP address.
func At(targets []Target, ip netip.Addr) (t Target, a Address, ok bool) {
	for _, t := range targets {
		if i := slices.IndexFunc(t.Addresses, func(a Address) bool { return a.IP == ip }); i >= 0 {
			return t, t.Addresses[i], true
		}
	}
	return Target{}, Address{}, false
}

// Like returns the first address of the same family as ip.
func (t Target) Like(ip netip.Addr) (Address, error) {
	for _, a := range t.Addresses {
		if a.IP.Is4() == ip.Is4() {
			return a, nil
		}
	}
	return Address{}, fmt.Errorf("%s %w: %s", t, ErrFamily, ip)
}
