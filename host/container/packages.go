package container

import (
	"strconv"

	"gpustack/host"
	"gpustack/host/nvidia"
)

// DriverPackages are the packages with the libraries of compute of NVIDIA's driver: Debian's and
// Ubuntu's own, those of NVIDIA's repository for RHEL, and openSUSE's.
func DriverPackages(d nvidia.Driver) host.Packages {
	p := host.Packages{host.DebianFamily: "libcuda1 nvidia-smi", host.RHELFamily: "nvidia-driver-cuda", host.SUSEFamily: "nvidia-compute-utils-G06"}
	if d.Loaded != nil && d.Loaded.Version != "" {
		branch := strconv.Itoa(d.Loaded.Version.Branch())
		p[host.UbuntuFamily] = "libnvidia-compute-" + branch + " nvidia-utils-" + branch
	}
	return p
}
