package guard_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
)

// netAt is an interface with its folder below /sys/devices.
func netAt(dir string) string {
	name := dir[strings.LastIndex(dir, "/")+1:]
	return fmt.Sprintf("symlink sys/class/net/%s -> ../../devices/%s\nmkdir sys/devices/%s\n", name, dir, dir)
}

// nics are eth0 (04:00.0), eth1 (05:00.0), eth2 of a VF of 05:00.0 (05:01.0), and a bond of the first two.
var nics = netAt("pci0000:00/0000:04:00.0/net/eth0") + netAt("pci0000:00/0000:05:00.0/net/eth1") + netAt("pci0000:00/0000:05:01.0/net/eth2") +
	netAt("virtual/net/bond0") + netAt("virtual/net/bond0.7") + netAt("virtual/net/lo") + `
mkdir sys/devices/virtual/net/bond0/lower_eth0
mkdir sys/devices/virtual/net/bond0/lower_eth1
mkdir sys/devices/virtual/net/bond0.7/lower_bond0
symlink sys/devices/pci0000:00/0000:04:00.0/net/eth0/master -> ../../bond0
symlink sys/devices/pci0000:00/0000:04:00.0/net/eth0/upper_bond0 -> ../../bond0
symlink sys/bus/pci/devices/0000:05:01.0/physfn -> ../0000:05:00.0
`

var nicsFiles = file("sys/class/net/bonding_masters", "bond0") + file("sys/class/net/eth0/flags", "0x1003") + file("sys/class/net/eth0/carrier", "1") +
	file("sys/class/net/eth1/flags", "0x1003") + file("sys/class/net/eth1/carrier", "0") + file("sys/class/net/eth2/flags", "0x1002") +
	function("0000:04:00.0", "020000") + function("0000:05:00.0", "020700") + function("0000:05:01.0", "020000")

func TestInterfaces(t *testing.T) {
	for _, test := range []struct {
		name, address, class string
		parts                []string
		want                 string
		hidden               bool
	}{
		{"a port", "0000:04:00.0", "", nil, "{eth0 true true bond0}", false},
		{"without carrier", "0000:05:00.0", "", nil, "{eth1 true false }", false},
		{"down", "0000:05:01.0", "", nil, "{eth2 false false }", false},
		{"its state is not shown", "0000:06:00.0", "020000", []string{netAt("pci0000:00/0000:06:00.0/mlx5_core.sf.2/net/en6")}, "{en6 true false }", false},
		{"in another namespace", "0000:06:00.0", "020000", []string{"symlink sys/bus/pci/devices/0000:06:00.0/driver -> ../../drivers/mlx5_core\n"}, "", true},
		{"without a driver", "0000:06:00.0", "020000", nil, "", false},
		{"bound to vfio-pci", "0000:06:00.0", "020000", []string{"symlink sys/bus/pci/devices/0000:06:00.0/driver -> ../../drivers/vfio-pci\n"}, "", false},
		{"no network function", "0000:06:00.0", "010802", []string{"symlink sys/bus/pci/devices/0000:06:00.0/driver -> ../../drivers/nvme\n"}, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			parts := append([]string{nics, nicsFiles}, test.parts...)
			if test.class != "" {
				parts = append(parts, function(test.address, test.class))
			}
			root, devices := layParts(t, parts...)
			needs, err := guard.Observe(root, devices)
			hosttest.NoError(t, err)
			got := ""
			links := needs.Links[at(test.address)[0]]
			for _, i := range links.Interfaces {
				got += fmt.Sprintf("{%s %t %t %s}", i.Name, i.Up, i.Master, i.MasterName)
			}
			if got != test.want || links.Hidden != test.hidden {
				t.Errorf("got %s, %t", got, links.Hidden)
			}
		})
	}
}

func TestBelow(t *testing.T) {
	const dir = "pci0000:00/0000:01:00.2/"
	link := func(class, name, target string) string {
		return fmt.Sprintf("symlink sys/%s/%s -> ../../devices/%s/%s\nmkdir sys/devices/%s/%s\n", class, name, target, name, target, name)
	}
	hub := link("bus/usb/devices", "usb3", dir[:len(dir)-1])
	card := function("0000:01:00.0", "030000") + function("0000:01:00.2", "0c0330") +
		file("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de") + file("sys/bus/pci/devices/0000:01:00.2/vendor", "0x10de")
	for _, test := range []struct {
		name  string
		parts []string
		want  string
	}{
		{"a root hub", []string{hub, "symlink sys/bus/usb/devices/3-0:1.0 -> ../../../devices/" + dir + "usb3/3-0:1.0\n"}, ""},
		{"a USB device with an input and a disk of its own", []string{hub,
			"symlink sys/bus/usb/devices/3-1.2 -> ../../../devices/" + dir + "usb3/3-1.2\nsymlink sys/bus/usb/devices/3-1.2:1.0 -> ../../../devices/" + dir + "usb3/3-1.2/3-1.2:1.0\n",
			diskAt(dir + "usb3/3-1.2/3-1.2:1.0/host7/block/sdb"),
			"symlink sys/class/input/input9 -> ../../devices/" + dir + "usb3/3-1.2/3-1.2:1.0/input/input9\n"}, "USB device 3-1.2"},
		{"a USB disk, where no file shows USB devices", []string{diskAt(dir + "usb3/3-1.2/3-1.2:1.0/host7/block/sdb")}, "disk sdb"},
		{"a disk with a partition", []string{diskAt(dir+"nvme/nvme0/nvme0n1", "nvme0n1p1")}, "disk nvme0n1"},
		{"a path of a disk with several", []string{diskAt(dir + "nvme/nvme0/nvme0c0n1")}, "disk nvme0c0n1"},
		{"an interface", []string{netAt(dir + "net/eth5")}, "interface eth5"},
		{"a serial port", []string{link("class/tty", "ttyS4", dir+"tty")}, "serial port ttyS4"},
		{"an input device", []string{link("class/input", "input4", dir+"input"), link("class/input", "event4", dir+"input/input4")}, "input device input4"},
		{"the inputs of a sound card", []string{link("class/input", "input5", dir+"sound/card1"), link("class/input", "event5", dir+"sound/card1/input5")}, ""},
		{"of another function", []string{netAt("pci0000:00/0000:01:00.3/net/eth5")}, ""},
		{"several", []string{netAt(dir + "net/eth5"), diskAt(dir + "host7/block/sdb")}, "disk sdb, interface eth5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			needs, err := guard.Observe(layParts(t, append([]string{card}, test.parts...)...))
			got, known := needs.Below[at("0000:01:00.2")[0]]
			if err != nil || !known || got != test.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
