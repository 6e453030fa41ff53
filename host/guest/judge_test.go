package guest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"gpustack/host/document"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// node returns the report of a node with nova-compute since 08:00:50, guest U, which has group 33
// open, and domain V with 88:00.0.
func node(t testing.TB) guest.Report {
	t.Helper()
	m := newMachine()
	m.process(42, "qemu-system-x86", "qemu-system-x86_64", "-uuid", uuidU, "-device", "vfio-pci,host=0000:84:00.0")
	m.open(42, 4, "/dev/vfio/33")
	m.process(50, "nova-compute", "/usr/bin/python3", "/usr/bin/nova-compute")
	m.file("etc/libvirt/qemu/v.xml", domain(uuidV, "v", strings.ReplaceAll(hostdev, "0x84", "0x88")))
	r := observe(m.lay(t))
	if !r.Complete {
		t.Fatal(brief(r))
	}
	r.Clock = &guest.Clock{Synchronized: true, MaxErrorUS: 500_000}
	return r
}

func functions(t testing.TB, texts ...string) []pci.Address {
	t.Helper()
	var list []pci.Address
	for _, text := range texts {
		a := hosttest.Address(t, text)
		list = append(list, a)
	}
	return list
}

// byToken ends reasons that a token removes.
const byToken = "; a report with a token from 'gpustack repair-migration' shows the order"

const other = "11111111-2222-4333-8444-555555555555"

func TestAbsent(t *testing.T) {
	name := "gpu2.example.net"
	for _, test := range []struct {
		name   string
		change func(r *guest.Report, c *guest.Claim)
		want   string // reasons, "" for proven
	}{
		{"proven", func(*guest.Report, *guest.Claim) {}, ""},
		{"as old as may be", func(_ *guest.Report, c *guest.Claim) { c.Now = now.Add(10 * time.Minute) }, ""},
		{"too old", func(_ *guest.Report, c *guest.Claim) { c.Now = now.Add(14 * time.Minute) }, "report of gpu2.example.net may be 14 min 30 s old"},
		{"from a little ahead", func(_ *guest.Report, c *guest.Claim) { c.Now = now.Add(-30 * time.Second) }, ""},
		{"from the future", func(_ *guest.Report, c *guest.Claim) { c.Now = now.Add(-31 * time.Second) },
			"report of gpu2.example.net is dated 0 min 31 s in the future" + byToken},
		{"of the half minute of the change", func(_ *guest.Report, c *guest.Claim) { c.Since = now.Add(-31500 * time.Millisecond) },
			"report of gpu2.example.net may be of 2026-03-01T08:59:29Z, which is not after the last change at 2026-03-01T08:59:28Z" + byToken},
		{"of an unknown change", func(_ *guest.Report, c *guest.Claim) { c.Since = time.Time{} },
			"report of gpu2.example.net cannot be compared with a change at an unknown time"},
		{"of another host", func(_ *guest.Report, c *guest.Claim) { c.Host = "gpu1" }, "report of gpu2.example.net is not a report of host gpu1"},
		{"of no host", func(r *guest.Report, _ *guest.Claim) { r.NovaHost = nil }, "report of gpu2.example.net is not a report of host gpu2.example.net"},
		{"incomplete", func(r *guest.Report, _ *guest.Claim) {
			r.Complete = false
			r.Sources[1] = guest.Source{Name: "vfio", State: guest.Unreadable, Detail: "/proc/1/fd: permission denied"}
		}, "report of gpu2.example.net is incomplete\nreport of gpu2.example.net lacks vfio: /proc/1/fd: permission denied"},
		{"an empty value", func(r *guest.Report, c *guest.Claim) { *r = guest.Report{NovaHost: &name, Collected: c.Now} },
			"report of gpu2.example.net has schema 0 instead of 1\nreport of gpu2.example.net is incomplete\n" +
				"report of gpu2.example.net does not show whether the host's clock was synchronized" + byToken},
		{"the guest runs", func(_ *guest.Report, c *guest.Claim) { c.Guest = strings.ToUpper(uuidU) },
			"gpu2.example.net: guest " + strings.ToUpper(uuidU) + " is running, pid 42 (qemu-system-x86)\ngpu2.example.net: guest " +
				strings.ToUpper(uuidU) + " has VFIO group 33 open"},
		{"the guest is defined", func(_ *guest.Report, c *guest.Claim) { c.Guest = uuidV },
			"gpu2.example.net: guest " + uuidV + " is a defined domain, /etc/libvirt/qemu/v.xml"},
		{"a function is held", func(_ *guest.Report, c *guest.Claim) { c.Functions = functions(t, "84:00.1") },
			"gpu2.example.net: 0000:84:00.1 is in use by pid 42 (qemu-system-x86 of guest " + uuidU + ")"},
		{"a function was given", func(r *guest.Report, c *guest.Claim) {
			c.Functions = functions(t, "84:00.0")
			r.Holders = []guest.Holder{}
		}, "gpu2.example.net: 0000:84:00.0 is in the arguments of pid 42 (qemu-system-x86 of guest " + uuidU + ")"},
		{"a function is a domain's", func(_ *guest.Report, c *guest.Claim) { c.Functions = functions(t, "8c:00.0", "88:00.0") },
			"gpu2.example.net: 0000:88:00.0 belongs to the defined domain " + uuidV},
		{"nothing is claimed", func(_ *guest.Report, c *guest.Claim) { c.Guest, c.Functions = "", nil }, "neither a guest nor a function is given"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := node(t)
			c := guest.Claim{Host: "gpu2.example.net", Guest: other, Functions: functions(t, "8c:00.0"), Since: now.Add(-time.Hour), Now: now}
			test.change(&r, &c)
			got := r.Absent(c)
			if diff := cmp.Diff(test.want, strings.Join(got.Reasons, "\n")); diff != "" || got.Proven != (test.want == "") {
				t.Errorf("proven %t (-want +got):\n%s", got.Proven, diff)
			}
		})
	}
}

