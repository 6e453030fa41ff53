package host

import (
	"slices"
	"strings"
)

// Family is a family of distributions, whose packages have the same names.
type Family string

// The families. UnknownFamily is that of a root that shows none, or one that is not listed.
const (
	UnknownFamily Family = ""
	DebianFamily  Family = "debian"
	UbuntuFamily  Family = "ubuntu"
	RHELFamily    Family = "rhel"
	SUSEFamily    Family = "suse"
)

// ReadFamily returns the family of the distribution below a root: by ID, or else by ID_LIKE of
// os-release(5).
func ReadFamily(root Root) Family {
	for _, file := range []string{"etc/os-release", "usr/lib/os-release"} {
		data, err := root.ReadFile(file)
		if err != nil {
			continue // a family is for the names of packages in a remedy only
		}
		release := parseOSRelease(data)
		for _, id := range append([]string{release["ID"]}, strings.Fields(release["ID_LIKE"])...) {
			switch {
			case id == "ubuntu":
				return UbuntuFamily
			case id == "debian":
				return DebianFamily
			case slices.Contains([]string{"rhel", "fedora", "centos", "rocky", "almalinux", "ol", "amzn"}, id):
				return RHELFamily
			case slices.Contains([]string{"suse", "sles", "opensuse"}, id):
				return SUSEFamily
			}
		}
		return UnknownFamily
	}
	return UnknownFamily
}

// Packages are the names of packages in each family, "" in one that has none.
type Packages map[Family]string

// Install returns the command that installs packages in a family. Without a name for it, the names
// in all families are listed.
func (f Family) Install(p Packages) string {
	programs := map[Family]string{DebianFamily: "apt-get install", UbuntuFamily: "apt-get install", RHELFamily: "dnf install", SUSEFamily: "zypper install"}
	if f == UbuntuFamily && p[f] == "" {
		f = DebianFamily
	}
	if p[f] != "" {
		return programs[f] + " " + p[f]
	}
	all := Map(Filter([]Family{DebianFamily, RHELFamily, SUSEFamily}, func(family Family) bool { return p[family] != "" }),
		func(family Family) string { return programs[family] + " " + p[family] })
	return "the packages of this distribution: " + strings.Join(all, ", or ")
}
