package driver

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// An Identity is set where the adapter's driver accepts it, in this order: in MLNX_OFED's folder
// sriov of the physical function, or by netlink through a network interface of the physical function
// (k8snetworkplumbingwg/sriovnet, mofed_ib_helper.go, tries sysfs before netlink too).
type identityPlace struct {
	root host.Root
	k    Requester
	pf   pci.Address
	vf   int
	// One of these is not "".
	ofed, netdev string
}

// ErrNoInterface means that the identity of a VF cannot be set, because the physical function has
// no network interface.
var ErrNoInterface = host.WithHint(errors.New("has no network interface, through which the identity of VFs is set"),
	"of an InfiniBand adapter the module ib_ipoib creates it: modprobe ib_ipoib")

// place finds where the identity of a virtual function is set.
func place(root host.Root, k Requester, pf pci.Address, vf int) (identityPlace, error) {
	p := identityPlace{root: root, k: k, pf: pf, vf: vf}
	ofed := attribute(pf, path.Join("sriov", strconv.Itoa(vf)))
	ok, err := root.Exists(path.Join(ofed, "node"))
	if err != nil {
		return p, host.OfFile(ofed, err)
	}
	if ok {
		p.ofed = ofed
		return p, nil
	}
	interfaces, err := host.IfPresent(root.ReadDir(attribute(pf, "net")))
	if err != nil {
		return p, err
	}
	for _, name := range interfaces {
		// Ports of the switch, which represent VFs, are interfaces of the function too in switchdev mode;
		// its own has the name of a physical port (Linux, sysfs-class-net, phys_port_name: p0, pf0vf1).
		port, err := root.ReadFile(attribute(pf, path.Join("net", name, "phys_port_name")))
		if err == nil && pci.IsRepresentor(string(port)) {
			continue
		}
		p.netdev = name
		return p, nil
	}
	return p, fmt.Errorf("%s: %w", pf, ErrNoInterface)
}

// policies are the names in MLNX_OFED's policy file by link states of ip-link(8).
func policies() map[string]string {
	return map[string]string{"auto": "Follow", "enable": "Up", "disable": "Down"}
}

// ReadIdentity reads the identity of a virtual function, as far as the adapter's driver shows it.
func ReadIdentity(root host.Root, k Requester, pf pci.Address, vf int) (VFOptions, error) {
	p, err := place(root, k, pf, vf)
	if err != nil {
		return VFOptions{}, err
	}
	return p.read()
}

func (p identityPlace) read() (o VFOptions, err error) {
	text := func(file string) string {
		data, readErr := p.root.ReadFile(file)
		if readErr != nil && err == nil {
			err = readErr
		}
		return strings.TrimSpace(string(data))
	}
	if p.ofed != "" {
		o.NodeGUID, o.PortGUID = strings.ToLower(text(path.Join(p.ofed, "node"))), strings.ToLower(text(path.Join(p.ofed, "port")))
		policy := text(path.Join(p.ofed, "policy"))
		for state, name := range policies() {
			if name == policy {
				o.State = state
			}
		}
		return o, err
	}
	answer, err := p.k.Request(Request{Kind: ShowVFs, Device: p.netdev})
	if err != nil {
		return o, err
	}
	if p.vf >= len(answer.VFs) {
		return o, fmt.Errorf("%s: the kernel shows %d VFs of %s, none with number %d", p.pf, len(answer.VFs), p.netdev, p.vf)
	}
	return answer.VFs[p.vf], nil
}

// Lacks returns the options of want that differ from o. What want leaves "" is as it is.
func (o VFOptions) Lacks(want VFOptions) VFOptions {
	lacks := VFOptions{}
	for _, f := range []struct {
		has, want string
		into      *string
	}{
		{o.NodeGUID, want.NodeGUID, &lacks.NodeGUID}, {o.PortGUID, want.PortGUID, &lacks.PortGUID},
		{o.MAC, want.MAC, &lacks.MAC}, {o.State, want.State, &lacks.State},
	} {
		if f.want != "" && !strings.EqualFold(f.has, f.want) {
			*f.into = f.want
		}
	}
	return lacks
}

// Shown returns the options of want that o shows, with whatever value: a driver may accept options
// that it does not show.
func (o VFOptions) Shown(want VFOptions) VFOptions {
	if o.NodeGUID == "" {
		want.NodeGUID = ""
	}
	if o.PortGUID == "" {
		want.PortGUID = ""
	}
	if o.State == "" {
		want.State = ""
	}
	return want
}

// SetIdentity sets the identity of a virtual function and reads it back, as far as the driver shows
// it. A kernel before Linux 5.5 does not show GUIDs over netlink. Callers ensure that the function
// is not in use.
func SetIdentity(root host.Root, k Requester, pf pci.Address, vf int, want VFOptions) error {
	p, err := place(root, k, pf, vf)
	if err != nil {
		return err
	}
	now, err := p.read()
	if err != nil {
		return err
	}
	lacks := now.Lacks(want)
	for _, f := range []struct {
		kind        RequestKind
		file, value string
	}{
		{SetNodeGUID, "node", lacks.NodeGUID}, {SetPortGUID, "port", lacks.PortGUID}, {SetMAC, "mac", lacks.MAC},
		{SetState, "policy", lacks.State},
	} {
		switch {
		case f.value == "":
			continue
		case p.ofed != "":
			value := f.value
			if f.kind == SetState {
				value = policies()[value]
			}
			err = k.Write(Write{path.Join(p.ofed, f.file), value})
		default:
			_, err = k.Request(Request{f.kind, p.netdev, vf, f.value})
		}
		if err != nil {
			return err
		}
	}
	back, err := p.read()
	if err != nil {
		return err
	}
	if still := back.Shown(back.Lacks(want)); still != (VFOptions{}) {
		return fmt.Errorf("VF %d of %s: the kernel accepted %+v but shows %+v", vf, pf, still, back)
	}
	return nil
}
