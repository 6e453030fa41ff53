package nvidia

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// nodesDir is the folder of the driver's nodes.
const nodesDir = "/dev"

var errNotCharacter = errors.New("not a character device")

// nodes returns the driver's nodes. A file that is no node is a warning.
func (r *reader) nodes() (nodes []DeviceNode) {
	for _, name := range r.names(nodesDir) {
		file := path.Join(nodesDir, name)
		if _, _, ok := deviceOf(file); !ok {
			continue
		}
		n, err := r.root.Node(file)
		if err == nil && n != nil && n.Type != "c" {
			err = errNotCharacter
		}
		if err != nil {
			r.warn(file, err)
		} else if n != nil {
			nodes = append(nodes, DeviceNode{Path: file, Major: n.Major, Minor: n.Minor, Mode: n.Mode})
		}
	}
	return nodes
}

// The major that is fixed, and the minors of nodes that do not belong to a GPU
// (kernel-open/common/inc/nv-chardev-numbers.h; nvidia-modprobe, nvidia-modprobe-utils.h).
const (
	frontendMajor = 195
	controlMinor  = 255
)

// major returns the major of a character device of the driver, such as "nvidia-uvm": of
// /proc/devices, and 195 for "nvidia" also while the driver is not loaded.
func (d Driver) major(name string) (major int, ok bool) {
	major, ok = d.Majors[name]
	if !ok && name == "nvidia" {
		return frontendMajor, true
	}
	return major, ok
}

// Numbers returns the numbers that a node should have. ok is false for a path that is none of the
// driver's, and while the module that has the node's major is not loaded.
func (d Driver) Numbers(file string) (major, minor int, ok bool) {
	device, minor, ok := deviceOf(file)
	if !ok {
		return 0, 0, false
	}
	major, ok = d.major(device)
	return major, minor, ok
}

// deviceOf returns the name in /proc/devices of a node that compute needs, and its minor.
func deviceOf(file string) (device string, minor int, ok bool) {
	switch file {
	case ControlNode:
		return "nvidia", controlMinor, true
	case UVMNode:
		return "nvidia-uvm", 0, true
	case UVMNode + "-tools":
		return "nvidia-uvm", 1, true
	}
	number, ok := strings.CutPrefix(file, nodesDir+"/nvidia")
	minor, err := strconv.Atoi(number)
	return "nvidia", minor, ok && err == nil && strconv.Itoa(minor) == number && 0 <= minor && minor <= maxMinor
}

// StaleNode is a node whose numbers are not those of the driver now. A major that the kernel has
// assigned to another driver since makes the node another device, without an error.
type StaleNode struct {
	DeviceNode
	WantMajor, WantMinor int
}

// String returns the finding of a stale node.
func (n StaleNode) String() string {
	return fmt.Sprintf("%s is device %d:%d, the driver's is %d:%d", n.Path, n.Major, n.Minor, n.WantMajor, n.WantMinor)
}

// Stale returns the nodes whose numbers are not those of the driver now.
func (d Driver) Stale() (stale []StaleNode) {
	for _, n := range d.Nodes {
		if major, minor, ok := d.Numbers(n.Path); ok && (major != n.Major || minor != n.Minor) {
			stale = append(stale, StaleNode{n, major, minor})
		}
	}
	return stale
}

// Nodes that all GPUs share: without one of them CUDA does not start.
const (
	ControlNode = "/dev/nvidiactl"
	UVMNode     = "/dev/nvidia-uvm" // of unified memory
)

// Nodes returns the paths of the nodes that compute on GPUs of these minors needs.
func Nodes(minors ...int) []string {
	nodes := []string{ControlNode, UVMNode, UVMNode + "-tools"}
	for _, minor := range minors {
		nodes = append(nodes, nodesDir+"/nvidia"+strconv.Itoa(minor))
	}
	return nodes
}
