package container

import (
	"strconv"

	"gpustack/host"
	"gpustack/host/nvidia"
)

// InstallLibraries returns how the libraries of compute of NVIDIA's driver are installed in a
// family: from Debian's own packages, those of NVIDIA's repository for RHEL, openSUSE's, or
// Ubuntu's, whose names have the branch of the driver. If no module shows which one, there is no
// command.
func InstallLibraries(f host.Family, d nvidia.Driver) host.Text {
	p := host.Packages{host.DebianFamily: "libcuda1 nvidia-smi", host.RHELFamily: "nvidia-driver-cuda", host.SUSEFamily: "nvidia-compute-utils-G06"}
	if f == host.UbuntuFamily {
		if d.Loaded == nil || d.Loaded.Version == "" {
			return host.Plain("packages libnvidia-compute-BRANCH and nvidia-utils-BRANCH of the same branch as the kernel module, such as 580")
		}
		branch := strconv.Itoa(d.Loaded.Version.Branch())
		p[f] = "libnvidia-compute-" + branch + " nvidia-utils-" + branch
	}
	return host.Plain(f.Install(p))
}
