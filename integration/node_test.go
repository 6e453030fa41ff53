package integration

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// layNode lays out the sysfs part of a machine below root from a table of PCI functions
// (testdata/nodes): sys/devices, sys/bus/pci, sys/kernel/iommu_groups and sys/class/iommu as the
// kernel lays them out, with relative links.
//
// An attribute that the table does not state is absent. A function whose parent is not stated is
// directly below its host bridge. boot_vga is 1 for the first VGA function (class 0300). config has
// the 64 bytes that the stated facts determine, so that lspci reads the tree too.
func layNode(table, root string) error {
	text, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	l := nodeLayout{root: root, rows: parseTable(string(text))}
	for _, dir := range []string{devicesDir, "sys/bus/pci/drivers", "sys/kernel/iommu_groups"} {
		l.folder(dir)
	}
	bootVGA := "1"
	for _, address := range slices.Sorted(maps.Keys(l.rows)) {
		l.function(address)
		if strings.HasPrefix(l.rows[address]["class"], "0300") {
			l.file(l.place(address)+"/boot_vga", bootVGA+"\n")
			bootVGA = "0"
		}
	}
	for address, row := range l.rows {
		if l.rows[row["physfn"]] != nil {
			l.link(l.place(row["physfn"]), l.place(address)+"/physfn")
		}
	}
	return l.err
}

const devicesDir = "sys/bus/pci/devices"

// parseTable returns the rows of a table by address, each by column. "-" stands for a fact that the
// source of the table does not state.
func parseTable(text string) map[string]map[string]string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	columns := strings.Split(strings.TrimPrefix(lines[0], "#"), "\t")
	rows := map[string]map[string]string{}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, value := range strings.Split(line, "\t") {
			row[columns[i]] = value
		}
		rows[row["address"]] = row
	}
	return rows
}

// A nodeLayout lays out one table. Its methods do nothing after the first error.
type nodeLayout struct {
	root string
	rows map[string]map[string]string
	err  error
}

// function lays out one function: its attributes and the links to and from it.
func (l *nodeLayout) function(address string) {
	row, dir := l.rows[address], l.place(address)
	for name, column := range map[string]string{
		"vendor": "vendor", "device": "device", "revision": "revision", "subsystem_vendor": "subvendor", "subsystem_device": "subdevice",
	} {
		if row[column] != "-" {
			l.file(dir+"/"+name, "0x"+row[column]+"\n")
		}
	}
	if row["class"] != "-" {
		l.file(dir+"/class", "0x"+padded(row["class"])+"\n")
	}
	if row["numa_node"] != "-" {
		l.file(dir+"/numa_node", row["numa_node"]+"\n")
	}
	if row["class"] != "-" && row["vendor"] != "-" && row["device"] != "-" {
		class := strings.ToUpper(padded(row["class"]))
		l.file(dir+"/modalias", fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%ssc%si%s\n",
			id(row["vendor"]), id(row["device"]), id(row["subvendor"]), id(row["subdevice"]), class[:2], class[2:4], class[4:]))
		l.file(dir+"/config", string(l.config(address)))
	}
	l.file(dir+"/driver_override", "(null)\n")
	l.link(dir, devicesDir+"/"+address)
	if driver := row["driver"]; driver != "-" {
		l.link("sys/bus/pci/drivers/"+driver, dir+"/driver")
		l.link(dir, "sys/bus/pci/drivers/"+driver+"/"+address)
	}
	if number := row["iommu_group"]; number != "-" {
		group := "sys/kernel/iommu_groups/" + number
		l.folder("sys/class/iommu/dmar0")
		l.link(group, dir+"/iommu_group")
		l.link(dir, group+"/devices/"+address)
	}
	if total := row["sriov_totalvfs"]; total != "-" {
		vfs := 0
		for _, other := range l.rows {
			if other["physfn"] == address {
				vfs++
			}
		}
		l.file(dir+"/sriov_totalvfs", total+"\n")
		l.file(dir+"/sriov_numvfs", strconv.Itoa(vfs)+"\n")
	}
}

// config returns the standard header of configuration space (PCI Local Bus Specification 3.0, 6.1).
func (l *nodeLayout) config(address string) []byte {
	row := l.rows[address]
	config := make([]byte, 64)
	binary.LittleEndian.PutUint16(config[0:], id(row["vendor"]))
	binary.LittleEndian.PutUint16(config[2:], id(row["device"]))
	config[8] = byte(id(row["revision"]))
	class, err := hex.DecodeString(padded(row["class"]))
	if err != nil || len(class) != 3 {
		l.fail(fmt.Errorf("%s: class %q is not four or six hexadecimal digits", address, row["class"]))
		return config
	}
	config[9], config[10], config[11] = class[2], class[1], class[0]
	if strings.HasPrefix(row["class"], "0604") {
		config[14] = 1 // the header of a bridge, which has no subsystem in it
	} else {
		binary.LittleEndian.PutUint16(config[44:], id(row["subvendor"]))
		binary.LittleEndian.PutUint16(config[46:], id(row["subdevice"]))
	}
	if slot, ok := strings.CutSuffix(address, ".0"); ok && l.rows[slot+".1"] != nil {
		config[14] |= 0x80 // several functions
	}
	return config
}

// place returns where a function is below sys/devices.
func (l *nodeLayout) place(address string) string {
	if parent := l.rows[address]["parent"]; l.rows[parent] != nil {
		return l.place(parent) + "/" + address
	}
	return "sys/devices/pci" + address[:len("0000:00")] + "/" + address
}

func (l *nodeLayout) folder(name string) {
	if l.err == nil {
		l.fail(os.MkdirAll(filepath.Join(l.root, name), 0o755))
	}
}

func (l *nodeLayout) file(name, text string) {
	l.folder(filepath.Dir(name))
	if l.err == nil {
		l.fail(os.WriteFile(filepath.Join(l.root, name), []byte(text), 0o644))
	}
}

// link makes a relative link to a folder, which it makes too.
func (l *nodeLayout) link(target, name string) {
	l.folder(target)
	l.folder(filepath.Dir(name))
	to, err := filepath.Rel(filepath.Dir(name), target)
	l.fail(err)
	if l.err == nil {
		l.fail(os.Symlink(to, filepath.Join(l.root, name)))
	}
}

func (l *nodeLayout) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// padded returns a class with its programming interface, 00 if that is not stated.
func padded(class string) string {
	return (class + "00")[:6]
}

// id returns a number that a table states in hexadecimal, 0 for one that it does not state.
func id(s string) uint16 {
	n, _ := strconv.ParseUint(s, 16, 16)
	return uint16(n)
}
