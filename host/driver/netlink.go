package driver

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"gpustack/host"
)

// RequestCommand is the hidden command with which gpustack starts itself to make one request over
// netlink. "--" and the words of a Request follow.
const RequestCommand = "netlink-request"

// RequestKind is what a request over netlink changes or reads.
type RequestKind string

// The kinds of requests: the first four change a virtual function through the network interface of
// its physical one (ip-link(8), vf), ShowVFs reads all of them, SetMode changes the eswitch of a
// function (devlink-dev(8)), and SetNetns how RDMA devices belong to network namespaces
// (rdma-system(8)).
const (
	SetNodeGUID RequestKind = "node_guid"
	SetPortGUID RequestKind = "port_guid"
	SetMAC      RequestKind = "mac"
	SetState    RequestKind = "state"
	ShowVFs     RequestKind = "show"
	SetMode     RequestKind = "eswitch"
	SetNetns    RequestKind = "netns"
)

// Request is one request to the kernel over netlink.
type Request struct {
	Kind   RequestKind
	Device string // the network interface of the physical function; its address for SetMode
	VF     int
	Value  string
}

// String returns the request as an operator would make it with ip, devlink or rdma.
func (r Request) String() string {
	switch r.Kind {
	case SetMode:
		return fmt.Sprintf("devlink dev eswitch set pci/%s mode %s", r.Device, r.Value)
	case SetNetns:
		return "rdma system set netns " + r.Value
	case ShowVFs:
		return "ip link show dev " + r.Device
	}
	return fmt.Sprintf("ip link set dev %s vf %d %s %s", r.Device, r.VF, r.Kind, r.Value)
}

// words returns the arguments of the process that makes the request.
func (r Request) words() []string {
	return []string{string(r.Kind), r.Device, strconv.Itoa(r.VF), r.Value}
}

// ParseRequest returns the request of the four arguments that follow "--".
func ParseRequest(words []string) (Request, error) {
	if len(words) != 4 {
		return Request{}, fmt.Errorf("not a netlink request: %q", words)
	}
	vf, err := strconv.ParseUint(words[2], 10, 16)
	if err != nil {
		return Request{}, fmt.Errorf("not a virtual function's number: %q", words[2])
	}
	return Request{RequestKind(words[0]), words[1], int(vf), words[3]}, nil
}

// Answer is what the kernel answered.
type Answer struct {
	Errno int         `json:"errno,omitempty"`
	Error string      `json:"error,omitempty"` // of a request that was not made
	VFs   []VFOptions `json:"vfs,omitempty"`   // by index, of ShowVFs
}

// VFOptions are the options of a virtual function that its physical one's network interface shows.
// "" means that the driver shows none.
type VFOptions struct {
	NodeGUID string `json:"node_guid,omitempty"`
	PortGUID string `json:"port_guid,omitempty"`
	MAC      string `json:"mac,omitempty"`
	State    string `json:"state,omitempty"` // auto, enable or disable
}

// Netlink is what requests need of a netlink socket. [netlink.Handle] is one.
type Netlink interface {
	LinkByName(name string) (netlink.Link, error)
	LinkSetVfGUID(link netlink.Link, vf int, guid net.HardwareAddr, kind int) error
	LinkSetVfHardwareAddr(link netlink.Link, vf int, address net.HardwareAddr) error
	LinkSetVfState(link netlink.Link, vf int, state uint32) error
	DevLinkSetEswitchMode(device *netlink.DevlinkDevice, mode string) error
	RdmaSystemSetNetnsMode(mode string) error
}

// Request makes a request in a separate process, since it may block in the kernel: rtnetlink's
// requests wait for one lock, which a stuck driver may hold.
func (l Live) Request(r Request) (Answer, error) {
	out, err := host.RunSelf(l.Timeout, append([]string{RequestCommand, "--"}, r.words()...)...)
	var a Answer
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	switch {
	case err != nil:
	case a.Errno != 0:
		err = unix.Errno(a.Errno)
	case a.Error != "":
		err = errors.New(a.Error)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", r, err)
	}
	return a, nil
}

// MakeRequest is the work of that process. It has no deadline of its own: the process is killed.
func MakeRequest(r Request) Answer {
	family := unix.NETLINK_ROUTE
	switch r.Kind {
	case SetMode:
		family = unix.NETLINK_GENERIC
	case SetNetns:
		family = unix.NETLINK_RDMA
	}
	handle, err := netlink.NewHandle(family)
	var a Answer
	if err == nil {
		defer handle.Close()
		if r.Kind == ShowVFs {
			a.VFs, err = showVFs(handle, r.Device)
		} else {
			err = r.Send(handle)
		}
	}
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		a.Errno = int(errno)
	case err != nil:
		a.Error = err.Error()
	}
	return a
}

// states are the link states of a virtual function by their numbers in rtnetlink (Linux,
// include/uapi/linux/if_link.h, IFLA_VF_LINK_STATE_AUTO and following).
func states() []string { return []string{"auto", "enable", "disable"} }

