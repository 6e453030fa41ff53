package pci_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/snapshot"
)

const twoFunctions = `
-- sys/bus/pci/devices/0000:01:00.0/vendor --
0x10de
-- sys/bus/pci/devices/0000:01:00.0/device --
0x11b4
-- sys/bus/pci/devices/0000:01:00.0/class --
0x030000
-- sys/bus/pci/devices/0000:02:00.0/vendor --
0xabcd
-- sys/bus/pci/devices/0000:02:00.0/device --
0x0001
-- sys/bus/pci/devices/0000:02:00.0/class --
0x0c9900
`

func namesOf(d pci.Device) string {
	var names []string
	for _, name := range []*string{d.Vendor, d.Product, d.ClassName, (*string)(d.AliasHint)} {
		if name == nil {
			names = append(names, "-")
			continue
		}
		names = append(names, *name)
	}
	return strings.Join(names, "|")
}

func TestNames(t *testing.T) {
	for _, test := range []struct {
		name, list string
		want       [2]string // vendor|product|class|alias of both functions
	}{
		{"no list: our own names, where we have one", "", [2]string{
			"NVIDIA Corporation|K4200|VGA compatible controller|K4200", "-|-|-|-",
		}},
		{"a list that is empty", "-- usr/share/misc/pci.ids --\n", [2]string{
			"NVIDIA Corporation|K4200|VGA compatible controller|K4200", "-|-|-|-",
		}},
		{"the list counts before our own", `
-- usr/share/hwdata/pci.ids --
10de  Somebody
	11b4  Chip [Model K7]
C 03  Displays
	00  VGA
`, [2]string{"Somebody|Chip [Model K7]|VGA|K4200", "-|-|-|-"}},
		{"grammar: remarks, subsystems, interfaces, other vendors, an unnamed subclass", `
-- usr/share/misc/pci.ids --
# remark
	11b4  Before any vendor

1000  Other
	11b4  Other's product
10de  NVIDIA
# remark
	11b4  Right
		10de 1096  Subsystem
	11b5  Next
abcd  Maker [of things]
		0001  Subsystem of nothing
	0001  Thing (one)
abce  After
	0001  Wrong
C 03  Display controller
	00  VGA
		00  Interface
C 0c  Serial bus
	80  Other
C 0d  Wireless
	99  Wrong
`, [2]string{"NVIDIA|Right|VGA|K4200", "Maker [of things]|Thing (one)|Serial bus|-"}},
		{"no line end at the end", "base64 usr/share/misc/pci.ids\n-- usr/share/misc/pci.ids --\nYWJjZCAgTWFrZXIKCTAwMDEgIFRoaW5n\n", [2]string{
			"NVIDIA Corporation|K4200|VGA compatible controller|K4200", "Maker|Thing|-|-",
		}},
		{"lines that are none", "-- usr/share/misc/pci.ids --\n10d\n10DE  Upper\n10de NVIDIA\n10de\n\t11b\n\t\nC\nC 3  x\n", [2]string{
			"NVIDIA|K4200|VGA compatible controller|K4200", "-|-|-|-",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			// Commands stand before files in an archive.
			devices, warnings := scan(t, test.list+twoFunctions)
			if len(warnings) > 0 {
				t.Errorf("warnings %q", warnings)
			}
			for i, want := range test.want {
				hosttest.EqualIn(t, fmt.Sprint(devices[i].Address), want, namesOf(devices[i]))
			}
		})
	}
}

func TestNamesFromACompressedList(t *testing.T) {
	root := hosttest.Lay(t, twoFunctions)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte("abcd  Maker\n\t0001  Thing\n"))
	z.Close()
	file := root.Path("usr/share/misc/pci.ids.gz")
	hosttest.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	hosttest.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
	devices, warnings, err := pci.Scan(root, pci.Options{})
	if err != nil || len(warnings) > 0 || namesOf(devices[1]) != "Maker|Thing|-|-" {
		t.Errorf("%s, warnings %q, %v", namesOf(devices[1]), warnings, err)
	}
	hosttest.NoError(t, os.WriteFile(file, b.Bytes()[:20], 0o600))
	devices, warnings, err = pci.Scan(root, pci.Options{})
	if err != nil || len(devices) != 2 || len(warnings) != 1 || !strings.HasPrefix(warnings[0], "/usr/share/misc/pci.ids.gz: ") {
		t.Errorf("cut short: %d functions, warnings %q, %v", len(devices), warnings, err)
	}
}

