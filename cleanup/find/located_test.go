package find

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/cleanup"
	"gpustack/host/guest"
	"gpustack/integration/evidence"
)

// locatedOf is a proof of reports and of hosts that are declared off, with the names that these
// have, by the names of the database's hosts.
func locatedOf(t *testing.T, names map[string][]string, off []string, reports ...guest.Report) *located {
	t.Helper()
	proof, err := cleanup.NewProof(reports, off)
	if err != nil {
		t.Fatal(err)
	}
	return &located{proof.At(time.Now()), names}
}

// TestLocated: a host of the database is proved to be without guests by the report that the
// database treats as the host's, and by no other.
func TestLocated(t *testing.T) {
	const uuid = "00000001-0000-4000-8000-000000000000"
	since := time.Now().Add(-time.Hour)
	devices := []cleanup.Device{{ID: 1, Address: "0000:84:00.0", Type: cleanup.TypePCI}}
	for name, test := range map[string]struct {
		names   map[string][]string
		off     []string
		reports []guest.Report
		want    string // the answers for GPU1: absent, not running, stopped, off
		why     string
	}{
		"a report":                       {map[string][]string{"GPU1": {"gpu1"}}, nil, []guest.Report{evidence.Report("gpu1", evidence.Stopped)}, "true true true false", ""},
		"a report of the host's name":    {nil, nil, []guest.Report{evidence.Report("GPU1", evidence.Stopped)}, "true true true false", ""},
		"a report of another host":       {map[string][]string{"GPU2": {"gpu1"}}, nil, []guest.Report{evidence.Report("gpu1", evidence.Stopped)}, "false false false false", "GPU1"},
		"no report":                      {nil, nil, nil, "false false false false", "GPU1"},
		"two reports":                    {map[string][]string{"GPU1": {"gpu1", "Gpu1"}}, nil, []guest.Report{evidence.Report("gpu1"), evidence.Report("Gpu1")}, "false false false false", `"gpu1" and "Gpu1"`},
		"declared off by its name":       {nil, []string{"GPU1"}, nil, "true true true true", ""},
		"declared off by another one":    {map[string][]string{"GPU1": {"gpu1"}}, []string{"gpu1"}, nil, "true true true true", ""},
		"another host is declared off":   {map[string][]string{"GPU2": {"gpu2"}}, []string{"gpu2"}, nil, "false false false false", "GPU1"},
		"nova-compute runs":              {map[string][]string{"GPU1": {"gpu1"}}, nil, []guest.Report{evidence.Report("gpu1")}, "true true false false", ""},
		"a guest uses the device":        {map[string][]string{"GPU1": {"gpu1"}}, nil, []guest.Report{evidence.Report("gpu1", evidence.Holds(t, "0000:84:00.0", uuid))}, "false false false false", "0000:84:00.0"},
		"two reports, one is used there": {map[string][]string{"GPU1": {"gpu1", "Gpu1"}}, nil, []guest.Report{evidence.Report("gpu1"), evidence.Report("Gpu1", evidence.Holds(t, "0000:84:00.0", uuid))}, "false false false false", "equal"},
	} {
		t.Run(name, func(t *testing.T) {
			l := locatedOf(t, test.names, test.off, test.reports...)
			absent, why := l.Absent("GPU1", uuid, devices, since)
			notRunning, _ := l.NotRunning("GPU1", uuid, devices, since)
			stopped, _ := l.Stopped("GPU1", since)
			var got []string
			for _, answer := range []bool{absent, notRunning, stopped, l.Off("GPU1")} {
				got = append(got, map[bool]string{true: "true", false: "false"}[answer])
			}
			if strings.Join(got, " ") != test.want || !strings.Contains(why, test.why) || test.why == "" && why != "" {
				t.Errorf("%v, %q", got, why)
			}
		})
	}
}

