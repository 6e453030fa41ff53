package main

import (
	"testing"

	"gpustack/host/change"
	"gpustack/nova/cloud"
)

// TestCloudOfEntry: undo connects to the cloud that the entry was recorded for, unless options
// choose another one.
func TestCloudOfEntry(t *testing.T) {
	for _, test := range []struct {
		name            string
		environment     string // OS_CLOUD while it was recorded
		recorded, given cloud.Options
		want            cloud.Options
	}{
		{"an option", "", cloud.Options{Cloud: "lab", Region: "one", CACert: "/etc/ca.pem", Insecure: true}, cloud.Options{},
			cloud.Options{Cloud: "lab", Region: "one", CACert: "/etc/ca.pem", Insecure: true}},
		{"the environment", "lab", cloud.Options{}, cloud.Options{}, cloud.Options{Cloud: "lab"}},
		{"another one is chosen", "lab", cloud.Options{}, cloud.Options{Cloud: "prod"}, cloud.Options{Cloud: "prod"}},
		{"an option before the environment", "prod", cloud.Options{Cloud: "lab"}, cloud.Options{}, cloud.Options{Cloud: "lab"}},
		{"an openrc file", "", cloud.Options{}, cloud.Options{}, cloud.Options{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("OS_CLOUD", test.environment)
			origin := &change.Origin{Cloud: cloudOptions{Options: test.recorded}.recorded()}
			t.Setenv("OS_CLOUD", "another") // when it is undone
			got := cloudOptions{Options: test.given}.orRecorded(origin).Options
			if got.Cloud != test.want.Cloud || got.Region != test.want.Region || got.CACert != test.want.CACert || got.Insecure != test.want.Insecure {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if got := (cloudOptions{Options: cloud.Options{Cloud: "lab"}}).orRecorded(nil); got.Cloud != "lab" {
		t.Errorf("an entry of an earlier version: %+v", got)
	}
}
