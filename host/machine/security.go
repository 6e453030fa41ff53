package machine

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/iommu"
)

// The states of Secure Boot and kernel lockdown: a UEFI variable with four bytes of attributes and
// one of value (UEFI specification, 3.3; Linux, Documentation/filesystems/efivarfs.rst), and a
// list with the active mode in brackets (Linux, security/lockdown/lockdown.c).
const (
	secureBootFile = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	lockdownFile   = "/sys/kernel/security/lockdown"
)

// readJudged reads those values of Judged that ObserveCheck does not read elsewhere.
func (o *observer) readJudged() {
	firmware, err := iommu.ReadFirmware(o.root)
	o.Firmware = Saw(iommu.TablesDir, firmware, err)
	units, warnings, err := iommu.ReadUnits(o.root)
	o.Units = Saw(UnitsDir, units, err)
	o.warn(warnings...)
	o.KVM = readKVM(o.root)
	o.readSecurity()
	if o.Contract.Value != nil {
		o.Fabric = readFabric(o.root)
	}
	o.inspect()
}

func readTypes(root host.Root) Look[map[string]int] {
	types, warnings, err := iommu.ReadTypes(root)
	if err == nil && len(types) == 0 && len(warnings) > 0 {
		err = errors.New(warnings[0])
	}
	return Saw(GroupsDir, types, err)
}

// KVMFile is the device through which programs use KVM (Linux, Documentation/virt/kvm/api.rst).
const KVMFile = "/dev/kvm"

// errNotRunning means that the tree is not the running machine's.
var errNotRunning = errors.New("not the root of the running machine")

// miscDir lists the devices of which /dev/kvm is one (Linux, virt/kvm/kvm_main.c: misc_register).
const miscDir = "/sys/class/misc"

// readKVM reports whether the running machine has KVM. In another tree /dev shows nothing about
// that, but a snapshot has the machine's list of devices.
func readKVM(root host.Root) Look[bool] {
	devices, err := root.ReadDir(miscDir)
	if root.IsMachine() {
		ok, err := root.Exists(KVMFile)
		return Saw(KVMFile, ok, err)
	}
	if host.IsAbsent(err) {
		err = errNotRunning
	}
	return Saw(KVMFile, slices.Contains(devices, path.Base(KVMFile)), err)
}

func (o *observer) readSecurity() {
	data, err := o.root.ReadHead(secureBootFile, 5)
	if err == nil && len(data) != 5 {
		err = fmt.Errorf("not a variable of one byte: %q", data)
	}
	o.SecureBoot = Saw(secureBootFile, err == nil && data[4] == 1, err)

	data, err = o.root.ReadHead(lockdownFile, 128)
	_, mode, ok := bytes.Cut(data, []byte("["))
	mode, _, ok2 := bytes.Cut(mode, []byte("]"))
	if err == nil && (!ok || !ok2) {
		err = fmt.Errorf("no mode in brackets: %q", data)
	}
	o.Lockdown = Saw(lockdownFile, string(mode), err)

	data, err = o.root.ReadHead(UnsafeFile, 8)
	o.Unsafe = Saw(UnsafeFile, strings.TrimSpace(string(data)) == "Y", err)
}

func readArguments(root host.Root) Look[boot.Args] {
	data, err := root.ReadFile(CmdlineFile)
	return Saw(CmdlineFile, boot.ParseArgs(string(data)), err)
}
