package host

import (
	"errors"
	"strings"
)

// CPUInfo describes the machine's processors (proc_cpuinfo(5)).
const CPUInfo = "/proc/cpuinfo"

// firstCPU is more than the first processor's lines take. A server has hundreds of
// processors, and the kernel takes its time over each.
const firstCPU = 8192

// ErrNoFlags says that /proc/cpuinfo has no line of flags, as on arm64, where it is called
// "Features" and says nothing of virtualization.
var ErrNoFlags = errors.New("has no line of flags")

var errCutOff = errors.New("the line of flags is cut off")

// ReadVirtualization returns the flag of the CPU feature that KVM needs, "vmx" (Intel VT-x)
// or "svm" (AMD-V), and "" where the CPU lacks it or the firmware has switched it off
// (Linux, arch/x86/kernel/cpu/proc.c and feat_ctl.c).
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
		if !strings.HasSuffix(line, "\n") { // longer than what was read, now or for a snapshot
			return "", errCutOff
		}
		return "", nil
	}
	return "", ErrNoFlags
}
