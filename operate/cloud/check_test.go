package cloud

import (
	"os"
	"strings"
	"testing"
	"time"

	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
)

// TestOutdated: a service whose file changed after its start is to be restarted. Of changes that nova
// configure recorded, only those count that need it.
func TestOutdated(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 8, minute, 0, 0, time.UTC) }
	entry := func(minute int, services ...string) change.Entry {
		ended := at(minute).Add(time.Second)
		return change.Entry{Started: at(minute), Ended: &ended, Restart: services, Files: []change.File{{Name: nova.DefaultConf}}}
	}
	undone := func(minute, until int, services ...string) change.Entry {
		e := entry(minute, services...)
		e.Status, e.Ended = change.Undone, new(at(until))
		return e
	}
	for _, test := range []struct {
		name           string
		entries        []change.Entry
		changed, start time.Time
		want           bool
	}{
		{"the file is older", nil, at(1), at(2), false},
		{"the service was restarted at once", nil, at(2).Add(time.Second), at(2), false},
		{"the file is newer", nil, at(3), at(2), true},
		{"a change that needs a restart", []change.Entry{entry(3, "nova-api")}, at(3), at(2), true},
		{"a change that needs none", []change.Entry{entry(3, "nova-compute")}, at(3), at(2), false},
		{"a change within a second", []change.Entry{{Started: at(3), Ended: new(at(3)), Files: []change.File{{Name: nova.DefaultConf}}}}, at(3).Add(400 * time.Millisecond), at(2), false},
		{"one that needs a restart, then one that needs none", []change.Entry{entry(3, "nova-api"), entry(4)}, at(4), at(2), true},
		{"one before the start, then one that needs none", []change.Entry{entry(1, "nova-api"), entry(4)}, at(4), at(2), false},
		{"an edit by hand after a change", []change.Entry{entry(3)}, at(5), at(2), true},
		{"a change that has not ended", []change.Entry{{Started: at(3), Files: []change.File{{Name: nova.DefaultConf}}}}, at(3), at(2), true},
		{"a change that was undone", []change.Entry{undone(3, 5, "nova-api")}, at(5), at(2), false},
		{"a change that was undone after the start", []change.Entry{undone(3, 5, "nova-api")}, at(5), at(4), true},
		{"one that needs a restart, then one that was undone", []change.Entry{entry(3, "nova-api"), undone(4, 5, "nova-api")}, at(5), at(2), true},
		{"an edit by hand after a change that was undone", []change.Entry{undone(3, 5, "nova-api")}, at(6), at(2), true},
		{"a change of another file", []change.Entry{{Started: at(2), Ended: new(at(4)), Files: []change.File{{Name: "/etc/fstab"}}}}, at(3), at(2), true},
	} {
		hosttest.EqualIn(t, test.name, test.want, needsRestart(test.entries, "nova-api", nova.DefaultConf, test.changed, test.start))
	}
	root := hosttest.Lay(t, "-- etc/nova/nova.conf --\n-- etc/nova/nova-compute.conf --\n-- usr/lib/systemd/system/nova-compute.service --\n")
	for name, changed := range map[string]time.Time{nova.DefaultConf: at(1), "/etc/nova/nova-compute.conf": at(3)} {
		hosttest.NoError(t, os.Chtimes(root.Path(name), changed, changed))
	}
	side, err := nova.ReadSide(root, nova.All, []string{nova.DefaultConf, "/etc/nova/nova-compute.conf"})
	hosttest.NoError(t, err)
	if err := os.Remove(root.Path(nova.DefaultConf)); err != nil { // a file that goes after it was read
		t.Fatal(err)
	}
	findings, err := outdated(root, []nova.Side{side}, map[string]time.Time{"nova-compute": at(2), "nova-api": at(2)})
	if err != nil || len(findings) != 1 || findings[0].File != "/etc/nova/nova-compute.conf" ||
		findings[0].Remedy.String() != "run systemctl restart nova-compute" ||
		!strings.HasPrefix(findings[0].Seen, "nova-compute was started at 2026-03-01T08:02:00Z") {
		t.Errorf("%+v, %v", findings, err)
	}
}

// TestWaiting: devices that wait to be cleaned are a warning of the check of flavors.
func TestWaiting(t *testing.T) {
	c := cloudtest.Start(t, 96)
	c.PCI = &cloudtest.Devices{Class: class, Total: 4, ToClean: 1}
	connect(t, c)
	for _, want := range []string{"1 one-time-use device to clean: gpu1_0000:87:00.0", ""} {
		_, waiting, err := CheckOptions{Flavors: &cloud.Options{}}.readFlavors(t.Context())
		seen := ""
		for _, f := range waiting {
			seen = f.Seen
		}
		if err != nil || seen != want {
			t.Errorf("%q, %v, want %q", seen, err, want)
		}
		c.PCI.ToClean = 0
	}
}
