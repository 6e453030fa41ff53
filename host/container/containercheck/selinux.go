package containercheck

import (
	"gpustack/host"
	"gpustack/host/checklist"
)

// selinux finds that SELinux denies containers the device nodes of the machine. podman and CRI-O
// label containers by default, docker where selinux-enabled is set.
func (v view) selinux() []host.Finding {
	switch {
	case !v.SELinux.Seen():
		return checklist.Unread(v.SELinux.File, v.SELinux.Err)
	case !v.SELinux.Value.Enforcing:
		return checklist.NA("SELinux is not enforcing")
	case !v.SELinux.Value.DeniesDevices():
		return checklist.Pass("SELinux is enforcing, and lets containers use device nodes (container_use_devices is on)")
	}
	f := host.Finding{
		Status: host.Warn, File: host.SELinuxDir + "/enforce", Seen: "SELinux is enforcing, and denies containers device nodes (container_use_devices is off)",
		Effect: "nodes are in the container and cannot be opened: " + noDevice + "; adapters: " + noAdapters,
		Remedy: host.Plain("start containers that get devices with --security-opt=label=disable, or permit it to all: setsebool -P container_use_devices on"),
	}
	if !v.SELinux.Value.Devices.Known() {
		f.Seen = "SELinux is enforcing, and its policy has no boolean container_use_devices, which lets containers use device nodes"
		f.Remedy = host.Plain("start containers that get devices with --security-opt=label=disable, or install a container-selinux that has the boolean")
	}
	return []host.Finding{f}
}
