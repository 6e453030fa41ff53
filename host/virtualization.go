package host

import (
	"errors"
	"strings"
)

// CPUInfo describes the machine's processors (proc_cpuinfo(5)).
const CPUInfo = "/proc/cpuinfo"

// firstCPU is the number of bytes to read of /proc/cpuinfo, more than the lines of the first
// processor. The kernel is slow to write the file for hundreds of processors.
const firstCPU = 8192

// errNoFlags means that /proc/cpuinfo has no "flags" line, as on arm64, whose "Features" line
// does not show virtualization.
var errNoFlags = errors.New("no flags line")

var errTruncated = errors.New("the flags line is truncated")

// ReadVirtualization returns the CPU flag of hardware virtualization, which KVM needs: "vmx"
// (Intel VT-x) or "svm" (AMD-V), or "" if the CPU lacks it or the firmware disables it (Linux,
// arch/x86/kernel/cpu/proc.c and feat_ctl.c).
func ReadVirtualization(root Root) (string, error) {
	data, err := root.ReadHead(CPUInfo, firstCPU)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) != "flags" {
			continue
		}
		for _, flag := range strings.Fields(value) {
			if flag == "vmx" || flag == "svm" {
				return flag, nil
			}
		}
		if !strings.HasSuffix(line, "\n") { // longer than firstCPU, here or when a snapshot was taken
			return "", errTruncated
		}
		return "", nil
	}
	return "", errNoFlags
}
