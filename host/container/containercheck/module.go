package containercheck

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/modprobe"
	"gpustack/host/nvidia"
)

// Messages of CUDA and NVML (facts of driver 535 and 550: cudaGetErrorName, cudaGetErrorString,
// nvmlErrorString).
const (
	insufficient   = container.Insufficient
	noDevice       = container.NoDevice
	notLoaded      = `"9 Driver Not Loaded" (NVML)`
	mismatchNVML   = `"18 Driver/library version mismatch" (NVML)`
	mismatch       = `"803 system has unsupported display driver / cuda driver combination"`
	notReady       = `"802 system not yet initialized"`
	noForward      = `"804 forward compatibility was attempted on non supported HW"`
	unknownError   = container.UnknownError
	lost           = `"Failed to initialize NVML: Unknown Error"`
	noAdapters     = `"No IB devices found" (ibv_devinfo)`
	versionsDiffer = mismatchNVML + ", in CUDA " + mismatch
)

// kernelMismatch begins what the module writes to the kernel log for a library of another version
// (open-gpu-kernel-modules, src/nvidia/arch/nvalloc/unix/src/osapi.c, rm_perform_version_check).
const kernelMismatch = `"NVRM: API mismatch: the client has the version" in the kernel log`

const procVersion = "/proc/driver/nvidia/version"

// module checks that NVIDIA's kernel module is loaded, installed for the running kernel, and of the
// same version.
func (v view) module() []host.Finding {
	if why := v.noDriver(); why != nil {
		return why
	}
	d := v.Driver.Value
	installed := slices.IndexFunc(d.OnDisk, func(m nvidia.DiskModule) bool { return m.Running })
	if d.Loaded == nil {
		f := host.Finding{
			Status: host.Fail, File: procVersion, Seen: "NVIDIA's kernel module is not loaded",
			Effect: "containers find no GPU: " + noDevice + ", " + notLoaded,
			Remedy: host.Plain("modprobe nvidia; if it fails, the kernel log has the reason"),
		}
		switch {
		case installed < 0 && len(d.OnDisk) > 0:
			f.Seen += ", and the running kernel has none: it is installed for " + kernels(d.OnDisk)
			f.Remedy = v.install("the module for the running kernel (its headers and dkms autoinstall, or the distribution's package), or boot " + d.OnDisk[0].Kernel)
		case installed < 0:
			f.Seen += " nor installed"
			f.Remedy = v.install("the driver: its kernel module and its libraries of the same version")
		case len(v.Preventing.Value) > 0:
			line := v.Preventing.Value[0]
			f.Seen += ": " + line.String() + " prevents it"
			f.Remedy = host.Plain("remove the line, then: modprobe nvidia")
			switch {
			case line.IsArgument():
				f.Remedy = host.Plain("remove the argument from the boot loader's configuration, and reboot")
			case slices.Contains(modprobe.RunFiles(), line.File), slices.Contains(modprobe.OwnFiles(), line.File):
				f.Remedy = host.Textf("if a GPU is to stay with the host, run: %s, which removes the line", host.NewCommand("host prepare"))
			}
		case !v.Preventing.Seen():
			f.Remedy = host.Plain("modprobe nvidia; what may prevent it cannot be read: " + v.Preventing.Err.Error())
		}
		return []host.Finding{f}
	}
	var findings []host.Finding
	switch {
	case d.Loaded.Version == "":
		return []host.Finding{{
			Status: host.NA, File: procVersion, Seen: "NVIDIA's kernel module is loaded, and its version is not shown",
			Effect: "whether the libraries are of its version is unknown",
		}}
	case installed < 0 && d.Container != "":
		return checklist.Pass("version %s is loaded, by the driver container in %s", d.Loaded.Version, d.Container)
	case installed < 0:
		findings = append(findings, host.Finding{
			Status: host.Warn, File: procVersion, Seen: fmt.Sprintf("version %s is loaded, but the running kernel has no module on disk", d.Loaded.Version),
			Effect: "the module is missing after the next reboot: containers find no GPU, " + noDevice,
			Remedy: host.Plain("install the module for the running kernel (its headers and dkms autoinstall, or the distribution's package)"),
		})
	}
	kind := ""
	if d.Loaded.Open {
		kind = " (open kernel module)"
	}
	return checklist.OrPass(findings, "version %s%s is loaded and installed", d.Loaded.Version, kind)
}

// kernels lists the kernels that have a module.
func kernels(modules []nvidia.DiskModule) string {
	text := ""
	for i, m := range modules {
		if i > 0 {
			text += ", "
		}
		text += m.Kernel
	}
	return text
}

// noDriver returns the finding of a check of the driver that does not apply or cannot be made, or
// nil.
func (v view) noDriver() []host.Finding {
	switch {
	case !v.Devices.Seen():
		return checklist.Unread(v.Devices.File, v.Devices.Err)
	case !v.Driver.Seen():
		return checklist.Unread(v.Driver.File, v.Driver.Err)
	case len(v.cards) == 0 && v.Driver.Value.Loaded == nil:
		return checklist.NA("the machine has no GPU of NVIDIA's")
	}
	return nil
}
