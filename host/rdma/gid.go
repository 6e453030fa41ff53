package rdma

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path"
	"strconv"
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
	if !all && !p.IsInfiniBand() {
		return
	}
	if all {
		p.GIDs = []GID{}
	}
	failed := func(file string, err error) {
		err = fmt.Errorf("%w: %w", ErrGIDs, host.Cause(err))
		r.warn(file, err)
		p.GIDsErr = fmt.Errorf("%s: %w", file, err)
	}
	folder := path.Join(port, "gids")
	dir, err := r.root.OpenDir(folder)
	if err != nil {
		failed(folder, err)
		return
	}
	defer dir.Close() //nolint:errcheck // only read from
	var buf [host.MaxAttribute + 1]byte
	// The entries have consecutive numbers from 0: reading until one is absent takes less time than
	// listing them.
	for index := 0; index == 0 || all; index++ {
		name := strconv.Itoa(index)
		data, err := dir.ReadAttribute(name, buf[:])
		if index > 0 && host.IsAbsent(err) {
			return
		}
		if err != nil {
			// One error for a table of 1,024 entries.
			failed(path.Join(folder, name), err)
			return
		}
		data = bytes.TrimSpace(data)
		if string(data) == zeroGID {
			if index == 0 && p.IsInfiniBand() {
				p.GUID = &GUID{} // a port always has GID 0
			}
			continue
		}
		address, err := parseGID(string(data))
		if err != nil {
			r.warn(path.Join(folder, name), err)
			continue
		}
		if index == 0 && p.IsInfiniBand() {
			octets := address.As16()
			guid := GUID(octets[8:])
			p.GUID = &guid
		}
		if all {
			g := GID{Index: index, GID: address}
			g.Type, _ = r.text(path.Join(port, "gid_attrs/types"), name)
			g.Netdev, _ = r.text(path.Join(port, "gid_attrs/ndevs"), name)
			p.GIDs = append(p.GIDs, g)
		}
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
