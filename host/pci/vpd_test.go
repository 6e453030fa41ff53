package pci_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/snapshot"
)

// vpd writes vital product data with one read-only resource of fields, two characters of
// keyword and the value each, as a ConnectX adapter has it.
func vpd(fields ...string) string {
	var content bytes.Buffer
	for _, f := range fields {
		content.WriteString(f[:2])
		content.WriteByte(byte(len(f) - 2))
		content.WriteString(f[2:])
	}
	name := "NVIDIA ConnectX-7"
	return string([]byte{0x82, byte(len(name)), 0}) + name +
		string([]byte{0x90, byte(content.Len()), byte(content.Len() >> 8)}) + content.String() + "\x78"
}

// Of the guide's example: the bridge of an HGX B200 board, and an ordinary adapter.
var (
	managerVPD = vpd("PNMCX750500B", "SNMT2412X00001", "VAMLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:MODL=CX750500B:SMDL=SW_MNG", "RV\x00")
	adapterVPD = vpd("PNMCX75310AAS-NEAT", "SNMT2412X00002", "VAMLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:MODL=CX75310AAS", "RV\x00")
)

func TestParseVPD(t *testing.T) {
	fields, err := pci.ParseVPD([]byte(managerVPD))
	if err != nil || len(fields) != 4 || string(fields[1]) != "MT2412X00001" {
		t.Errorf("%q, %v", fields, err)
	}
	for name, data := range map[string]string{
		"empty":                           "",
		"no end tag":                      managerVPD[:len(managerVPD)-1],
		"cut off in a field":              managerVPD[:60],
		"cut off in a header":             managerVPD[:1],
		"a field larger than its section": "\x90\x04\x00PN\xff1\x78",
		"half a field":                    "\x90\x02\x00PN\x78",
	} {
		if fields, err := pci.ParseVPD([]byte(data)); err == nil {
			t.Errorf("%s: %q", name, fields)
		}
	}
}

// FuzzParseVPD: nothing makes the parser fail, and what it returns lies in the data.
func FuzzParseVPD(f *testing.F) {
	f.Add([]byte(managerVPD))
	f.Add([]byte(adapterVPD[:40]))
	f.Add([]byte{0x90, 0xff, 0xff, 'P', 'N', 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, _ := pci.ParseVPD(data)
		for _, field := range fields {
			if !bytes.Contains(data, append([]byte{byte(len(field))}, field...)) {
				t.Errorf("%q", field)
			}
		}
	})
}

// blackwell is a machine with a GPU of a product, and two ConnectX-7 functions with such
// vital product data; with more functions if they are given.
func blackwell(product, first, second, more string) string {
	function := func(address, class, vendor, device, vpd string) string {
		at := "sys/bus/pci/devices/" + address
		text := fmt.Sprintf("-- %s/class --\n0x%s00\n-- %s/vendor --\n0x%s\n-- %s/device --\n0x%s\n", at, class, at, vendor, at, device)
		if vpd != "" {
			text += fmt.Sprintf("-- %s/vpd --\n%s\n", at, base64.StdEncoding.EncodeToString([]byte(vpd)))
		}
		return text
	}
	commands := ""
	for address, vpd := range map[string]string{"0000:05:00.0": first, "0000:06:00.0": second} {
		if vpd != "" {
			commands += "base64 sys/bus/pci/devices/" + address + "/vpd\n"
		}
	}
	return commands + function("0000:04:00.0", "0302", "10de", product, "") + function("0000:05:00.0", "0207", "15b3", "1021", first) +
		function("0000:06:00.0", "0207", "15b3", "1021", second) + more
}

// TestNVSwitchManager: of two functions with the same ids, the one whose vital product data
// says so counts as an NVSwitch, and only on machines whose NVSwitches do not show.
func TestNVSwitchManager(t *testing.T) {
	const b200, pcie, unknown = "2901", "20f1", "ffff"
	const nvswitch = "symlink sys/bus/pci/devices/0000:09:00.0 -> ../../../../sys/devices/pci0000:00/0000:00:01.0/0000:09:00.0\n"
	for _, test := range []struct {
		name, tree      string
		manager, unread bool
	}{
		{"a B200", blackwell(b200, managerVPD, adapterVPD, ""), true, false},
		{"a GPU that is newer than the tables", blackwell(unknown, managerVPD, adapterVPD, ""), true, false},
		{"a GPU without NVLink switches", blackwell(pcie, managerVPD, adapterVPD, ""), false, false},
		{"no vital product data beside a manager", blackwell(b200, managerVPD, "", ""), true, false},
		{"no vital product data on another board", blackwell(unknown, "", "", ""), false, false},
		{"malformed", blackwell(b200, managerVPD[:30], adapterVPD, ""), false, true},
		{"an NVSwitch that shows", nvswitch + blackwell(b200, managerVPD, adapterVPD,
			"-- sys/devices/pci0000:00/0000:00:01.0/0000:09:00.0/class --\n0x068000\n-- sys/devices/pci0000:00/0000:00:01.0/0000:09:00.0/vendor --\n0x10de\n"), false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			devices, _ := scan(t, test.tree)
			first, second := &devices[1], &devices[2]
			if first.IsNVSwitch() != test.manager || first.VPDUnread() != test.unread || second.IsNVSwitch() || second.VPDUnread() {
				t.Errorf("%v %v, %v %v", first.IsNVSwitch(), first.VPDUnread(), second.IsNVSwitch(), second.VPDUnread())
			}
			if test.unread && (len(first.Warnings) != 1 || !strings.Contains(first.Warnings[0], "cannot determine whether the function manages NVSwitches")) {
				t.Errorf("%q", first.Warnings)
			}
		})
	}
}

