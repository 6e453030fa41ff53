package rdma

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"gpustack/host"
)

// deviceNode is a node with what it belongs to.
type deviceNode struct {
	Node
	device string // the RDMA device
	port   int    // of umad and issm nodes
	class  string // "uverbs", "umad" or "issm"
}

// readNodes returns the nodes of all RDMA devices. Their numbers are in the order in which devices
// appeared, so the file ibdev decides to which device each belongs.
func (r *reader) readNodes() []deviceNode {
	var nodes []deviceNode
	for _, dir := range []string{verbsDir, madDir} {
		names, err := r.root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			r.warn(dir, err)
		}
		for _, name := range names {
			class := strings.TrimRight(name, "0123456789")
			if class != "uverbs" && class != "umad" && class != "issm" {
				continue // abi_version
			}
			folder := path.Join(dir, name)
			device, ok := r.text(folder, "ibdev")
			node := r.node(folder, name)
			if !ok || node == nil {
				continue
			}
			n := deviceNode{Node: *node, device: device, class: class}
			if class == "uverbs" {
				n.ABI = r.number(folder, "abi_version", 10)
			} else if port := r.number(folder, "port", 10); port != nil {
				n.port = *port
			}
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// node returns the node whose numbers a folder in sysfs has, or nil if there is none.
func (r *reader) node(folder, name string) *Node {
	text, ok := r.text(folder, "dev")
	if !ok {
		return nil
	}
	n := Node{Name: name}
	var err error
	if n.Major, n.Minor, err = parseNumbers(text); err != nil {
		r.warn(path.Join(folder, "dev"), err)
		return nil
	}
	file := path.Join(NodesDir, name)
	if n.File, err = readNode(r.root, file); err != nil {
		r.warn(file, err)
	}
	return &n
}

func parseNumbers(text string) (major, minor int, err error) {
	a, b, _ := strings.Cut(text, ":")
	major, err = strconv.Atoi(a)
	if err == nil {
		minor, err = strconv.Atoi(b)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("not device numbers: %q", text)
	}
	return major, minor, nil
}

// readNode returns the device node at a path, or nil if nothing is there.
func readNode(root host.Root, file string) (*NodeFile, error) {
	n, err := root.Node(file)
	if n == nil || err != nil {
		return nil, err
	}
	if n.Type != "c" {
		return nil, errNotNode
	}
	return &NodeFile{Major: n.Major, Minor: n.Minor, Mode: Mode(n.Mode)}, nil
}

var errNotNode = errors.New("not a character device")

// String returns the node in the form of a snapshot.
func (n NodeFile) String() string {
	return fmt.Sprintf("c %d:%d %o", n.Major, n.Minor, uint32(n.Mode))
}

// addNodes adds the nodes of the adapter's RDMA device.
func (a *Adapter) addNodes(nodes []deviceNode) {
	for _, n := range nodes {
		if n.device == "" || n.device != cmp.Or(a.Name, a.Elsewhere) {
			continue
		}
		node := n.Node
		if n.class == "uverbs" {
			a.Verbs = &node
			continue
		}
		for i := range a.Ports {
			switch p := &a.Ports[i]; {
			case p.Number != n.port:
			case n.class == "umad":
				p.UMAD = &node
			default:
				p.ISSM = &node
			}
		}
	}
}
