package rdma_test

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/rdma"
)

func TestDeriveGUIDs(t *testing.T) {
	guid := func(s string) rdma.GUID {
		g, err := rdma.ParseGUID(s)
		hosttest.NoError(t, err)
		return g
	}
	base := guid("02:00:00:00:00:00:12:34")
	for _, test := range []struct {
		pf         string
		base       *rdma.GUID
		vf         int
		node, port string // "" for an error
	}{
		{"0002:c903:0021:6e70", nil, 0, "02:02:c9:00:01:21:6e:70", "02:02:c9:00:02:21:6e:70"},
		{"0002:c903:0021:6e70", nil, 126, "02:02:c9:7e:01:21:6e:70", "02:02:c9:7e:02:21:6e:70"},
		{"0002:c9ff:fe21:6e70", nil, 7, "02:02:c9:07:03:21:6e:70", "02:02:c9:07:04:21:6e:70"},
		{"0002:c900:0121:6e70", &base, 1, "02:00:00:01:01:00:12:34", "02:00:00:01:02:00:12:34"},
		{"0000:0000:0000:0000", &base, 1, "02:00:00:01:01:00:12:34", "02:00:00:01:02:00:12:34"},
		{"0002:c900:0121:6e70", nil, 1, "", ""},
		{"0002:c903:0121:6e70", nil, 1, "", ""},
		{"0000:0000:0000:0000", nil, 1, "", ""},
		{"0102:c903:0021:6e70", nil, 1, "", ""},
		{"0002:c903:0021:6e70", nil, 256, "", ""},
		{"0002:c903:0021:6e70", nil, -1, "", ""},
	} {
		node, port, err := rdma.DeriveGUIDs(guid(test.pf), test.base, test.vf)
		switch {
		case test.node == "" && err == nil:
			t.Errorf("%s, VF %d: %s, want an error", test.pf, test.vf, node)
		case test.node != "" && (err != nil || node.String() != test.node || port.String() != test.port):
			t.Errorf("%s, VF %d: %s, %s, %v, want %s, %s", test.pf, test.vf, node, port, err, test.node, test.port)
		}
	}
	if _, _, err := rdma.DeriveGUIDs(guid("0002:c900:0121:6e70"), nil, 0); !errors.Is(err, rdma.ErrGUIDForm) {
		t.Errorf("%v, want %v", err, rdma.ErrGUIDForm)
	}
}

// TestDerivedGUIDsAreUnique derives the GUIDs of 127 VFs of each of 1,000 PFs, of both forms, whose
// GUIDs are consecutive or differ in the sixth byte only, as those of cards of one vendor do.
func TestDerivedGUIDsAreUnique(t *testing.T) {
	for _, first := range []string{"0002:c903:0021:6e70", "0202:c903:0021:6e70", "b859:9fff:fe00:0000"} {
		begin, err := rdma.ParseGUID(first)
		hosttest.NoError(t, err)
		seen := map[rdma.GUID]string{}
		add := func(g rdma.GUID, what string) {
			if other, ok := seen[g]; ok && other != what {
				t.Fatalf("%s is %s and %s", g, other, what)
			}
			seen[g] = what
		}
		var pfs []rdma.GUID
		number := binary.BigEndian.Uint64(begin[:])
		for n := range uint64(1000) {
			var g rdma.GUID
			binary.BigEndian.PutUint64(g[:], number+n)
			pfs = append(pfs, g)
			// The sixth byte alone: 256 of them.
			other := begin
			other[5] = byte(n)
			pfs = append(pfs, other)
			// The same numbers in the other form.
			if n < 10 {
				g[3], g[4] = 0x03, 0x00
				pfs = append(pfs, g)
				g[3], g[4] = 0xff, 0xfe
				pfs = append(pfs, g)
			}
		}
		distinct := map[rdma.GUID]bool{}
		for _, pf := range pfs {
			if distinct[pf] {
				continue
			}
			distinct[pf] = true
			add(pf, "that of PF "+pf.String())
			for vf := range 127 {
				node, port, err := rdma.DeriveGUIDs(pf, nil, vf)
				hosttest.NoError(t, err)
				add(node, "a node of "+pf.String())
				add(port, "a port of "+pf.String())
			}
		}
		if want := len(distinct) * (1 + 2*127); len(seen) != want {
			t.Errorf("%s: %d GUIDs, want %d", first, len(seen), want)
		}
	}
}

func TestDeriveMAC(t *testing.T) {
	for _, test := range []struct {
		pf   string
		vf   int
		want string
	}{
		{"b8:59:9f:00:12:34", 0, "ba:00:9f:00:12:34"},
		{"b8:59:9f:00:12:34", 127, "ba:7f:9f:00:12:34"},
		{"b8:59:9f:00:12:34", 256, ""},
		{"01:59:9f:00:12:34", 0, ""},
		{"00:00:00:00:00:00", 0, ""},
		{"00:00:00:00:fe:80:00:00:00:00:00:00:00:02:c9:03:00:21:6e:71", 0, ""}, // of an IPoIB interface
	} {
		pf, err := net.ParseMAC(test.pf)
		hosttest.NoError(t, err)
		got, err := rdma.DeriveMAC(pf, test.vf)
		if (err == nil) != (test.want != "") || got.String() != test.want {
			t.Errorf("%s, VF %d: %s, %v, want %q", test.pf, test.vf, got, err, test.want)
		}
	}
	seen := map[string]bool{}
	for n := range 1000 {
		pf := net.HardwareAddr{0xb8, 0x59, 0x9f, 0, byte(n >> 8), byte(n)}
		seen[pf.String()] = true
		for vf := range 127 {
			mac, err := rdma.DeriveMAC(pf, vf)
			if err != nil || mac[0]&3 != 2 {
				t.Fatal(mac, err)
			}
			seen[mac.String()] = true
		}
	}
	if len(seen) != 1000*128 {
		t.Errorf("%d MAC addresses, want %d", len(seen), 1000*128)
	}
}
