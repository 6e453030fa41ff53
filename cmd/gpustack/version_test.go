package main

import (
	"runtime/debug"
	"testing"

	"gpustack/host/hosttest"
)

func TestVersion(t *testing.T) {
	commit := []debug.BuildSetting{{Key: "vcs", Value: "git"},
		{Key: "vcs.revision", Value: "72aac5b1b2c3d4e5f60718293a4b5c6d7e8f9012"}, {Key: "vcs.modified", Value: "false"}}
	modified := append(commit[:2:2], debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	for _, test := range []struct {
		name, linked string
		info         *debug.BuildInfo
		want         string
	}{
		{"make build", "v1.2.0", &debug.BuildInfo{Main: debug.Module{Version: "v1.1.0"}}, "v1.2.0"},
		{"go install of a version", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.0"}}, "v1.2.0"},
		{"go build of a commit", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: commit}, "72aac5b1b2c3"},
		{"go build of a modified checkout", "", &debug.BuildInfo{Settings: modified}, "72aac5b1b2c3-dirty"},
		{"a short commit", "", &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "72aac5b"}}}, "72aac5b"},
		{"-buildvcs=false", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "unreleased"},
		{"no build information", "", nil, "unreleased"},
	} {
		hosttest.EqualIn(t, test.name, test.want, versionOf(test.linked, func() (*debug.BuildInfo, bool) { return test.info, test.info != nil }))
	}
	if got := programVersion(); got == "" {
		t.Error("no version")
	}
}
