package driver_test

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"gpustack/host/driver"
	"gpustack/host/hosttest"
)

// recorder is a netlink socket that records requests.
type recorder struct{ log []string }

func (r *recorder) record(format string, args ...any) error {
	r.log = append(r.log, fmt.Sprintf(format, args...))
	return nil
}

func (r *recorder) LinkByName(name string) (netlink.Link, error) {
	return &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: name, Index: 7}}, nil
}

func (r *recorder) LinkSetVfGUID(l netlink.Link, vf int, guid net.HardwareAddr, kind int) error {
	return r.record("%s vf %d guid %d %s", l.Attrs().Name, vf, kind, guid)
}

func (r *recorder) LinkSetVfHardwareAddr(l netlink.Link, vf int, a net.HardwareAddr) error {
	return r.record("%s vf %d mac %s", l.Attrs().Name, vf, a)
}

func (r *recorder) LinkSetVfState(l netlink.Link, vf int, state uint32) error {
	return r.record("%s vf %d state %d", l.Attrs().Name, vf, state)
}

func (r *recorder) DevLinkSetEswitchMode(d *netlink.DevlinkDevice, mode string) error {
	return r.record("%s/%s %s", d.BusName, d.DeviceName, mode)
}

func (r *recorder) RdmaSystemSetNetnsMode(mode string) error { return r.record("netns %s", mode) }

// TestRequests: each request as the library is asked to make it, and requests that are none.
func TestRequests(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"node_guid ib0 3 0a:00:c9:02:00:21:6e:70":  "ib0 vf 3 guid 10 0a:00:c9:02:00:21:6e:70",
		"port_guid ib0 3 0a:00:c9:02:01:21:6e:70":  "ib0 vf 3 guid 11 0a:00:c9:02:01:21:6e:70",
		"mac eth0 0 b2:00:00:00:00:01":             "eth0 vf 0 mac b2:00:00:00:00:01",
		"state ib0 1 auto":                         "ib0 vf 1 state 0",
		"state ib0 1 enable":                       "ib0 vf 1 state 1",
		"state ib0 1 disable":                      "ib0 vf 1 state 2",
		"eswitch 0000:0c:00.0 0 switchdev":         "pci/0000:0c:00.0 switchdev",
		"netns - 0 exclusive":                      "netns exclusive",
		"state ib0 1 up":                           `error: unknown link state "up"`,
		"mac eth0 0 0a:00:c9:02:00:21:6e:70":       `error: mac: 6 bytes are needed: "0a:00:c9:02:00:21:6e:70"`,
		"node_guid ib0 3 b2:00:00:00:00:01":        `error: node_guid: 8 bytes are needed: "b2:00:00:00:00:01"`,
		"node_guid ib0 -1 0a:00:c9:02:00:21:6e:70": `error: not a virtual function's number: "-1"`,
		"vlan eth0 0 7":                            `error: unknown netlink request "vlan"`,
		"node_guid ib0 3":                          `error: not a netlink request: ["node_guid" "ib0" "3"]`,
	} {
		r := &recorder{}
		request, err := driver.ParseRequest(strings.Fields(words))
		if err == nil {
			err = request.Send(r)
		}
		got := strings.Join(r.log, "\n")
		if err != nil {
			got = "error: " + err.Error()
		}
		hosttest.EqualIn(t, words, want, got)
	}
}

// TestParseVFs: what rtnetlink shows of VFs, as the kernel lays it out.
func TestParseVFs(t *testing.T) {
	t.Parallel()
	list := nl.NewRtAttr(unix.IFLA_VFINFO_LIST, nil)
	for vf, guid := range []uint64{0x0a00c90200216e70, 0} {
		info := list.AddRtAttr(nl.IFLA_VF_INFO, nil)
		mac := nl.VfMac{Vf: uint32(vf)}
		copy(mac.Mac[:], []byte{0xb2, 0, 0, 0, 0, byte(vf)})
		info.AddRtAttr(nl.IFLA_VF_MAC, mac.Serialize())
		info.AddRtAttr(nl.IFLA_VF_LINK_STATE, (&nl.VfLinkState{Vf: uint32(vf), LinkState: 2 * uint32(vf)}).Serialize())
		if vf == 0 {
			info.AddRtAttr(nl.IFLA_VF_IB_NODE_GUID, (&nl.VfGUID{GUID: guid}).Serialize())
			info.AddRtAttr(nl.IFLA_VF_IB_PORT_GUID, (&nl.VfGUID{GUID: guid + 1}).Serialize())
		}
	}
	attributes := append(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("ib0")).Serialize(), 0, 0, 0)
	attributes = attributes[:(len(attributes))/4*4]
	got, err := driver.ParseVFs(append(attributes, list.Serialize()...))
	want := []driver.VFOptions{
		{NodeGUID: "0a:00:c9:02:00:21:6e:70", PortGUID: "0a:00:c9:02:00:21:6e:71", MAC: "b2:00:00:00:00:00", State: "auto"},
		{MAC: "b2:00:00:00:00:01", State: "disable"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	cut := []byte{9, 0, 1, 0, 1}
	info := nl.NewRtAttr(unix.IFLA_VFINFO_LIST, nl.NewRtAttr(nl.IFLA_VF_INFO, cut).Serialize())
	for name, attributes := range map[string][]byte{"the first": cut, "of the list": nl.NewRtAttr(unix.IFLA_VFINFO_LIST, cut).Serialize(),
		"of a VF": info.Serialize()} {
		if _, err := driver.ParseVFs(attributes); err == nil {
			t.Errorf("an attribute that is cut off is accepted: %s", name)
		}
	}
	many := nl.NewRtAttr(unix.IFLA_VFINFO_LIST, bytes.Repeat([]byte{4, 0, nl.IFLA_VF_INFO, 0}, 1<<14-2)) // an attribute has at most 64 KiB
	if got, err := driver.ParseVFs(bytes.Repeat(many.Serialize(), 4)); err != nil || len(got) != 4*(1<<14-2) {
		t.Errorf("%d, %v", len(got), err)
	}
	if _, err := driver.ParseVFs(bytes.Repeat(many.Serialize(), 5)); err == nil {
		t.Error("more VFs than SR-IOV allows are accepted")
	}
}