// TestNotRunning: a domain of the guest itself that is defined and does not run is no trace of it;
// everything else is, and so is a domain of another guest.
func TestNotRunning(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(r *guest.Report, c *guest.Claim)
		want   string // reasons, "" for proven
	}{
		{"defined", func(*guest.Report, *guest.Claim) {}, ""},
		{"in other letters", func(_ *guest.Report, c *guest.Claim) { c.Guest = strings.ToUpper(uuidV) }, ""},
		{"absent", func(r *guest.Report, _ *guest.Claim) { r.Domains = []guest.Domain{} }, ""},
		{"libvirt runs it", func(r *guest.Report, _ *guest.Claim) { r.Domains[0].Running = true },
			"gpu2.example.net: guest " + uuidV + " is a running domain, /etc/libvirt/qemu/v.xml\ngpu2.example.net: 0000:88:00.0 belongs to the running domain " + uuidV},
		{"a process runs it", func(r *guest.Report, _ *guest.Claim) {
			uuid := uuidV
			r.Guests = append(r.Guests, guest.Guest{PID: 9, Command: "qemu-kvm", UUID: &uuid})
		}, "gpu2.example.net: guest " + uuidV + " is running, pid 9 (qemu-kvm)"},
		{"its group is open", func(_ *guest.Report, c *guest.Claim) { c.Functions = functions(t, "84:00.1") },
			"gpu2.example.net: 0000:84:00.1 is in use by pid 42 (qemu-system-x86 of guest " + uuidU + ")"},
		{"of another guest", func(_ *guest.Report, c *guest.Claim) { c.Guest = other },
			"gpu2.example.net: 0000:88:00.0 belongs to the defined domain " + uuidV},
		{"incomplete", func(r *guest.Report, _ *guest.Claim) { r.Complete = false }, "report of gpu2.example.net is incomplete"},
		{"before the change", func(_ *guest.Report, c *guest.Claim) { c.Since = now },
			"report of gpu2.example.net may be of 2026-03-01T08:59:29Z, which is not after the last change at 2026-03-01T09:00:00Z" + byToken},
		{"of no guest", func(_ *guest.Report, c *guest.Claim) { c.Guest = "" }, "no guest is given"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := node(t)
			c := guest.Claim{Host: "gpu2.example.net", Guest: uuidV, Functions: functions(t, "88:00.0"), Since: now.Add(-time.Hour), Now: now}
			test.change(&r, &c)
			got := r.NotRunning(c)
			if diff := cmp.Diff(test.want, strings.Join(got.Reasons, "\n")); diff != "" || got.Proven != (test.want == "") {
				t.Errorf("proven %t (-want +got):\n%s", got.Proven, diff)
			}
			if diff := cmp.Diff(node(t).Domains, r.Domains); diff != "" && test.name == "defined" {
				t.Errorf("the report has changed: %s", diff)
			}
		})
	}
}

