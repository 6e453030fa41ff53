package nvidia

import "strconv"

// toolkit is a row of "CUDA Toolkit and Corresponding Driver Versions" in NVIDIA's CUDA Toolkit
// Release Notes (13.1, Linux): the driver that a release came with.
type toolkit struct{ release, driver Version }

// toolkits are those rows, the latest first. There was no general release of 12.7.
var toolkits = []toolkit{
	{"13.1", "590.44.01"}, {"13.0", "580.65.06"}, {"12.9", "575.51.03"}, {"12.8", "570.26"}, {"12.6", "560.28.03"},
	{"12.5", "555.42.02"}, {"12.4", "550.54.14"}, {"12.3", "545.23.06"}, {"12.2", "535.54.03"}, {"12.1", "530.30.02"},
	{"12.0", "525.60.13"}, {"11.8", "520.61.05"}, {"11.7", "515.43.04"}, {"11.6", "510.39.01"}, {"11.5", "495.29.05"},
	{"11.4", "470.42.01"}, {"11.3", "465.19.01"}, {"11.2", "460.27.03"}, {"11.1", "455.23"}, {"11.0", "450.36.06"},
	{"10.2", "440.33"}, {"10.1", "418.39"}, {"10.0", "410.48"}, {"9.2", "396.26"}, {"9.1", "390.46"}, {"9.0", "384.81"},
	{"8.0", "367.48"}, {"7.5", "352.31"}, {"7.0", "346.46"},
}

// floors are the oldest drivers that run programs of a major release at all: "CUDA Toolkit and
// Minimum Required Driver Version for CUDA Minor Version Compatibility" in the same document.
// Before 11 there is no minor version compatibility.
var floors = map[int]Version{13: "580", 12: "525.60.13", 11: "450.80.02"}

// ToolkitOf returns the release of the toolkit that a version of its runtime library belongs to:
// "12.4" for "12.4.127", as in the name libcudart.so.12.4.127.
func ToolkitOf(runtime string) (release Version, ok bool) {
	v, ok := ParseVersion(runtime)
	if !ok {
		return "", false
	}
	n := v.numbers()
	return Version(strconv.Itoa(n[0]) + "." + strconv.Itoa(n[1])), true
}

// RuntimeRelease returns the release of the toolkit that the version in the name of a runtime
// library shows: "12.4" for libcudart.so.12.4.127, and "12" for libcudart.so.12 and "11" for
// libcudart.so.11.0, the SONAMEs of all releases of the family, which Python packages name their
// files by. Nothing else in the file shows the release: it is only in its machine code (CUDA 11.2,
// 11.8 and 12.4 of Debian).
func RuntimeRelease(version string) (release Version, ok bool) {
	v, ok := ParseVersion(version)
	if !ok {
		major, err := strconv.Atoi(version)
		if err != nil {
			return "", false
		}
		return Version(strconv.Itoa(major)), true
	}
	const family, whole = 11, 3 // before 11 the SONAME is that of one release
	if n := v.numbers(); len(n) < whole && n[0] >= family {
		return Version(strconv.Itoa(n[0])), true
	}
	return ToolkitOf(version)
}

// needs returns the oldest driver that runs programs of a toolkit, "12.4", and the one that runs
// all of them: below full, PTX is not compiled for the GPU, and functions added since the driver's
// own release fail. full is "" for a release that is later than the table, and for a family, "12";
// ok is false for a release of whose driver nothing is known.
func needs(release string) (floor, full Version, ok bool) {
	if major, err := strconv.Atoi(release); err == nil {
		floor = floors[major]
		return floor, "", floor != ""
	}
	v, ok := ToolkitOf(release)
	if !ok {
		return "", "", false
	}
	for _, t := range toolkits {
		if t.release == v {
			full = t.driver
		}
	}
	floor = floors[v.Branch()]
	if floor == "" || full != "" && full.Compare(floor) < 0 { // 11.0 came with a driver below that of 11.x
		floor = full
	}
	return floor, full, floor != ""
}

// Acceptance is whether a driver runs programs of a toolkit.
type Acceptance string

// The acceptances. Minor is NVIDIA's "minor version compatibility": programs run, except those that
// need PTX compiled or a function that the driver does not have. Unknown is for a toolkit that is
// not in the table.
const (
	Full    Acceptance = "full"
	Minor   Acceptance = "minor version compatibility"
	TooOld  Acceptance = "too old"
	Unknown Acceptance = "unknown"
)

// Accepts returns whether a driver runs programs of a toolkit, "12.4", and the driver that would be
// accepted in full. For TooOld, needed is the oldest driver that is not.
func Accepts(release string, driver Version) (accepted Acceptance, needed Version) {
	floor, full, ok := needs(release)
	oldest := toolkits[len(toolkits)-1]
	switch {
	case !ok && release != "" && Version(release).Compare(oldest.release) < 0 && driver.Compare(oldest.driver) >= 0:
		return Full, "" // every newer driver runs every older toolkit
	case !ok:
		return Unknown, ""
	case driver.Compare(floor) < 0:
		return TooOld, floor
	case full == "" || driver.Compare(full) < 0:
		return Minor, full
	}
	return Full, full
}

// CUDA returns the release of CUDA that a driver has, which cuDriverGetVersion returns as 12040 for
// "12.4": the latest whose driver is not newer. It is "" for drivers before 346.46. For drivers
// later than the table it is the last release in it.
func CUDA(driver Version) Version {
	for _, t := range toolkits {
		if driver.Compare(t.driver) >= 0 {
			return t.release
		}
	}
	return ""
}
