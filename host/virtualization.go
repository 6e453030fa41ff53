package host

import (
	"errors"
	"slices"
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
	return readCPUFlag(root, "vmx", "svm")
}

// readCPUFlag returns the first flag of the CPU that is one of some, or "".
func readCPUFlag(root Root, some ...string) (string, error) {
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
			if slices.Contains(some, flag) {
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

// ReadSNP reports whether SEV-SNP is on: by the parameter of kvm_amd, or by the flag of the CPU,
// which the kernel shows where it has set SEV-SNP up, by default since Linux 6.11.
func ReadSNP(root Root) (bool, error) {
	const parameter = "/sys/module/kvm_amd/parameters/sev_snp"
	value, err := root.ReadHead(parameter, MaxAttribute)
	if err == nil && strings.HasPrefix(string(value), "Y") {
		return true, nil
	}
	if IsAbsent(err) {
		err = nil
	}
	flag, flagErr := readCPUFlag(root, "sev_snp")
	if IsAbsent(flagErr) || errors.Is(flagErr, errNoFlags) {
		flagErr = nil
	}
	return flag != "", errors.Join(OfFile(parameter, err), OfFile(CPUInfo, flagErr))
}