// TestOrder: whether a report, and the start of nova-compute, are later than a change of the rows
// is judged by the database's clock. Times are minutes before the report was made, by that clock.
func TestOrder(t *testing.T) {
	const never = 1e6
	minutes := func(n float64) time.Duration { return time.Duration(n * float64(time.Minute)) }
	for _, test := range []struct {
		name   string
		ahead  float64 // of the host's clock
		change float64 // of the rows
		token  float64 // never: none
		start  float64 // of nova-compute
		later  float64 // minutes from the report to the question
		alter  func(r *guest.Report)
		report string // reasons against the report, with "it" for its name
		starts string // reasons against the start of nova-compute
	}{
		{name: "a normal host", change: 60, token: never, start: 20, later: 9},
		{name: "a normal host, after a minute", change: 1, token: never, start: 20, later: 1, starts: "may have been running since 08:39:28Z, which is not after 08:59:00Z"},
		{name: "a normal host with a token", change: 60, token: 1, start: 20, later: 9},
		{name: "changed half a minute before the token", change: 1.6, token: 1, start: 0, later: 1, starts: "had been running for 0 min, less than 10 min"},
		{name: "changed in the second of the token", change: 1.01, token: 1, start: 0, later: 1,
			report: "it has a token of 08:59:00Z, which must be more than 30 s later than the last change at 08:58:59Z, as clocks differ: " +
				"make a new token with 'gpustack repair-migration', and a new report with the token", starts: "may have been running since 08:58:59Z, which is not after 08:58:59Z"},
		{name: "clock ahead, changed after the report", ahead: 8, change: -5, token: 1, start: 20, later: 8,
			report: "it has a token of 08:59:00Z, which must be more than 30 s later than the last change at 09:05:00Z, as clocks differ: " +
				"make a new token with 'gpustack repair-migration', and a new report with the token",
			starts: "may have been running since 08:38:59Z, which is not after 09:05:00Z"},
		{name: "clock ahead, changed after the start", ahead: 8, change: 15, token: 1, start: 20, later: 1, starts: "may have been running since 08:38:59Z, which is not after 08:45:00Z"},
		{name: "clock ahead, nothing changed", ahead: 8, change: 60, token: 1, start: 20, later: 1},
		{name: "clock far ahead, nothing changed", ahead: never, change: 60, token: 1, start: 20, later: 1},
		{name: "clock ahead, without a token", ahead: 8, change: 60, token: never, start: 20, later: 1, report: "it is dated 7 min in the future"},
		{name: "clock behind, nothing changed since", ahead: -8, change: 5, token: 1, start: 2, later: 8, starts: "had been running for 2 min, less than 10 min"},
		{name: "clock behind, changed before the start", ahead: -8, change: 22, token: 1, start: 20, later: 1},
		{name: "clock behind, without a token", ahead: -8, change: 60, token: never, start: 20, later: 4, report: "it may be 12 min 30 s old"},
		{name: "clock set back after the start", change: 30, token: 1, start: 20, later: 1, alter: func(r *guest.Report) {
			*r.NovaCompute[0].Started = r.Collected.Add(-50 * time.Minute)
		}},
		{name: "clock set forward after the start", change: 30, token: 1, start: 40, later: 1, alter: func(r *guest.Report) {
			*r.NovaCompute[0].Started = r.Collected.Add(-15 * time.Minute)
		}, starts: "may have been running since 08:18:59Z, which is not after 08:30:00Z"},
		{name: "clock set forward after the start, without a token", change: 30, token: never, start: 40, later: 1, alter: func(r *guest.Report) {
			*r.NovaCompute[0].Started = r.Collected.Add(-15 * time.Minute)
		}, starts: "may have been running since 08:19:28Z, which is not after 08:30:00Z"},
		{name: "clock not synchronized", change: 60, token: never, start: 20, later: 1, alter: func(r *guest.Report) { r.Clock.Synchronized = false },
			report: "it was made while the host's clock was not synchronized"},
		{name: "clock not synchronized, with a token", change: 60, token: 1, start: 20, later: 1, alter: func(r *guest.Report) { r.Clock.Synchronized = false }},
		{name: "unknown clock", change: 60, token: never, start: 20, later: 1, alter: func(r *guest.Report) { r.Clock = nil },
			report: "it does not show whether the host's clock was synchronized"},
		{name: "unknown clock, with a token", change: 60, token: 1, start: 20, later: 1, alter: func(r *guest.Report) { r.Clock = nil }},
		{name: "a large error", change: 1, token: never, start: 0.1, later: 1, alter: func(r *guest.Report) { r.Clock.MaxErrorUS = 16_000_000 },
			starts: "had been running for 0 min 6 s, less than 10 min"},
		{name: "an error of a minute", change: 1, token: never, start: 20, later: 1, alter: func(r *guest.Report) { r.Clock.MaxErrorUS = 60_000_000 },
			report: "it may be of 08:58:30Z, which is not after the last change at 08:59:00Z", starts: "may have been running since 08:38:29Z, which is not after 08:59:00Z"},
		{name: "an error without limit", change: 60, token: never, start: 20, later: 1, alter: func(r *guest.Report) { r.Clock.MaxErrorUS = 1 << 62 },
			report: "it was made while the host's clock was not synchronized"},
		{name: "nine minutes old by its token", change: 60, token: 1, start: 20, later: 9},
		{name: "an old token", change: 60, token: 30, start: 20, later: 1,
			report: "it has a token that is 31 min old: make a new token with 'gpustack repair-migration', and a new report with the token"},
		{name: "ten minutes old", change: 60, token: never, start: 20, later: 10},
		{name: "eleven minutes old", change: 60, token: never, start: 20, later: 11, report: "it may be 11 min 30 s old"},
		{name: "a token of the future", change: 60, token: -2, start: 20, later: 1,
			report: "it has a token of 09:02:00Z, which is later than the database's time 09:01:00Z: make a new one with 'gpustack repair-migration'"},
		{name: "a token that is none", change: 60, token: never, start: 20, later: 1, alter: func(r *guest.Report) { r.Token = new(string) },
			report: "it has a malformed token: not a token of gpustack repair-migration: \"\""},
		{name: "no age", change: 60, token: 1, start: 20, later: 1, alter: func(r *guest.Report) { r.NovaCompute[0].AgeSeconds = nil },
			starts: "has an unknown age"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := node(t)
			r.Collected = now.Add(minutes(test.ahead))
			started, age := r.Collected.Add(-minutes(test.start)), int(minutes(test.start)/time.Second)
			r.NovaCompute[0].Started, r.NovaCompute[0].AgeSeconds = &started, &age
			if test.token != never {
				token := guest.NewToken(now.Add(-minutes(test.token)))
				r.Token = &token
			}
			if test.alter != nil {
				test.alter(&r)
			}
			c := guest.Claim{Host: "gpu2.example.net", Guest: other, Since: now.Add(-minutes(test.change)), Now: now.Add(minutes(test.later))}
			short := func(a guest.Answer) string {
				text := strings.Join(a.Reasons, "\n")
				for _, pair := range [][2]string{{"report of gpu2.example.net", "it"}, {"gpu2.example.net: nova-compute (pid 50) ", ""}, {byToken, ""}, {"2026-03-01T", ""}} {
					text = strings.ReplaceAll(text, pair[0], pair[1])
				}
				return text
			}
			report := r.Absent(c)
			if diff := cmp.Diff(test.report, short(report)); diff != "" || report.Proven != (test.report == "") {
				t.Errorf("absent: proven %t (-want +got):\n%s", report.Proven, diff)
			}
			want := strings.Trim(test.report+"\n"+test.starts, "\n")
			restarted := r.NovaComputeRestarted(c)
			if diff := cmp.Diff(want, short(restarted)); diff != "" || restarted.Proven != (want == "") {
				t.Errorf("restarted: proven %t (-want +got):\n%s", restarted.Proven, diff)
			}
		})
	}
}

