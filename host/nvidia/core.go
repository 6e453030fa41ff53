package nvidia

import "slices"

// CoreLibrary is a library of the driver that compute needs.
type CoreLibrary struct {
	// Name is the name by which programs load it: "libcuda.so.1". One that carries the driver's
	// version, as libnvidia-gpucomp.so.580.159.04 does, is Versioned, and Name is what comes before
	// the version.
	Name      string
	Versioned bool
	// Since is the first branch of the driver that can have it, or whose CUDA or OpenCL is known to open
	// a versioned one, and Before the first one that is known not to have it any more; 0 for all.
	Since, Before int
	// Without says what does not work in containers if a driver that should have it lacks it; "" if
	// programs that compute do not notice.
	Without string
}

// coreLibraries is the table. Libraries of graphics load others by names with the driver's version,
// and are not in it. Sources: the lists of compute libraries of libnvidia-container
// (src/nvc_info.c) and the file lists of drivers 390.157, 470.256.02, 535.261.03, 550.163.01,
// 580.159.04, 590.48.01, 595.71.05 and 615.71.09 in packages of distributions; for
// libnvidia-nvvm70.so.4 issue 1875 of nvidia-container-toolkit. CUDA of 580.159.04 was seen to open
// libcuda.so.1 and, for PTX, libnvidia-ptxjitcompiler.so.1, and neither libnvidia-nvvm.so.4 nor
// libnvidia-gpucomp.so; NVIDIA's cuda-compat of 590.48.01 consists of the versioned ones below.
var coreLibraries = []CoreLibrary{
	{Name: "libcuda.so.1"},
	{Name: "libnvidia-ml.so.1", Without: "nvidia-smi and programs that ask NVML fail in containers"},
	{Name: "libnvidia-ptxjitcompiler.so.1", Without: withoutPTX},
	{Name: "libnvidia-nvvm.so", Since: 470, Before: 495}, // the name that CUDA 11.4 asks for
	{Name: "libnvidia-nvvm.so.4", Since: 470},
	{Name: "libnvidia-nvvm70.so.4", Since: 575}, // a plain file; links programs of CUDA before 12.0
	{Name: "libnvidia-cfg.so.1"},
	{Name: "libnvidia-opencl.so.1"},
	{Name: "libcudadebugger.so.1", Since: 510},
	{Name: "libnvcuvid.so.1"},
	{Name: "libnvidia-encode.so.1"},
	{Name: "libnvidia-fatbinaryloader.so", Versioned: true, Before: 450, Without: "libcuda of this driver does not load"},
	{Name: "libnvidia-compiler.so", Versioned: true, Before: 535}, // of OpenCL
	{Name: "libnvidia-gpucomp.so", Versioned: true, Since: 590, Without: withoutPTX},
	{Name: "libnvidia-tileiras.so", Versioned: true, Since: 590}, // compiles CUDA Tile IR
}

// withoutPTX has the message of CUDA without a compiler of PTX, as it was seen.
const withoutPTX = `programs that bring PTX code only, such as those built for older GPUs, fail: ` +
	`"221 cudaErrorJitCompilerNotFound: PTX JIT compiler library not found"`

// CoreLibraries returns the libraries of compute that a driver of a version can have and opens, or all
// of the table for an unknown version, "".
func CoreLibraries(v Version) (libraries []CoreLibrary) {
	for _, c := range coreLibraries {
		if b := v.Branch(); v == "" || b >= c.Since && (c.Before == 0 || b < c.Before) {
			libraries = append(libraries, c)
		}
	}
	return libraries
}

// CoreLinks returns the names of libraries of compute that stay the same across upgrades.
func CoreLinks() (links []string) {
	for _, c := range coreLibraries {
		if !c.Versioned {
			links = append(links, c.Name)
		}
	}
	return links
}

// FileName returns the name by which programs load the library of a driver of a version, "" for a
// versioned library of an unknown version.
func (c CoreLibrary) FileName(v Version) string {
	switch {
	case !c.Versioned:
		return c.Name
	case v == "":
		return ""
	}
	return c.Name + "." + string(v)
}

// isCore reports whether a file name is that of a library of the table.
func isCore(name string) bool {
	return slices.ContainsFunc(coreLibraries, func(c CoreLibrary) bool { return name == c.FileName(FileVersion(name)) })
}