// TestLocatedHolder: a use that any report of the host shows counts. Of two uses the one counts
// whose guest names the device.
func TestLocatedHolder(t *testing.T) {
	const function = "0000:84:00.0"
	onlyGroup := func(r *guest.Report) { r.Guests, r.Holders[0].Asked = nil, nil }
	group := evidence.Report("Gpu1", evidence.Holds(t, function, "b"), onlyGroup)
	other := evidence.Report("gpu1", evidence.Holds(t, function, "b"), onlyGroup)
	for name, test := range map[string]struct {
		reports []guest.Report
		want    cleanup.Use
	}{
		"none":                {nil, cleanup.Use{}},
		"one":                 {[]guest.Report{evidence.Report("gpu1", evidence.Holds(t, function, "a"))}, cleanup.Use{Guest: "a", Named: true}},
		"the other one":       {[]guest.Report{evidence.Report("gpu1"), evidence.Report("Gpu1", evidence.Holds(t, function, "a"))}, cleanup.Use{Guest: "a", Named: true}},
		"a group only":        {[]guest.Report{evidence.Report("gpu1"), group}, cleanup.Use{Guest: "b"}},
		"a group and a guest": {[]guest.Report{evidence.Report("gpu1", evidence.Holds(t, function, "a")), group}, cleanup.Use{Guest: "a", Named: true}},
		"a guest and a group": {[]guest.Report{evidence.Report("Gpu1", evidence.Holds(t, function, "a")), other}, cleanup.Use{Guest: "a", Named: true}},
	} {
		t.Run(name, func(t *testing.T) {
			l := locatedOf(t, map[string][]string{"GPU1": {"Gpu1", "gpu1"}}, nil, test.reports...)
			if diff := cmp.Diff(test.want, l.Holder("GPU1", function, time.Now())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if use := l.Holder("GPU2", function, time.Now()); use != (cleanup.Use{}) {
				t.Errorf("GPU2: %+v", use)
			}
		})
	}
}

// TestAlias: a name that a migration has for a host stands for the reports of that host, unless the
// database has a host of that name.
func TestAlias(t *testing.T) {
	for name, test := range map[string]struct {
		alias string
		hosts []string
		want  []string // names of reports
	}{
		"another spelling":         {"gPU1", []string{"GPU1"}, []string{"gpu1"}},
		"of several hosts":         {"gPU1", []string{"GPU1", "GPU2"}, []string{"gpu1", "gpu2"}},
		"once":                     {"gPU1", []string{"GPU1", "GPU1"}, []string{"gpu1"}},
		"a host of this name":      {"GPU2", []string{"GPU1"}, []string{"gpu2"}},
		"its own name":             {"GPU3", []string{"GPU3"}, nil},
		"a host without a report":  {"gPU3", []string{"GPU3"}, nil},
		"no name in the migration": {"", []string{"GPU1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := locatedOf(t, map[string][]string{"GPU1": {"gpu1"}, "GPU2": {"gpu2"}}, nil)
			l.alias(test.alias, test.hosts)
			if diff := cmp.Diff(test.want, l.names[test.alias]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	var none *located
	none.alias("gPU1", []string{"GPU1"})
	if none.about("GPU1") {
		t.Error("a proof of nothing is about a host")
	}
}

// TestContradiction: a host that is declared off under one name and has a report under another is
// an error.
func TestContradiction(t *testing.T) {
	report := evidence.Report("gpu1")
	for name, test := range map[string]struct {
		names map[string][]string
		off   []string
		want  string
	}{
		"both":            {map[string][]string{"GPU1": {"gpu1", "Gpu1"}}, []string{"Gpu1"}, "host Gpu1 is declared off, but a guest report of it was given as gpu1"},
		"different hosts": {map[string][]string{"GPU1": {"gpu1"}, "GPU2": {"Gpu1"}}, []string{"Gpu1"}, ""},
		"off twice":       {map[string][]string{"GPU1": {"Gpu1", "GPU1"}}, []string{"Gpu1", "GPU1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := locatedOf(t, test.names, test.off, report).contradiction()
			if (err != nil) != (test.want != "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}
