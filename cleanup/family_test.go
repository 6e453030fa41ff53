package cleanup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
)

// family is the rows of a card with SR-IOV on gpu1: a PF, and VFs or vdpa devices of it. Each word
// is "type status[ owner]", in the order of the functions 0000:86:00.0, .1, .2 and so on.
func family(t *testing.T, words ...string) (rows []Device) {
	t.Helper()
	for k, word := range words {
		w := strings.Fields(word)
		d := device(gpu1, w[1], "")
		d.ID, d.Address, d.Type = int64(k+1), fmt.Sprintf("0000:86:00.%d", k), map[string]string{"PF": TypePF, "VF": TypeVF, "vdpa": TypeVDPA, "PCI": TypePCI}[w[0]]
		if d.Type == TypeVF || d.Type == TypeVDPA {
			d.Parent = text("0000:86:00.0")
		}
		if len(w) > 2 {
			d.Instance = text(w[2])
		}
		rows = append(rows, d)
	}
	return rows
}

// TestFreedWith: what Nova writes beside the devices that it frees. TestFreedWithIsNova of
// integration/db compares this with Nova's tracker.
func TestFreedWith(t *testing.T) {
	for name, test := range map[string]struct {
		rows  []string
		freed []int // functions
		want  []int
	}{
		"a card without SR-IOV":                {[]string{"PCI allocated u", "PCI allocated u"}, []int{0}, nil},
		"a PF frees its VFs":                   {[]string{"PF allocated u", "VF unavailable", "VF unavailable"}, []int{0}, []int{1, 2}},
		"and its vdpa devices":                 {[]string{"PF allocated u", "vdpa unavailable"}, []int{0}, []int{1}},
		"whatever they are":                    {[]string{"PF allocated u", "VF available", "VF allocated v"}, []int{0}, []int{1, 2}},
		"the only VF frees its PF":             {[]string{"PF unavailable", "VF allocated u"}, []int{1}, []int{0}},
		"the only vdpa device too":             {[]string{"PF unavailable", "vdpa allocated u"}, []int{1}, []int{0}},
		"a VF whose siblings are free too":     {[]string{"PF unavailable", "VF allocated u", "VF available"}, []int{1}, []int{0}},
		"a VF whose sibling is taken":          {[]string{"PF unavailable", "VF allocated u", "VF allocated v"}, []int{1}, nil},
		"a VF whose sibling is blocked":        {[]string{"PF unavailable", "VF allocated u", "vdpa unclaimable"}, []int{1}, nil},
		"two VFs at once":                      {[]string{"PF unavailable", "VF allocated u", "VF allocated u"}, []int{1, 2}, []int{0}},
		"a PF that is taken beside its VF":     {[]string{"PF allocated v", "VF allocated u"}, []int{1}, []int{0}},
		"a parent that is no PF (not related)": {[]string{"PCI unavailable", "VF allocated u"}, []int{1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rows := family(t, test.rows...)
			var freed []Device
			for _, k := range test.freed {
				freed = append(freed, rows[k])
			}
			var got []int
			for _, d := range FreedWith(freed, rows) {
				got = append(got, int(d.ID-1))
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

// TestFamilyProved: a row is freed only if the report proves that no guest uses any function that
// is written with it, nor a relative of one: on each path on which a device becomes free.
func TestFamilyProved(t *testing.T) {
	const pf, vf1, vf2, vf3 = "0000:86:00.0", "0000:86:00.1", "0000:86:00.2", "0000:86:00.3"
	const v = "5c4cf4f2-0000-0000-0000-000000000000"
	vfs := evidence.VFs(t, pf, vf1, vf2)
	uses := func(function string) func(*guest.Report) { return evidence.Holds(t, function, v) }
	blind := func(r *guest.Report) { r.VirtualFunctions = nil }
	for name, test := range map[string]struct {
		rows   []string
		judged int
		report []func(*guest.Report)
		off    bool
		why    string // why it is not freed; "" if it is
		with   []int  // the functions that are freed with it
	}{
		"PF, its whole family proved absent":       {rows: []string{"PF allocated U", "VF unavailable", "VF unavailable"}, report: []func(*guest.Report){vfs}, with: []int{1, 2}},
		"PF, a VF is used, whose row says free":    {rows: []string{"PF allocated U", "VF available"}, report: []func(*guest.Report){vfs, uses(vf1)}, why: vf1},
		"PF, a VF is used, which has no row":       {rows: []string{"PF allocated U", "VF unavailable"}, report: []func(*guest.Report){vfs, uses(vf2)}, why: vf2},
		"PF, a VF is used, of a row alone":         {rows: []string{"PF allocated U", "VF unavailable", "VF unavailable", "VF unavailable"}, report: []func(*guest.Report){vfs, uses(vf3)}, why: vf3},
		"PF, a vdpa device is used":                {rows: []string{"PF allocated U", "vdpa unavailable"}, report: []func(*guest.Report){vfs, uses(vf1)}, why: vf1},
		"PF, a VF is another instance's":           {rows: []string{"PF allocated U", "VF allocated V"}, report: []func(*guest.Report){vfs}, why: vf1 + " of the same card is allocated"},
		"PF, the report lacks relations":           {rows: []string{"PF allocated U"}, report: []func(*guest.Report){blind}, why: "virtual_functions"},
		"PF, the host is off":                      {rows: []string{"PF allocated U", "VF unavailable"}, off: true, with: []int{1}},
		"VF, the PF is free with it":               {rows: []string{"PF unavailable", "VF allocated U", "VF available"}, judged: 1, report: []func(*guest.Report){vfs}, with: []int{0}},
		"VF, the PF is used":                       {rows: []string{"PF unavailable", "VF allocated U", "VF allocated V"}, judged: 1, report: []func(*guest.Report){vfs, uses(pf)}, why: pf},
		"VF, the PF is used, and has no VFs":       {rows: []string{"PF unavailable", "VF allocated U", "VF allocated V"}, judged: 1, report: []func(*guest.Report){uses(pf)}, why: pf},
		"VF, a sibling is used, which is taken":    {rows: []string{"PF unavailable", "VF allocated U", "VF allocated V"}, judged: 1, report: []func(*guest.Report){vfs, uses(vf2)}},
		"VF, a sibling is used, which says free":   {rows: []string{"PF unavailable", "VF allocated U", "VF available"}, judged: 1, report: []func(*guest.Report){vfs, uses(vf2)}, why: vf2},
		"VF, a sibling is used without a row":      {rows: []string{"PF unavailable", "VF allocated U"}, judged: 1, report: []func(*guest.Report){vfs, uses(vf2)}, why: vf2},
		"VF, the PF has no row, a sibling is used": {rows: []string{"PCI available", "VF allocated U"}, judged: 1, report: []func(*guest.Report){vfs, uses(vf2)}},
		"VF, the PF is another instance's":         {rows: []string{"PF allocated V", "VF allocated U"}, judged: 1, report: []func(*guest.Report){vfs}, why: pf + " of the same card is allocated"},
		"vdpa, absent":                             {rows: []string{"PF unavailable", "vdpa allocated U"}, judged: 1, report: []func(*guest.Report){vfs}, with: []int{0}},
		"vdpa, the report lacks relations":         {rows: []string{"PF unavailable", "vdpa allocated U"}, judged: 1, report: []func(*guest.Report){blind}, why: "virtual_functions"},
		"a card without SR-IOV, an old report":     {rows: []string{"PCI allocated U"}, report: []func(*guest.Report){blind}},
		"a card that has become a PF":              {rows: []string{"PCI allocated U"}, report: []func(*guest.Report){vfs, uses(vf1)}, why: vf1},
		"VF, a sibling is used, of no instance": {rows: []string{"PF unavailable", "VF allocated U", "VF allocated gone"}, judged: 1,
			report: []func(*guest.Report){vfs, uses(vf2)}, why: vf2},
	} {
		// The row's instance is gone, has left, or is kept by a dead migration; or the row has no owner.
		for path, facts := range map[string]func(*Facts, *Device){
			"A, offline": func(f *Facts, _ *Device) { f.Instance, f.Service = instance("deleted"), service(gpu1, time.Hour) },
			"A, restart": func(f *Facts, _ *Device) { f.Instance = instance("deleted") },
			"B, online": func(f *Facts, _ *Device) {
				f.Instance, f.Migrations = instance("active @gpu2"), []Migration{migration("migration error gpu1 gpu2")}
			},
			"E, offline": func(f *Facts, _ *Device) { f.Instance, f.Service = instance("active @gpu2"), service(gpu1, time.Hour) },
			"E, restart": func(f *Facts, _ *Device) { f.Instance = instance("active @gpu2") },
			"I, offline": func(f *Facts, d *Device) { d.Instance, f.Service = nil, service(gpu1, time.Hour) },
		} {
			t.Run(name+"/"+path, func(t *testing.T) {
				rows := family(t, test.rows...)
				for k := range rows {
					if i := rows[k].Instance; i != nil {
						rows[k].OnNode = *i == "V"
						rows[k].Instance = map[string]*string{"U": text(u), "V": text(v), "gone": text(v)}[*i]
					}
				}
				f := Facts{Now: time.Now().UTC(), Down: time.Minute, Node: &gpu1, Service: service(gpu1, 5*time.Second)}
				facts(&f, &rows[test.judged])
				move := f.Now.Sub(now) // the rows of these tests are of another time
				for k := range rows {
					later := rows[k].Updated.Add(move)
					rows[k].Updated = &later
				}
				for k := range f.Migrations {
					f.Migrations[k].Changed = f.Migrations[k].Changed.Add(move)
				}
				seen := f.Service.LastSeen.Add(move)
				f.Service.LastSeen = &seen
				d := rows[test.judged]
				f.Card = slices.Concat(rows[:test.judged], rows[test.judged+1:])
				if d.Instance != nil {
					f.Held = []Held{{Device: d, Host: "gpu1", NodeName: "gpu1", Card: f.Card}}
				}
				reports, off := []guest.Report{}, []string{"gpu1"}
				if !test.off {
					off = nil
					change := test.report
					if strings.HasSuffix(path, "offline") {
						change = append(slices.Clone(change), evidence.Stopped)
					}
					reports = append(reports, evidence.Report("gpu1", change...))
				}
				proof, err := NewProof(reports, off)
				hosttest.NoError(t, err)
				f.Proof = proof.At(f.Now)
				place(&f)
				got := Classify(d, f)
				units := NewPlan([]Finding{got})
				repaired := got.Verdict == Stale && got.Needs == ""
				switch {
				case test.why == "" && !repaired:
					t.Errorf("it is not freed: %s, needs %q", describe(got), got.Needs)
				case test.why != "" && (repaired || len(units) > 0):
					t.Errorf("it is freed: %s", describe(got))
				case test.why != "" && !strings.Contains(got.Reason+got.Needs, test.why):
					t.Errorf("%s does not say %q", describe(got), test.why)
				case repaired && got.Repair != ByNova:
					var with []int
					for _, d := range units[0].FreedWith {
						with = append(with, int(d.ID-1))
					}
					hosttest.EqualIn(t, "freed with it", test.with, with)
				}
			})
		}
	}
}
