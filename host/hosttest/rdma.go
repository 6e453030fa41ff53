package hosttest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host"
)

// RDMA lays a tree in the format of integration/testdata/rdma into a temporary folder of the test.
// A file whose read failed becomes a folder, whose read fails too. A character device becomes a
// line of text, as in a snapshot: making one needs privileges.
func RDMA(t testing.TB, file string) host.Root {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, part := range strings.Split("\n"+string(text), "\n-- ")[1:] {
		head, body, _ := strings.Cut(part, "\n")
		name, more, _ := strings.Cut(head, " --")
		name, target, link := strings.Cut(name, " -> ")
		more = strings.TrimSpace(more)
		place := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(place), 0o755)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, place)
		case strings.HasPrefix(more, "!"):
			err = os.Mkdir(place, 0o755)
		case strings.HasPrefix(more, "# "):
			err = os.WriteFile(place, []byte(strings.TrimPrefix(more, "# ")+"\n"), 0o600)
		default:
			if body != "" {
				body += "\n"
			}
			err = os.WriteFile(place, []byte(body), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := host.NewRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// HCA is an RDMA adapter of a tree: a PCI function with an RDMA device.
type HCA struct {
	Address   string // "0000:0c:00.0"
	Above     string // folders of the bridges above: "pci0000:00/0000:00:01.0"
	Product   string // "101b"; "" for that
	Class     string // "0207"; "" for that
	Driver    string // "" for mlx5_core
	Device    string // "mlx5_0"; "" for none
	LinkLayer string // "" for InfiniBand
	Ports     int    // 0 for one
	State     string // "" for "4: ACTIVE"
	Physical  string // "" for "5: LinkUp"
	NodeGUID  string // "" for 0c42:a103:0000:0000 with the bus
	SMLID     string // "" for 0x1
	NUMA      int
	Index     int      // of its nodes
	VFs       []string // addresses of its virtual functions
	Total     int      // sriov_totalvfs, 0 for none
	PF        string   // of a virtual function
	GIDs      []string // entries of the table: "GID type netdev"
	Elsewhere bool     // the RDMA device is in another network namespace, which shows its nodes alone
	ID        string   // vendor, "" for 15b3
}

// Archive returns the adapter as lines and files of a txtar archive for [Lay]: commands, which come
// first in it, and files.
func (h HCA) Archive() (commands, files string) {
	var c, f strings.Builder
	at := "sys/devices/" + cmp.Or(h.Above, "pci"+h.Address[:7]) + "/" + h.Address
	depth := strings.Repeat("../", strings.Count(at, "/"))
	file := func(name, text string) { fmt.Fprintf(&f, "-- %s/%s --\n%s\n", at, name, text) }
	fmt.Fprintf(&c, "symlink sys/bus/pci/devices/%s -> ../../../../%s\n", h.Address, at)
	driver := cmp.Or(h.Driver, "mlx5_core")
	fmt.Fprintf(&c, "symlink %s/driver -> %s../sys/bus/pci/drivers/%s\n", at, depth, driver)
	file("class", "0x"+cmp.Or(h.Class, "0207")+"00")
	file("vendor", "0x"+cmp.Or(h.ID, "15b3"))
	file("device", "0x"+cmp.Or(h.Product, "101b"))
	file("numa_node", fmt.Sprint(h.NUMA))
	if h.Total > 0 {
		file("sriov_totalvfs", fmt.Sprint(h.Total))
		file("sriov_numvfs", fmt.Sprint(len(h.VFs)))
		file("sriov_offset", "1")
		file("sriov_stride", "1")
		file("sriov_vf_device", "101c")
		file("sriov_drivers_autoprobe", "1")
	}
	for i, vf := range h.VFs {
		fmt.Fprintf(&c, "symlink %s/virtfn%d -> ../%s\n", at, i, vf)
	}
	if h.PF != "" {
		fmt.Fprintf(&c, "symlink %s/physfn -> ../%s\n", at, h.PF)
	}
	if h.Device != "" {
		h.device(&c, &f, at)
	}
	return c.String(), f.String()
}

// device adds the RDMA device of an adapter at a folder, with its nodes.
func (h HCA) device(c, f *strings.Builder, at string) {
	device := at + "/infiniband/" + h.Device
	file := func(name, text string) {
		if !h.Elsewhere {
			fmt.Fprintf(f, "-- %s/%s --\n%s\n", device, name, text)
		}
	}
	if !h.Elsewhere {
		fmt.Fprintf(c, "symlink sys/class/infiniband/%s -> ../../../%s\n", h.Device, device)
	}
	guid := cmp.Or(h.NodeGUID, "0c42:a103:00"+h.Address[5:7]+":0000")
	file("node_type", "1: CA")
	file("node_guid", guid)
	file("sys_image_guid", guid)
	file("fw_ver", "20.31.1014")
	file("board_id", "MT_0000000223")
	file("hca_type", "MT4123")
	for port := 1; port <= max(h.Ports, 1); port++ {
		h.port(port, guid, file)
		for k, node := range []string{"umad", "issm"} {
			name := fmt.Sprintf("%s%d", node, 2*h.Index+port-1)
			class := at + "/infiniband_mad/" + name
			fmt.Fprintf(c, "symlink sys/class/infiniband_mad/%s -> ../../../%s\n", name, class)
			fmt.Fprintf(f, "-- %s/ibdev --\n%s\n-- %s/port --\n%d\n-- %s/dev --\n231:%d\n-- dev/infiniband/%s --\nc 231:%d 600\n",
				class, h.Device, class, port, class, 64*k+2*h.Index+port-1, name, 64*k+2*h.Index+port-1)
		}
	}
	name := fmt.Sprintf("uverbs%d", h.Index)
	class := at + "/infiniband_verbs/" + name
	fmt.Fprintf(c, "symlink sys/class/infiniband_verbs/%s -> ../../../%s\n", name, class)
	fmt.Fprintf(f, "-- %s/ibdev --\n%s\n-- %s/abi_version --\n1\n-- %s/dev --\n231:%d\n-- dev/infiniband/%s --\nc 231:%d 666\n",
		class, h.Device, class, class, 192+h.Index, name, 192+h.Index)
}

// port adds the files of a port of a device with a node GUID.
func (h HCA) port(port int, guid string, file func(name, text string)) {
	in := fmt.Sprintf("ports/%d/", port)
	layer := cmp.Or(h.LinkLayer, "InfiniBand")
	lid, sm, rate := "0x2", cmp.Or(h.SMLID, "0x1"), "200 Gb/sec (4X HDR)"
	if layer == "Ethernet" {
		lid, sm, rate = "0x0", "0x0", "100 Gb/sec (4X EDR)"
	}
	file(in+"state", cmp.Or(h.State, "4: ACTIVE"))
	file(in+"phys_state", cmp.Or(h.Physical, "5: LinkUp"))
	file(in+"link_layer", layer)
	file(in+"lid", lid)
	file(in+"sm_lid", sm)
	file(in+"cap_mask", "0x2651e848")
	file(in+"rate", rate)
	file(in+"pkeys/0", "0xffff")
	file(in+"pkeys/1", "0x0000")
	gids := h.GIDs
	if gids == nil && layer == "InfiniBand" {
		gids = []string{"fe80:0000:0000:0000:" + guid}
	}
	for i, entry := range gids {
		gid, kind, _ := strings.Cut(entry, " ")
		kind, netdev, _ := strings.Cut(strings.Replace(kind, "RoCE v", "RoCE_v", 1), " ")
		file(fmt.Sprintf("%sgids/%d", in, i), gid)
		file(fmt.Sprintf("%sgid_attrs/types/%d", in, i), cmp.Or(strings.Replace(kind, "_", " ", 1), "IB/RoCE v1"))
		file(fmt.Sprintf("%sgid_attrs/ndevs/%d", in, i), netdev)
	}
	file(fmt.Sprintf("%sgids/%d", in, len(gids)), "0000:0000:0000:0000:0000:0000:0000:0000")
}

// Fabric returns an archive with adapters, and further files, for [Lay].
func Fabric(adapters []HCA, more string) string {
	var commands, files strings.Builder
	for _, h := range adapters {
		c, f := h.Archive()
		commands.WriteString(c)
		files.WriteString(f)
	}
	files.WriteString("-- sys/class/infiniband_verbs/abi_version --\n6\n-- sys/class/infiniband_mad/abi_version --\n5\n" +
		"-- sys/class/misc/rdma_cm/dev --\n10:124\n-- sys/class/misc/rdma_cm/abi_version --\n4\n-- dev/infiniband/rdma_cm --\nc 10:124 666\n" +
		"-- sys/module/ib_core/parameters/netns_mode --\nY\n")
	return commands.String() + files.String() + more
}
