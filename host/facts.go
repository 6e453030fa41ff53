package host

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf16"
)

// Facts describes the machine as a whole, as far as its files show it. A field is nil if its
// value is unknown.
type Facts struct {
	Hostname     *string
	Kernel       *string // release, as uname -r prints it
	Distribution *string // ID and VERSION_ID of os-release: "ubuntu 22.04"
	CPUVendor    *string // "intel", "amd", "hygon", "arm", or vendor_id in lower case
	BootLoader   *string // "grub", "grub-bls" or "systemd-boot"
}

// Files that contain the hostname. Snapshots omit them.
const (
	runningHostname = "proc/sys/kernel/hostname"
	bootHostname    = "etc/hostname"
)

// HostnameFiles returns the files from which ReadFacts reads the hostname, in order of
// preference.
func HostnameFiles() []string {
	return []string{runningHostname, bootHostname}
}

// ReadFacts reads the facts below root. It always returns the facts that it could determine;
// warnings name the files that exist but cannot be read or parsed.
func ReadFacts(root Root) (facts Facts, warnings []string) {
	r := factReader{root: root}
	return Facts{
		Hostname:     r.hostname(),
		Kernel:       r.line("proc/sys/kernel/osrelease"),
		Distribution: r.distribution(),
		CPUVendor:    r.cpuVendor(),
		BootLoader:   r.bootLoader(),
	}, r.warnings
}

// ReadHostname returns the hostname below root, or nil if no file shows it.
func ReadHostname(root Root) *string {
	r := factReader{root: root}
	return r.hostname()
}

// ReadMachineID returns the id of the machine below root (machine-id(5)), or nil if it has none that can
// be read.
func ReadMachineID(root Root) *MachineID {
	r := factReader{root: root}
	line := r.line("etc/machine-id")
	if line == nil {
		return nil
	}
	id, err := ParseMachineID(*line)
	if err != nil {
		return nil
	}
	return &id
}

type factReader struct {
	root     Root
	warnings []string
}

// failed reports whether a read returned an error, and adds a warning unless the file is absent.
func (r *factReader) failed(name string, err error) bool {
	if err != nil && !IsAbsent(err) {
		r.warnings = append(r.warnings, OfFile(name, err).Error())
	}
	return err != nil
}

// line returns the first line of a file, or nil if that line is empty.
func (r *factReader) line(name string) *string {
	data, err := r.root.ReadHead(name, 512)
	if r.failed(name, err) {
		return nil
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return nonEmpty(strings.TrimSpace(line))
}

func (r *factReader) hostname() *string {
	for _, file := range HostnameFiles() {
		// The kernel's hostname is "(none)" until it is set.
		line := r.line(file)
		if line == nil || *line == "(none)" {
			continue
		}
		if _, err := ParseName(*line); err != nil {
			r.warnings = append(r.warnings, OfFile(file, err).Error())
			continue
		}
		return line
	}
	return nil
}

// distribution reads the first os-release file that exists: /etc/os-release takes precedence
// (os-release(5)).
func (r *factReader) distribution() *string {
	for _, file := range []string{"etc/os-release", "usr/lib/os-release"} {
		data, err := r.root.ReadFile(file)
		if IsAbsent(err) {
			continue
		}
		if r.failed(file, err) {
			return nil
		}
		release := parseOSRelease(data)
		if release["ID"] == "" {
			r.warnings = append(r.warnings, fmt.Sprintf("/%s: no ID", file))
			return nil
		}
		return nonEmpty(strings.TrimSpace(release["ID"] + " " + release["VERSION_ID"]))
	}
	return nil
}

// parseOSRelease parses the shell assignments that os-release(5) allows: values unquoted or in
// one pair of quotes, with backslash escapes inside double quotes.
func parseOSRelease(data []byte) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		switch n := len(value); {
		case n >= 2 && value[0] == '\'' && value[n-1] == '\'':
			value = value[1 : n-1]
		case n >= 2 && value[0] == '"' && value[n-1] == '"':
			value = osReleaseEscape().ReplaceAllString(value[1:n-1], "$1")
		}
		values[key] = value
	}
	return values
}

var osReleaseEscape = LazyRegexp("\\\\([\"$`\\\\])")

func (r *factReader) cpuVendor() *string {
	data, err := r.root.ReadHead(CPUInfo, firstCPU)
	if r.failed(strings.TrimPrefix(CPUInfo, "/"), err) {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "vendor_id": // x86: arch/x86/kernel/cpu/proc.c
			switch value {
			case "GenuineIntel":
				value = "intel"
			case "AuthenticAMD":
				value = "amd"
			case "HygonGenuine":
				value = "hygon"
			}
			return nonEmpty(strings.ToLower(value))
		case "CPU implementer": // arm64: arch/arm64/kernel/cpuinfo.c
			return nonEmpty("arm")
		}
	}
	return nil
}

// loaderInfo is the EFI variable in which a boot loader that implements the Boot Loader
// Interface (systemd.io/BOOT_LOADER_INTERFACE) stores its name at each boot.
const loaderInfo = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

var (
	// blsCommand matches the command by which a grub.cfg loads boot entries.
	blsCommand = LazyRegexp(`(?m)^[ \t]*blscfg\b`)
	// blsEnabled matches the setting that makes grub-mkconfig write that command.
	blsEnabled = LazyRegexp(`(?m)^[ \t]*GRUB_ENABLE_BLSCFG=["']?true\b`)
)

// bootLoader prefers the firmware's variable over files, because files of a boot loader that is
// no longer used may remain.
func (r *factReader) bootLoader() *string {
	used := r.loaderInfo()
	if strings.HasPrefix(used, "systemd-boot") {
		return nonEmpty("systemd-boot")
	}
	if strings.HasPrefix(used, "GRUB") || r.anyExists("boot/grub/grub.cfg", "boot/grub2/grub.cfg") {
		// RHEL 8 and later and Fedora: GRUB builds its menu from Boot Loader Specification
		// entries instead of menu entries in grub.cfg.
		if r.matches("boot/grub2/grub.cfg", blsCommand()) || r.matches("etc/default/grub", blsEnabled()) {
			return nonEmpty("grub-bls")
		}
		return nonEmpty("grub")
	}
	// The EFI system partition is mounted at one of these directories (bootctl(1)).
	if r.anyExists("efi/EFI/systemd", "boot/EFI/systemd", "boot/efi/EFI/systemd") {
		return nonEmpty("systemd-boot")
	}
	// The tree does not include the boot partition.
	if r.anyExists("etc/default/grub") {
		return nonEmpty("grub")
	}
	return nil
}

// loaderInfo returns the boot loader's name, or "" if the variable is not set. The file contains
// four bytes of attributes followed by UTF-16 text (Linux, Documentation/filesystems/efivarfs.rst).
func (r *factReader) loaderInfo() string {
	data, err := r.root.ReadHead(loaderInfo, 512)
	if r.failed(loaderInfo, err) || len(data) < 4 {
		return ""
	}
	var units []uint16
	for data = data[4:]; len(data) >= 2; data = data[2:] {
		units = append(units, uint16(data[0])|uint16(data[1])<<8)
	}
	return strings.TrimRight(string(utf16.Decode(units)), "\x00")
}

func (r *factReader) matches(name string, form *regexp.Regexp) bool {
	data, err := r.root.ReadFile(name)
	return !r.failed(name, err) && form.Match(data)
}

func (r *factReader) anyExists(names ...string) bool {
	for _, name := range names {
		ok, err := r.root.Exists(name)
		if !r.failed(name, err) && ok {
			return true
		}
	}
	return false
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