// TestFamily: a PF is in use with any of its VFs, and a VF with its PF. VFs of one PF are
// independent of each other.
func TestFamily(t *testing.T) {
	uuid := uuidU
	const pf, vf1, vf2 = "0000:86:00.0", "0000:86:00.1", "0000:86:00.2"
	holds := func(address string) func(r *guest.Report) {
		return func(r *guest.Report) {
			group := 50
			r.Holders = append(r.Holders, guest.Holder{PID: 9, Command: "qemu-kvm", UUID: &uuid, Group: &group, Functions: functions(t, address), Asked: []pci.Address{}})
		}
	}
	const by = " is in use by pid 9 (qemu-kvm of guest " + uuidU + ")"
	for _, test := range []struct {
		name      string
		change    func(r *guest.Report)
		function  string
		relatives bool
		want      string // reasons, "" for proven
	}{
		{"nothing in use, PF", func(*guest.Report) {}, pf, true, ""},
		{"nothing in use, VF", func(*guest.Report) {}, vf1, true, ""},
		{"PF with a VF in use", holds(vf2), pf, true, vf2 + " (VF of " + pf + ")" + by},
		{"PF with a VF in use, no kin by its row", holds(vf2), pf, false, vf2 + " (VF of " + pf + ")" + by},
		{"VF whose PF is in use", holds(pf), vf1, true, pf + " (PF of " + vf1 + ")" + by},
		{"VF whose PF is in use, no kin by its row", holds(pf), vf1, false, pf + " (PF of " + vf1 + ")" + by},
		{"VF that is in use", holds(vf1), vf1, true, vf1 + by},
		{"VF whose sibling is in use", holds(vf2), vf1, true, ""},
		{"another function", holds(pf), "0000:87:00.0", false, ""},
		{"PF, VF in arguments", func(r *guest.Report) {
			r.Guests = append(r.Guests, guest.Guest{PID: 9, Command: "qemu-kvm", UUID: &uuid, Asked: functions(t, vf1)})
		}, pf, true, vf1 + " (VF of " + pf + ") is in the arguments of pid 9 (qemu-kvm of guest " + uuidU + ")"},
		{"PF, VF of a domain", func(r *guest.Report) {
			r.Domains = append(r.Domains, guest.Domain{UUID: uuidU, Functions: functions(t, vf1)})
		}, pf, true, vf1 + " (VF of " + pf + ") belongs to the defined domain " + uuidU},
		{"no relations, kin by its row", func(r *guest.Report) { r.VirtualFunctions = nil }, vf1, true,
			"report of gpu2.example.net does not show virtual_functions: gpustack on the host is older, or could not read them"},
		{"no relations", func(r *guest.Report) { r.VirtualFunctions = nil }, "0000:87:00.0", false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := node(t)
			r.VirtualFunctions = append(r.VirtualFunctions, guest.PhysicalFunction{Address: functions(t, pf)[0], Functions: functions(t, vf1, vf2)})
			test.change(&r)
			c := guest.Claim{Host: "gpu2.example.net", Guest: other, Functions: functions(t, test.function), Relatives: test.relatives, Since: now.Add(-time.Hour), Now: now}
			for name, got := range map[string]guest.Answer{"absent": r.Absent(c), "not running": r.NotRunning(c)} {
				text := strings.ReplaceAll(strings.Join(got.Reasons, "\n"), "gpu2.example.net: ", "")
				if diff := cmp.Diff(test.want, text); diff != "" || got.Proven != (test.want == "") {
					t.Errorf("%s: proven %t (-want +got):\n%s", name, got.Proven, diff)
				}
			}
		})
	}
	r := guest.Report{VirtualFunctions: []guest.PhysicalFunction{{Address: functions(t, pf)[0], Functions: functions(t, vf1, vf2)}}}
	for function, want := range map[string][]pci.Address{
		pf: functions(t, pf, vf1, vf2), vf2: functions(t, vf2, pf), "0000:87:00.0": functions(t, "0000:87:00.0"),
	} {
		hosttest.EqualIn(t, function, want, r.Family(functions(t, function)[0]))
	}
}

