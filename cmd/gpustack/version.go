package main

import "runtime/debug"

// version is the version that make build links in, from the tag of the commit (see Makefile).
var version string

// programVersion returns the version that make build has linked in, or else the one that go
// install and go build record: the version of the module, or the commit.
func programVersion() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(version, info)
}

// versionOf returns linked, unless it is empty, or else the version in info, which may be nil.
func versionOf(linked string, info *debug.BuildInfo) string {
	if linked != "" {
		return linked
	}
	if info == nil {
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
