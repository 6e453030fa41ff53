package rdma

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"path"
	"strings"

	"gpustack/host"
)

// zeroGID is an unused entry of a GID table, as sysfs shows it.
const zeroGID = "0000:0000:0000:0000:0000:0000:0000:0000"

// gids reads the GID table of a port, and the port's GUID, which is the interface id of GID 0 on
// InfiniBand (InfiniBand Architecture Specification, 4.1.1). Without all, it reads GID 0 alone.
//
// Type and network interface are read of entries in use only: the kernel answers EINVAL for the
// others (Linux, drivers/infiniband/core/sysfs.c, _show_port_gid_attr).
func (r *reader) gids(port string, p *Port, all bool) {
	if !all && p.LinkLayer == LinkEthernet {
		return
	}
	folder := path.Join(port, "gids")
	dir, names, err := r.table(folder)
	if err != nil {
		r.warn(folder, fmt.Errorf("%w: %w", ErrGIDs, host.Cause(err)))
		return
	}
	defer dir.Close() //nolint:errcheck // only read from
	if !all {
		names = names[:min(1, len(names))]
	}
	buf := make([]byte, host.MaxAttribute+1)
	for index, name := range names {
		data, err := dir.ReadAttribute(name, buf)
		if err != nil {
			// One error for a table of 1,024 entries.
			r.warn(path.Join(folder, name), fmt.Errorf("%w: %w", ErrGIDs, host.Cause(err)))
			return
		}
		text := strings.TrimSpace(string(data))
		if text == zeroGID {
			continue
		}
		address, err := parseGID(text)
		if err != nil {
			r.warn(path.Join(folder, name), err)
			continue
		}
		if index == 0 && p.LinkLayer != LinkEthernet {
			octets := address.As16()
			guid := GUID(octets[8:])
			p.GUID = &guid
		}
		if !all {
			return
		}
		g := GID{Index: index, GID: address}
		g.Type, _ = r.text(path.Join(port, "gid_attrs/types"), name)
		g.Netdev, _ = r.text(path.Join(port, "gid_attrs/ndevs"), name)
		p.GIDs = append(p.GIDs, g)
	}
}

// parseGID parses a GID as sysfs shows it: eight groups of four digits. It is written like an IPv6
// address: of RoCE v2 on IPv4, "::ffff:192.168.77.1".
func parseGID(text string) (netip.Addr, error) {
	octets, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(octets) != 16 || len(text) != len(zeroGID) {
		return netip.Addr{}, fmt.Errorf("not a GID: %q", text)
	}
	return netip.AddrFrom16([16]byte(octets)), nil
}
