package rdma

import (
	"errors"
	"fmt"
	"net"

	"gpustack/host"
)

// MaxVFs is the largest number of VFs of an adapter for which identities can be derived: a derived
// GUID or MAC address has one byte for the index.
const MaxVFs = 256

// ErrGUIDForm is the error of a GUID from which no unique GUIDs for VFs can be derived.
var ErrGUIDForm = host.WithHint(errors.New("has neither 03:00 nor ff:fe as its fourth and fifth byte, so GUIDs derived from it may not be unique"),
	"--guid-base gives a GUID to derive them from: one that no other adapter of the fabric is given")

// Bits of the first byte of an EUI-64 or EUI-48 (IEEE, "Guidelines for Use of EUI, OUI, and CID").
const (
	groupBit = 0x01
	localBit = 0x02
)

// GUIDs of a vendor consist of its OUI, these two bytes and the 24 bits of the adapter. The first
// form is Mellanox's, the second that of an EUI-64 made of an EUI-48 (RFC 4291, appendix A).
var (
	vendorForm = [2]byte{0x03, 0x00}
	eui48Form  = [2]byte{0xff, 0xfe}
)

// DeriveGUIDs returns the node and the port GUID of the VF with an index, which are the same at
// each boot: those of the PF, or base if that is not nil, with the local bit set, the fourth byte
// replaced by the index and the fifth by a number that tells node from port, and PFs of one form
// from those of the other. So PFs whose GUIDs differ have VFs whose GUIDs differ, and no VF has the
// GUID of a PF.
//
// Errors: ErrGUIDForm, and an index that does not fit in a byte.
func DeriveGUIDs(pf GUID, base *GUID, vf int) (node, port GUID, err error) {
	from := host.Or(base, pf)
	form := [2]byte{from[3], from[4]}
	switch {
	case vf < 0 || vf >= MaxVFs:
		return GUID{}, GUID{}, fmt.Errorf("VF %d: GUIDs can be derived for VFs 0 to %d", vf, MaxVFs-1)
	case from.IsZero():
		return GUID{}, GUID{}, fmt.Errorf("GUID %s: %w", from, ErrGUIDForm)
	case from[0]&groupBit != 0:
		return GUID{}, GUID{}, fmt.Errorf("GUID %s: the first byte is that of a group", from)
	case base == nil && form != vendorForm && form != eui48Form:
		return GUID{}, GUID{}, fmt.Errorf("GUID %s: %w", from, ErrGUIDForm)
	}
	var kind byte
	if form == eui48Form {
		kind = 2
	}
	from[0] |= localBit
	from[3] = byte(vf)
	node, port = from, from
	node[4], port[4] = kind+1, kind+2 // never 00 or fe, which PFs have there
	return node, port, nil
}

// DeriveMAC returns the MAC address of the VF with an index, which is the same at each boot: that
// of the PF with the local bit set and the second byte replaced by the index. The OUIs of the
// vendors of adapters differ in their other bytes too.
func DeriveMAC(pf net.HardwareAddr, vf int) (net.HardwareAddr, error) {
	switch {
	case vf < 0 || vf >= MaxVFs:
		return nil, fmt.Errorf("VF %d: MAC addresses can be derived for VFs 0 to %d", vf, MaxVFs-1)
	case len(pf) != 6 || pf.String() == "00:00:00:00:00:00" || pf[0]&groupBit != 0:
		return nil, fmt.Errorf("MAC address %q: not the address of an Ethernet adapter", pf)
	}
	mac := net.HardwareAddr{pf[0] | localBit, byte(vf), pf[2], pf[3], pf[4], pf[5]}
	return mac, nil
}
