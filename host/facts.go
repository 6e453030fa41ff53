package host

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf16"
)

// Facts is what a machine's files say of the machine as a whole. What they do
// not say is nil.
type Facts struct {
	Hostname     *string
	Kernel       *string // release, as uname -r prints it
	Distribution *string // ID and VERSION_ID of os-release: "ubuntu 22.04"
	CPUVendor    *string // "intel", "amd", "arm" or the vendor's own word in lower case
	BootLoader   *string // "grub", "grub-bls" or "systemd-boot"
}

// Files that hold the machine's name: a snapshot leaves them out.
const (
	runningHostname = "proc/sys/kernel/hostname"
	bootHostname    = "etc/hostname"
)

// HostnameFiles are the files ReadFacts takes the machine's name from.
func HostnameFiles() []string {
	return []string{runningHostname, bootHostname}
}

// ReadFacts reads the facts below root. It always returns what it could learn;
// warnings name the files that are there and could not be read or understood.
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

type factReader struct {
	root     Root
	warnings []string
}

// failed tells whether a read gave nothing, and warns unless the file is absent.
func (r *factReader) failed(name string, err error) bool {
	if err != nil && !IsAbsent(err) {
		r.warnings = append(r.warnings, fmt.Sprintf("/%s: %v", name, Cause(err)))
	}
	return err != nil
}

// line returns the first line of a file, nil if that is empty.
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
		// The kernel says "(none)" until somebody has set a name.
		if name := r.line(file); name != nil && *name != "(none)" {
			return name
		}
	}
	return nil
}

// distribution reads os-release, of which the first one that is there counts
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
			r.warnings = append(r.warnings, fmt.Sprintf("/%s: has no ID", file))
			return nil
		}
		return nonEmpty(strings.TrimSpace(release["ID"] + " " + release["VERSION_ID"]))
	}
	return nil
}

// parseOSRelease reads shell assignments as os-release(5) allows them: values
// bare or in one pair of quotes, with backslash escapes inside double quotes.
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
			value = osReleaseEscape.ReplaceAllString(value[1:n-1], "$1")
		}
		values[key] = value
	}
	return values
}

var osReleaseEscape = regexp.MustCompile("\\\\([\"$`\\\\])")

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

// loaderInfo is the variable in which a boot loader that follows the Boot Loader
// Interface (systemd.io/BOOT_LOADER_INTERFACE) leaves its name at each boot.
const loaderInfo = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

// A menu that reads entries says so by this command; what makes the menu has it from
// this variable.
var (
	blsCommand = regexp.MustCompile(`(?m)^[ \t]*blscfg\b`)
	blsEnabled = regexp.MustCompile(`(?m)^[ \t]*GRUB_ENABLE_BLSCFG=["']?true\b`)
)

// bootLoader asks the firmware's variable first, since files of a boot loader
// that is no longer used may lie about, and then goes by those files.
func (r *factReader) bootLoader() *string {
	used := r.loaderInfo()
	if strings.HasPrefix(used, "systemd-boot") {
		return nonEmpty("systemd-boot")
	}
	if strings.HasPrefix(used, "GRUB") || r.anyExists("boot/grub/grub.cfg", "boot/grub2/grub.cfg") {
		// RHEL 8 and later and Fedora: the menu is made of Boot Loader
		// Specification entries instead of grub.cfg.
		if r.matches("boot/grub2/grub.cfg", blsCommand) || r.matches("etc/default/grub", blsEnabled) {
			return nonEmpty("grub-bls")
		}
		return nonEmpty("grub")
	}
	// The EFI system partition is mounted at one of these (bootctl(1)).
	if r.anyExists("efi/EFI/systemd", "boot/EFI/systemd", "boot/efi/EFI/systemd") {
		return nonEmpty("systemd-boot")
	}
	// A tree without a boot partition.
	if r.anyExists("etc/default/grub") {
		return nonEmpty("grub")
	}
	return nil
}

// loaderInfo returns "" where the firmware holds no such variable. Its file has
// four bytes of attributes, then text in UTF-16 (Linux,
// Documentation/filesystems/efivarfs.rst).
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
