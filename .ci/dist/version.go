package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

var (
	tag    = regexp.MustCompile(`^v?(\d+(?:\.\d+)+)(?:-((?:alpha|beta|rc)[.\d]*))?(?:-(\d+)-(g[0-9a-f]+))?(-dirty)?$`)
	commit = regexp.MustCompile(`^([0-9a-f]{7,40})(-dirty)?$`)
)

// packageVersion returns the version of the packages for what git describe prints, in a form that
// deb (deb-version(7)) and rpm (rpm-version(7)) accept and sort in the same order: a commit
// without a tag is older than every tag, v1.2.3-rc1 older than v1.2.3, and a commit after v1.2.3
// newer than v1.2.3.
func packageVersion(describe string, committed time.Time) (string, error) {
	if m := tag.FindStringSubmatch(describe); m != nil {
		version := m[1]
		if m[2] != "" {
			version += "~" + m[2]
		}
		if m[3] != "" {
			version += "+" + m[3] + "." + m[4]
		}
		return version + strings.Replace(m[5], "-", "+", 1), nil
	}
	if m := commit.FindStringSubmatch(describe); m != nil {
		return "0~" + committed.UTC().Format("20060102150405") + ".g" + m[1] + strings.Replace(m[2], "-", "+", 1), nil
	}
	return "", fmt.Errorf("version %q is not what git describe prints for a tag like v1.2.3 or for a commit; give one as make dist VERSION=v1.2.3", describe)
}

// semantic are the versions that Ansible accepts for a collection (https://semver.org).
var semantic = regexp.MustCompile(`^(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2}` +
	`(?:-(?:0|[1-9]\d*|\d*[a-zA-Z-][\w-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][\w-]*))*)?(?:\+[\w-]+(?:\.[\w-]+)*)?$`)

// semanticVersion returns the version of the collection for what git describe prints. A commit
// without a tag is older than every release, and a commit after v1.2.3 has the precedence of 1.2.3.
func semanticVersion(describe string) (string, error) {
	version, build := "", []string{}
	if m := tag.FindStringSubmatch(describe); m != nil {
		version = m[1] + strings.Repeat(".0", max(0, 2-strings.Count(m[1], ".")))
		if m[2] != "" {
			version += "-" + m[2]
		}
		if m[3] != "" {
			build = append(build, m[3], m[4])
		}
	} else if m := commit.FindStringSubmatch(describe); m != nil {
		version, build = "0.0.0-dev", append(build, "g"+m[1])
	}
	if strings.HasSuffix(describe, "-dirty") {
		build = append(build, "dirty")
	}
	if len(build) > 0 {
		version += "+" + strings.Join(build, ".")
	}
	if !semantic.MatchString(version) {
		return "", fmt.Errorf("version %q is none of a collection, which has three numbers (semver.org): tag the commit like v1.2.3 or v1.2.3-rc1", describe)
	}
	return version, nil
}
