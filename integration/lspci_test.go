package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// TestScanAgreesWithLspci holds what the scan says against lspci, which reads the
// ids from configuration space, on every example, on the real machines of
// nodes_test.go, and on the machine that runs the test.
func TestScanAgreesWithLspci(t *testing.T) {
	roots := map[string]string{"this machine": "/"}
	for name, file := range examples(t) {
		roots[name] = unpack(t, file)
		writeConfigs(t, roots[name])
	}
	tables, err := layNodes()
	hosttest.NoError(t, err)
	for table, root := range tables {
		roots[filepath.Base(table)] = root
	}
	for name, root := range roots {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(root, "sys/bus/pci/devices")); os.IsNotExist(err) {
				// lspci prints nothing then; the scan says that there is none.
				if _, stderr, status := try(t, exec.Command(gpustack, "host", "scan", "--root", root)); status != 1 || stderr == "" {
					t.Errorf("without a PCI bus: exit status %d, %q", status, stderr)
				}
				return
			}
			if len(missingConfigs(t, root)) > 0 {
				return // lspci stops at the first function without ids, the scan does not
			}
			// Both name products from one list: where udev is installed, lspci asks its
			// database too.
			list := filepath.Join(root, "usr/share/misc/pci.ids")
			for _, elsewhere := range []string{"/usr/share/misc/pci.ids", filepath.Join(root, "usr/share/hwdata/pci.ids")} {
				if _, err := os.Stat(list); err != nil {
					list = elsewhere
				}
			}
			ours := run(t, gpustack, "host", "scan", "--all", "-o", "json", "--root", root, "--pci-ids", list)
			theirs := run(t, "lspci", "-D", "-vmm", "-nn", "-k", "-i", list, "-O", "hwdb.disable=1", "-O", "sysfs.path="+filepath.Join(root, "sys/bus/pci"))
			var report struct{ Devices []pci.Device }
			hosttest.NoError(t, json.Unmarshal([]byte(ours), &report))
			hosttest.EqualIn(t, "lspci and gpustack", lspci(theirs), likeLspci(report.Devices))
		})
	}
}

// function is what both say of a function.
type function struct {
	Class, Vendor, Device, Driver, NUMANode, IOMMUGroup string
}

// lspci reads the records of lspci -vmm.
func lspci(text string) map[string]function {
	all := map[string]function{}
	for record := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		field := map[string]string{}
		for line := range strings.Lines(record) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":\t")
			field[name] = value
		}
		all[field["Slot"]] = function{field["Class"], field["Vendor"], field["Device"], field["Driver"], field["NUMANode"], field["IOMMUGroup"]}
	}
	return all
}

// likeLspci words functions as lspci does.
func likeLspci(devices []pci.Device) map[string]function {
	all := map[string]function{}
	for _, d := range devices {
		f := function{
			Class:  named(d.ClassName, "Class", d.Class),
			Vendor: named(d.Vendor, "Vendor", d.VendorID),
			Device: named(d.Product, "Device", d.ProductID),
		}
		if d.Driver != nil {
			f.Driver = *d.Driver
		}
		if d.NUMANode != nil {
			f.NUMANode = strconv.Itoa(*d.NUMANode)
		}
		if d.IOMMUGroup != nil {
			f.IOMMUGroup = strconv.Itoa(*d.IOMMUGroup)
		}
		all[d.Address.String()] = f
	}
	return all
}

// named is "NAME [ID]", or "Device [ID]" without a name.
func named[T interface{ String() string }](name *string, kind string, id *T) string {
	if id == nil {
		return ""
	}
	if name != nil {
		kind = *name
	}
	return kind + " [" + (*id).String() + "]"
}

// missingConfigs returns the functions without configuration space.
func missingConfigs(t testing.TB, root string) (missing []string) {
	t.Helper()
	for _, dir := range functions(t, root) {
		if _, err := os.Stat(filepath.Join(dir, "config")); err != nil {
			missing = append(missing, dir)
		}
	}
	return missing
}

// functions returns the folders of all functions.
func functions(t testing.TB, root string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*"))
	hosttest.NoError(t, err)
	return dirs
}

// writeConfigs gives each function the first 64 bytes of its configuration space,
// made of its attributes: lspci takes ids from there, and examples have none.
func writeConfigs(t testing.TB, root string) {
	t.Helper()
	for _, dir := range functions(t, root) {
		attribute := func(name string) int {
			text := hosttest.Read(t, filepath.Join(dir, name))
			n, err := strconv.ParseInt(strings.TrimSpace(text), 0, 32)
			hosttest.NoError(t, err)
			return int(n)
		}
		config := make([]byte, 64)
		word := func(at, value int) { config[at], config[at+1] = byte(value), byte(value>>8) }
		class := attribute("class")
		word(0, attribute("vendor"))
		word(2, attribute("device"))
		config[8] = byte(attribute("revision"))
		config[9], config[10], config[11] = byte(class), byte(class>>8), byte(class>>16)
		if class>>8 == 0x0604 {
			config[14] = 1
		} else {
			word(44, attribute("subsystem_vendor"))
			word(46, attribute("subsystem_device"))
		}
		if regexp.MustCompile(`\.[1-7]$`).MatchString(dir) {
			config[14] |= 0x80
		}
		hosttest.NoError(t, os.WriteFile(filepath.Join(dir, "config"), config, 0o600))
	}
}
