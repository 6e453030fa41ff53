package main

import (
	"strings"
	"testing"

	"gpustack/host/change"
	"gpustack/nova/cloud"
)

// TestCloudOfEntry: undo connects to the cloud that the entry was recorded for, unless options
// choose another one.
func TestCloudOfEntry(t *testing.T) {
	for _, test := range []struct {
		name            string
		environment     string // OS_CLOUD while it was recorded, and the region and CA of the variables after it
		recorded, given cloud.Options
		want            cloud.Options
	}{
		{"an option", "", cloud.Options{Cloud: "lab", Region: "one", CACert: "/etc/ca.pem", Insecure: true}, cloud.Options{},
			cloud.Options{Cloud: "lab", Region: "one", CACert: "/etc/ca.pem", Insecure: true}},
		{"the environment", "lab", cloud.Options{}, cloud.Options{}, cloud.Options{Cloud: "lab"}},
		{"the environment, with a region", "lab two /etc/ca.pem", cloud.Options{}, cloud.Options{},
			cloud.Options{Cloud: "lab", Region: "two", CACert: "/etc/ca.pem"}},
		{"variables of an openrc file", " two /etc/ca.pem", cloud.Options{}, cloud.Options{}, cloud.Options{}},
		{"a new certificate", "lab two", cloud.Options{}, cloud.Options{CACert: "/new.pem"}, cloud.Options{Cloud: "lab", Region: "two", CACert: "/new.pem"}},
		{"another one is chosen", "lab", cloud.Options{}, cloud.Options{Cloud: "prod"}, cloud.Options{Cloud: "prod"}},
		{"an option before the environment", "prod", cloud.Options{Cloud: "lab"}, cloud.Options{}, cloud.Options{Cloud: "lab"}},
		{"an openrc file", "", cloud.Options{}, cloud.Options{}, cloud.Options{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			values := strings.Split(test.environment+"  ", " ")
			for i, name := range []string{"OS_CLOUD", "OS_REGION_NAME", "OS_CACERT"} {
				t.Setenv(name, values[i])
			}
			origin := change.Origin{Cloud: recordedCloud(test.recorded)}
			t.Setenv("OS_CLOUD", "another") // when it is undone
			got := orRecorded(test.given, origin)
			if got.Cloud != test.want.Cloud || got.Region != test.want.Region || got.CACert != test.want.CACert || got.Insecure != test.want.Insecure {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