func TestNewest(t *testing.T) {
	report := func(host, machine string, minute int) guest.Report {
		return guest.Report{NovaHost: &host, MachineID: &machine, Collected: now.Add(time.Duration(minute) * time.Minute)}
	}
	newest, err := guest.Newest([]guest.Report{
		report("gpu1", "m1", 0), report("gpu1", "m1", 2), report("gpu1", "m1", 1), report("gpu2", "m2", 0), report("gpu2", "m3", 5), report("gpu3", "m1", 0), {},
	})
	want := "report of an unknown host: no nova_host\nreports of gpu2 come from several machines: m2, m3"
	hosttest.Equal(t, want, fmt.Sprint(err))
	made, newer := report("gpu4", "m4", 0), report("gpu4", "m4", 9) // by a clock that was set back
	for minute, r := range map[int]*guest.Report{1: &made, 0: &newer} {
		token := guest.NewToken(now.Add(time.Duration(minute) * time.Minute))
		r.Token = &token
	}
	for _, reports := range [][]guest.Report{{made, newer}, {newer, made}, {made, report("gpu4", "m4", 10)}} {
		if of, err := guest.Newest(reports); err != nil || of["gpu4"].Token != made.Token {
			t.Errorf("%+v, %v", of, err)
		}
	}
	if len(newest) != 2 || !newest["gpu1"].Collected.Equal(now.Add(2*time.Minute)) || *newest["gpu3"].MachineID != "m1" {
		t.Errorf("%+v", newest)
	}
}

