package main

import "runtime/debug"

// version is the version that make build links in, from the tag of the commit (see Makefile).
var version string

// programVersion returns the version that make build has linked in, or else the one that go
// install and go build record: the version of the module, or the commit.
func programVersion() string {
	return versionOf(version, debug.ReadBuildInfo)
}

// versionOf returns linked, unless it is empty, or else the version that recorded tells, if any.
func versionOf(linked string, recorded func() (*debug.BuildInfo, bool)) string {
	if linked != "" {
		return linked
	}
	info, ok := recorded()
	if !ok {
		return "unreleased"
	}
	// Since Go 1.24 go build, too, records a version, from the tags of the checkout.
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return "unreleased"
	}
	revision = revision[:min(len(revision), 12)]
	if settings["vcs.modified"] == "true" {
		revision += "-dirty"
	}
	return revision
}