func TestNamesFromAGivenList(t *testing.T) {
	root := hosttest.Lay(t, twoFunctions+"-- usr/share/misc/pci.ids --\nabcd  Below the root\n")
	file := filepath.Join(t.TempDir(), "names")
	hosttest.NoError(t, os.WriteFile(file, []byte("abcd  Given\n"), 0o600))
	devices, _, err := pci.Scan(root, pci.Options{PCIIDs: file})
	if err != nil || *devices[1].Vendor != "Given" {
		t.Errorf("%s, %v", namesOf(devices[1]), err)
	}
	if _, _, err := pci.Scan(root, pci.Options{PCIIDs: file + ".absent"}); err == nil {
		t.Error("a list that was asked for and is not there is an error")
	}
}

// The name of an alias depends on the product alone: Nova has no ids of boards.
func TestAliasOfTheA16(t *testing.T) {
	for _, subsystem := range []string{"0x14a9", "0x157e"} {
		devices, _ := scan(t, folder("class = 0x030200\nvendor = 0x10de\ndevice = 0x25b6\nsubsystem_device = "+subsystem))
		if got := *devices[0].AliasHint; got != "A2-A16" {
			t.Errorf("board %s: %s", subsystem, got)
		}
	}
}

// A recording holds the lines of the list that were of use, and gives the same
// names again.
func TestNamesAreRecordedInPart(t *testing.T) {
	list := "-- usr/share/misc/pci.ids --\n0001  Unused\n10de  NVIDIA\n\t11b4  Card [K4200]\n\t11b5  Unused\nC 03  Display\n\t00  VGA\n\t01  Unused\n"
	var tree snapshot.Tree
	root := hosttest.Lay(t, list+twoFunctions).Recorded(&tree)
	before := hosttest.Devices(t, root)
	var b strings.Builder
	hosttest.NoError(t, tree.Write(&b, snapshot.Txtar))
	if strings.Contains(b.String(), "Unused") {
		t.Errorf("recorded too much:\n%s", b.String())
	}
	after, _ := scan(t, b.String())
	for i := range before {
		if namesOf(before[i]) != namesOf(after[i]) {
			t.Errorf("%s before, %s after", namesOf(before[i]), namesOf(after[i]))
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add([]byte("10de  NVIDIA\n\t11b4  K4200\nC 03  Display\n\t00  VGA\n"))
	f.Add([]byte("\t\t\n\t\nC 0\nC 03\n10de \n10de  \n"))
	tree := f.TempDir()
	for name, value := range map[string]string{"vendor": "0x10de\n", "device": "0x11b4\n", "class": "0x030000\n"} {
		folder := filepath.Join(tree, dir)
		hosttest.NoError(f, os.MkdirAll(folder, 0o755))
		hosttest.NoError(f, os.WriteFile(filepath.Join(folder, name), []byte(value), 0o600))
	}
	file := filepath.Join(tree, "names")
	root := hosttest.Root(f, tree)
	f.Fuzz(func(t *testing.T, list []byte) {
		hosttest.NoError(t, os.WriteFile(file, list, 0o600))
		devices, _, err := pci.Scan(root, pci.Options{PCIIDs: file})
		if err != nil && !strings.Contains(err.Error(), "a line too long") {
			t.Fatal(err)
		}
		if err == nil && (devices[0].Vendor == nil || devices[0].Product == nil || devices[0].ClassName == nil) {
			t.Fatalf("%q took names away", list)
		}
	})
}