// TestHGXWithoutVPD: the board is known by its product where the tree was copied without vital product
// data, as sosreport and lspci leave it.
func TestHGXWithoutVPD(t *testing.T) {
	for product, want := range map[string]bool{"2901": true, "3182": true, "20f1": false} {
		devices, _ := scan(t, blackwell(product, "", "", ""))
		if first, second := &devices[1], &devices[2]; first.VPDUnread() != want || second.VPDUnread() != want || first.IsNVSwitch() {
			t.Errorf("%s: %v %v", product, first.VPDUnread(), second.VPDUnread())
		}
	}
}

// TestVPDIsRecordedWithoutSerials: a snapshot replays, and holds no serial number.
func TestVPDIsRecordedWithoutSerials(t *testing.T) {
	root := hosttest.Lay(t, blackwell("2901", managerVPD, adapterVPD, ""))
	var tree snapshot.Tree
	if _, _, err := pci.Scan(root.Recorded(&tree), pci.Options{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	hosttest.NoError(t, tree.Unpack(dir))
	for address, manages := range map[string]bool{"0000:05:00.0": true, "0000:06:00.0": false} {
		data, err := os.ReadFile(dir + "/sys/bus/pci/devices/" + address + "/vpd")
		if err != nil || bytes.Contains(data, []byte("MT2412")) || bytes.Contains(data, []byte("SMDL=SW_MNG")) != manages {
			t.Errorf("%s: %q, %v", address, data, err)
		}
		if _, err := pci.ParseVPD(data); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestMediated(t *testing.T) {
	root := hosttest.Lay(t, "symlink sys/bus/mdev/devices/a -> ../../../devices/pci0000:80/0000:80:02.0/0000:84:00.0/a\n"+
		"symlink sys/bus/mdev/devices/b -> ../../../devices/pci0000:80/0000:80:02.0/0000:84:00.0/b\n"+
		"symlink sys/bus/mdev/devices/c -> ../../../devices/virtual/mtty/mtty/c\n")
	mediated, err := pci.ReadMediated(root, nil)
	gpu := pci.Address{Bus: 0x84}
	if err != nil || len(mediated) != 1 || mediated[gpu] != 2 {
		t.Errorf("%v, %v", mediated, err)
	}
	if mediated, err = pci.ReadMediated(hosttest.Lay(t, "mkdir sys\n"), nil); err != nil || len(mediated) > 0 {
		t.Errorf("%v, %v", mediated, err)
	}
	if _, err = pci.ReadMediated(hosttest.Lay(t, "-- sys/bus/mdev/devices --\n"), nil); err == nil {
		t.Error("a file in place of the folder is no error")
	}
	// Without the list of all, by what the GPU shows.
	root = hosttest.Lay(t, "mkdir sys/bus/pci/devices/0000:84:00.0/mdev_supported_types/nvidia-63/devices/c0ffee\nmkdir sys/bus/pci/devices/0000:84:00.0/mdev_supported_types/nvidia-64\n"+
		"-- sys/bus/pci/devices/0000:84:00.0/class --\n0x030200\n")
	devices := hosttest.Devices(t, root)
	if mediated, err = pci.ReadMediated(root, devices); err != nil || mediated[gpu] != 1 {
		t.Errorf("%v, %v", mediated, err)
	}
	const malformed = "/sys/bus/pci/devices/0000:84:00.0/mdev_supported_types/nvidia-64/devices"
	hosttest.NoError(t, os.WriteFile(root.Path(malformed), nil, 0o600))
	if _, err = pci.ReadMediated(root, devices); err == nil || err.Error() != malformed+": not a directory" {
		t.Errorf("error %v of another folder", err)
	}
}