// read reads a document with one report.
func read(text []byte) (report guest.Report, err error) {
	from := document.Source{Paths: []string{document.Stdin}, Stdin: bytes.NewReader(text)}
	err = from.Each(document.HostGuests, func(d document.Document) (err error) {
		report, err = guest.Decode(d.Text)
		return err
	})
	return report, err
}

// printed returns a report as host guests prints it.
func printed(t testing.TB, r guest.Report) []byte {
	t.Helper()
	text, err := json.Marshal(struct {
		Kind document.Kind `json:"kind"`
		guest.Report
	}{document.HostGuests, r})
	hosttest.NoError(t, err)
	return text
}

// sameAgain checks that a report is the same after it was written and read back.
func sameAgain(t testing.TB, r guest.Report) {
	t.Helper()
	text := printed(t, r)
	again, err := read(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	hosttest.EqualIn(t, "written and read", string(text), string(printed(t, again)))
}

func TestReadReports(t *testing.T) {
	text := printed(t, node(t))
	sameAgain(t, node(t))
	sameAgain(t, observe(newMachine().lay(t)))
	sameAgain(t, guest.Observe(newMachine().lay(t), guest.NovaConf{Err: fmt.Errorf("x")}, now))
	for _, test := range []struct {
		name   string
		change func(r map[string]any)
		want   string
	}{
		{"a field of a later release", func(r map[string]any) { r["new"] = 1 }, ""},
		{"another schema", func(r map[string]any) { r["schema"] = 2 }, "standard input: schema 2 is of another version of gpustack; this version reads schema 1"},
		{"no schema", func(r map[string]any) { delete(r, "schema") }, "standard input: not the output of host guests"},
		{"several errors", func(r map[string]any) {
			delete(r, "holders")
			r["time"] = "yesterday"
			r["guests"].([]any)[0].(map[string]any)["asked"] = []any{"nowhere"}
			r["domains"] = 7
		}, "time: Time.UnmarshalJSON: input is not a JSON string\nholders is missing\nguests[0].asked[0]: not a PCI address: \"nowhere\"\ndomains: not a list"},
		{"a list that is not known", func(r map[string]any) { r["holders"] = nil }, "holders: is null although the report is complete"},
		{"complete without a source", func(r map[string]any) {
			r["sources"].([]any)[0].(map[string]any)["state"] = "absent"
		}, "complete: true, but the sources say false"},
		{"sources left out", func(r map[string]any) { r["sources"] = []any{} },
			"sources: must be processes, vfio, groups, domains, nova.conf, hostname, machine_id, boot_id, boot_time, sriov, vdpa"},
		{"a token", func(r map[string]any) { r["token"] = guest.NewToken(now) }, ""},
		{"a mistyped token", func(r map[string]any) { r["token"] = guest.NewToken(now)[1:] },
			"token: not a token of gpustack repair-migration: \"" + guest.NewToken(now)[1:] + "\""},
		{"a negative error", func(r map[string]any) { r["clock"] = map[string]any{"synchronized": true, "max_error_us": -1} },
			"clock.max_error_us: -1 is negative"},
		{"a clock without its error", func(r map[string]any) { r["clock"] = map[string]any{"synchronized": true} }, "clock.max_error_us is missing"},
		{"a negative age", func(r map[string]any) { r["nova_compute"].([]any)[0].(map[string]any)["age_seconds"] = -1 },
			"nova_compute[0].age_seconds: -1 is negative"},

		{"an unknown state", func(r map[string]any) {
			r["sources"].([]any)[0].(map[string]any)["state"] = "perhaps"
		}, "sources[0].state: unknown state \"perhaps\""},
		{"no uuid", func(r map[string]any) { r["guests"].([]any)[0].(map[string]any)["uuid"] = "U" }, "guests[0].uuid: not a uuid in lower case: \"U\""},
		{"a holder of nothing", func(r map[string]any) { r["holders"].([]any)[0].(map[string]any)["iommu_group"] = nil },
			"holders[0]: must have one of iommu_group, vfio_device and vdpa_device, has 0"},
		{"a holder of two things", func(r map[string]any) { r["holders"].([]any)[0].(map[string]any)["vdpa_device"] = "vhost-vdpa-0" },
			"holders[0]: must have one of iommu_group, vfio_device and vdpa_device, has 2"},
		{"no host", func(r map[string]any) { r["nova_host"] = nil }, "nova_host: is null or empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var document map[string]any
			hosttest.NoError(t, json.Unmarshal(text, &document))
			test.change(document)
			for name, marshal := range map[string]func(any) ([]byte, error){"json": json.Marshal, "yaml": yaml.Marshal} {
				changed, err := marshal(document)
				hosttest.NoError(t, err)
				r, err := read(changed)
				got := ""
				if err != nil {
					got = err.Error()
				}
				got = strings.ReplaceAll(got, "standard input: malformed: ", "")
				if got = strings.ReplaceAll(got, `parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"`,
					"Time.UnmarshalJSON: input is not a JSON string"); got != test.want {
					t.Errorf("%s: %s\nwant %s", name, got, test.want)
				}
				if err != nil && r.Complete {
					t.Errorf("%s: a report beside the error: %+v", name, r)
				}
			}
		})
	}
	for _, bad := range []string{"", "[]", "{", "x: *y", string(text) + "\n---\n" + string(text)} {
		if _, err := read([]byte(bad)); err == nil {
			t.Errorf("%.20q was read", bad)
		}
	}
}

// FuzzDecode: an incomplete report proves nothing, and each decoded report is the same after it
// was written and read back.
func FuzzDecode(f *testing.F) {
	f.Add(printed(f, node(f)))
	f.Add([]byte("schema: 1\nkind: host guests\nholders: []\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := read(data)
		if err != nil {
			return
		}
		sameAgain(t, r)
		if proven := r.Absent(guest.Claim{Host: "gpu2.example.net", Guest: other, Since: now.Add(-time.Hour), Now: now}).Proven; proven && !r.Complete {
			t.Errorf("proves with %+v", r.Unread())
		}
	})
}
