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
	types, netdevs := attributes{r: r, folder: path.Join(port, "gid_attrs/types")}, attributes{r: r, folder: path.Join(port, "gid_attrs/ndevs")}
	defer types.close()
	defer netdevs.close()
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
			p.GIDs = append(p.GIDs, GID{Index: index, GID: address, Type: types.text(name, buf[:]), Netdev: netdevs.text(name, buf[:])})
		}
	}
}

// attributes are the attributes of GIDs in one folder, which is opened when the first one is read.
type attributes struct {
	r      *reader
	folder string
	dir    *host.Dir
	failed bool
}

// text returns an attribute, or "" if it is absent. One that cannot be read is a warning.
func (a *attributes) text(name string, buf []byte) string {
	if a.failed {
		return ""
	}
	var data []byte
	var err error
	if a.dir == nil {
		a.dir, err = a.r.root.OpenDir(a.folder)
		a.failed = err != nil
	}
	if err == nil {
		data, err = a.dir.ReadAttribute(name, buf)
	}
	if err != nil && !host.IsAbsent(err) {
		a.r.warn(path.Join(a.folder, name), err)
	}
	return strings.TrimSpace(string(data))
}

func (a *attributes) close() {
	if a.dir != nil {
		a.dir.Close() //nolint:errcheck // only read from
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