// Send makes a request that changes something.
func (r Request) Send(n Netlink) error {
	switch r.Kind {
	case SetMode:
		return n.DevLinkSetEswitchMode(&netlink.DevlinkDevice{BusName: "pci", DeviceName: r.Device}, r.Value)
	case SetNetns:
		return n.RdmaSystemSetNetnsMode(r.Value)
	case SetNodeGUID, SetPortGUID, SetMAC, SetState, ShowVFs:
	default:
		return fmt.Errorf("unknown netlink request %q", r.Kind)
	}
	link, err := n.LinkByName(r.Device)
	if err != nil {
		return err
	}
	if r.Kind == SetState {
		for number, name := range states() {
			if name == r.Value {
				return n.LinkSetVfState(link, r.VF, uint32(number))
			}
		}
		return fmt.Errorf("unknown link state %q", r.Value)
	}
	address, err := net.ParseMAC(r.Value) // of 6 bytes, or of 8
	if err != nil {
		return err
	}
	octets := 8
	if r.Kind == SetMAC {
		octets = 6
	}
	if len(address) != octets {
		return fmt.Errorf("%s: %d bytes are needed: %q", r.Kind, octets, r.Value)
	}
	switch r.Kind {
	case SetNodeGUID:
		return n.LinkSetVfGUID(link, r.VF, address, nl.IFLA_VF_IB_NODE_GUID)
	case SetPortGUID:
		return n.LinkSetVfGUID(link, r.VF, address, nl.IFLA_VF_IB_PORT_GUID)
	}
	return n.LinkSetVfHardwareAddr(link, r.VF, address)
}

// showVFs reads the options of virtual functions. The library does not read GUIDs.
func showVFs(n Netlink, device string) ([]VFOptions, error) {
	link, err := n.LinkByName(device)
	if err != nil {
		return nil, err
	}
	const withVFs = 1 // RTEXT_FILTER_VF (Linux, include/uapi/linux/rtnetlink.h)
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(link.Attrs().Index)
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(withVFs)))
	answers, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, err
	}
	var list []VFOptions
	for _, answer := range answers {
		if len(answer) < unix.SizeofIfInfomsg {
			return nil, errors.New("the kernel's answer is too short")
		}
		vfs, err := ParseVFs(answer[unix.SizeofIfInfomsg:])
		if err != nil {
			return nil, err
		}
		list = append(list, vfs...)
	}
	return list, nil
}

// typeMask are the bits of an attribute's type without its flags (Linux, NLA_TYPE_MASK).
const typeMask = 0x3fff

// ParseVFs returns the virtual functions in the attributes of an RTM_NEWLINK message, by index
// (Linux, net/core/rtnetlink.c, rtnl_fill_vfinfo).
func ParseVFs(attributes []byte) ([]VFOptions, error) {
	top, err := nl.ParseRouteAttr(attributes)
	if err != nil {
		return nil, err
	}
	var list []VFOptions
	for _, attribute := range top {
		if attribute.Attr.Type&typeMask != unix.IFLA_VFINFO_LIST {
			continue
		}
		infos, err := nl.ParseRouteAttr(attribute.Value)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			o, err := parseVF(info.Value)
			if err != nil {
				return nil, err
			}
			list = append(list, o)
			if len(list) > math.MaxUint16 {
				return nil, errors.New("the kernel shows too many virtual functions")
			}
		}
	}
	return list, nil
}

// parseVF returns the virtual function in an IFLA_VF_INFO.
func parseVF(info []byte) (o VFOptions, err error) {
	fields, err := nl.ParseRouteAttr(info)
	if err != nil {
		return o, err
	}
	for _, f := range fields {
		v := f.Value
		switch kind := int(f.Attr.Type & typeMask); {
		case kind == nl.IFLA_VF_MAC && len(v) >= 10:
			o.MAC = net.HardwareAddr(v[4:10]).String()
		case kind == nl.IFLA_VF_LINK_STATE && len(v) >= 8:
			if s := binary.NativeEndian.Uint32(v[4:]); s < uint32(len(states())) {
				o.State = states()[s]
			}
		case kind == nl.IFLA_VF_IB_NODE_GUID && len(v) >= nl.SizeofVfGUID:
			o.NodeGUID = vfGUID(v)
		case kind == nl.IFLA_VF_IB_PORT_GUID && len(v) >= nl.SizeofVfGUID:
			o.PortGUID = vfGUID(v)
		}
	}
	return o, nil
}

// vfGUID returns the GUID in an ifla_vf_guid: a number in the machine's byte order (iproute2,
// ip/iplink.c).
func vfGUID(value []byte) string {
	guid := make(net.HardwareAddr, 8)
	binary.BigEndian.PutUint64(guid, binary.NativeEndian.Uint64(value[8:]))
	return guid.String()
}
