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
	return r
}

func functions(t testing.TB, texts ...string) []pci.Address {
	t.Helper()
	var list []pci.Address
	for _, text := range texts {
		a, err := pci.ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

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
		{"too old", func(_ *guest.Report, c *guest.Claim) { c.Now = now.Add(14 * time.Minute) }, "report of gpu2.example.net is 14 min old"},
		{"from a little ahead", func(_ *guest.Report, c *guest.Claim) { c.Now = now.Add(-time.Minute) }, ""},
		{"from the future", func(_ *guest.Report, c *guest.Claim) { c.Now = now.Add(-61 * time.Second) },
			"report of gpu2.example.net is dated 1 min 1 s in the future"},
		{"of the second of the change", func(_ *guest.Report, c *guest.Claim) { c.Since = now.Add(-time.Second) },
			"report of gpu2.example.net is of 2026-03-01T09:00:00Z, which is not after the last change at 2026-03-01T08:59:59Z"},
		{"of an unknown change", func(_ *guest.Report, c *guest.Claim) { c.Since = time.Time{} },
			"report of gpu2.example.net cannot be compared with a change at an unknown time"},
		{"of another host", func(_ *guest.Report, c *guest.Claim) { c.Host = "gpu1" }, "report of gpu2.example.net is not a report of host gpu1"},
		{"of no host", func(r *guest.Report, _ *guest.Claim) { r.NovaHost = nil }, "report of gpu2.example.net is not a report of host gpu2.example.net"},
		{"incomplete", func(r *guest.Report, _ *guest.Claim) {
			r.Complete = false
			r.Sources[1] = guest.Source{Name: "vfio", State: guest.Unreadable, Detail: "/proc/1/fd: permission denied"}
		}, "report of gpu2.example.net is incomplete\nreport of gpu2.example.net lacks vfio: /proc/1/fd: permission denied"},
		{"an empty value", func(r *guest.Report, c *guest.Claim) { *r = guest.Report{NovaHost: &name, Collected: c.Now} },
			"report of gpu2.example.net has schema 0 instead of 1\nreport of gpu2.example.net is incomplete"},
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
			"report of gpu2.example.net is of 2026-03-01T09:00:00Z, which is not after the last change at 2026-03-01T09:00:00Z"},
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

// TestPresent: a report shows where a guest is, if it is complete, fresh and of that host.
func TestPresent(t *testing.T) {
	for _, test := range []struct {
		name             string
		change           func(r *guest.Report, c *guest.Claim)
		running, stopped string // reasons, "" for proven
	}{
		{"it runs", func(*guest.Report, *guest.Claim) {}, "", "gpu2.example.net: guest " + uuidU + " is running, although it is to be stopped"},
		{"by libvirt alone", func(r *guest.Report, c *guest.Claim) { c.Guest, r.Domains[0].Running = uuidV, true },
			"", "gpu2.example.net: guest " + uuidV + " is running, although it is to be stopped"},
		{"defined", func(_ *guest.Report, c *guest.Claim) { c.Guest = uuidV }, "gpu2.example.net: guest " + uuidV + " is not running", ""},
		{"absent", func(_ *guest.Report, c *guest.Claim) { c.Guest = other },
			"gpu2.example.net: guest " + other + " is not running", "gpu2.example.net: guest " + other + " is not defined"},
		{"of another host", func(_ *guest.Report, c *guest.Claim) { c.Host = "gpu1" }, "report of gpu2.example.net is not a report of host gpu1",
			"report of gpu2.example.net is not a report of host gpu1\ngpu2.example.net: guest " + uuidU + " is running, although it is to be stopped"},
		{"too old", func(_ *guest.Report, c *guest.Claim) { c.Guest, c.Now = uuidV, now.Add(14*time.Minute) },
			"report of gpu2.example.net is 14 min old\ngpu2.example.net: guest " + uuidV + " is not running", "report of gpu2.example.net is 14 min old"},
		{"no guest", func(_ *guest.Report, c *guest.Claim) { c.Guest = "" }, "gpu2.example.net: guest  is not running", "gpu2.example.net: guest  is not defined"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := node(t)
			c := guest.Claim{Host: "gpu2.example.net", Guest: uuidU, Since: now.Add(-time.Hour), Now: now}
			test.change(&r, &c)
			for running, want := range map[bool]string{true: test.running, false: test.stopped} {
				got := r.Present(c, running)
				if diff := cmp.Diff(want, strings.Join(got.Reasons, "\n")); diff != "" || got.Proven != (want == "") {
					t.Errorf("running %t: proven %t (-want +got):\n%s", running, got.Proven, diff)
				}
			}
		})
	}
}

func TestNovaCompute(t *testing.T) {
	started := now.Add(-time.Hour).Add(50 * time.Second) // 08:00:50
	for _, test := range []struct {
		name            string
		change          func(r *guest.Report, c *guest.Claim)
		restarted, down string // reasons
	}{
		{"restarted", func(*guest.Report, *guest.Claim) {}, "", "gpu2.example.net: nova-compute is running (pid 50)"},
		{"in the same second", func(_ *guest.Report, c *guest.Claim) { c.Since = started },
			"gpu2.example.net: nova-compute (pid 50) has been running since 2026-03-01T08:00:50Z, which is not after 2026-03-01T08:00:50Z",
			"gpu2.example.net: nova-compute is running (pid 50)"},
		{"not for long", func(r *guest.Report, c *guest.Claim) {
			r.Collected = started.Add(10*time.Minute - time.Second)
			c.Now = r.Collected
		}, "gpu2.example.net: nova-compute (pid 50) had been running for 9 min 59 s, less than 10 min", "gpu2.example.net: nova-compute is running (pid 50)"},
		{"down", func(r *guest.Report, _ *guest.Claim) { r.NovaCompute = []guest.NovaCompute{} }, "gpu2.example.net: nova-compute is not running", ""},
		{"of unknown start", func(r *guest.Report, _ *guest.Claim) { r.NovaCompute[0].Started = nil },
			"gpu2.example.net: nova-compute (pid 50) has an unknown start time", "gpu2.example.net: nova-compute is running (pid 50)"},
		{"too old", func(r *guest.Report, c *guest.Claim) {
			c.Now = now.Add(time.Hour)
			r.NovaCompute = nil
		}, "report of gpu2.example.net is 60 min old\ngpu2.example.net: nova-compute is not running", "report of gpu2.example.net is 60 min old"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := node(t)
			c := guest.Claim{Host: "gpu2.example.net", Since: now.Add(-time.Hour), Now: now}
			test.change(&r, &c)
			for name, pair := range map[string]struct {
				answer guest.Answer
				want   string
			}{"restarted": {r.NovaComputeRestarted(c), test.restarted}, "down": {r.NovaComputeDown(c), test.down}} {
				if diff := cmp.Diff(pair.want, strings.Join(pair.answer.Reasons, "\n")); diff != "" || pair.answer.Proven != (pair.want == "") {
					t.Errorf("%s: proven %t (-want +got):\n%s", name, pair.answer.Proven, diff)
				}
			}
		})
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
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if len(newest) != 2 || !newest["gpu1"].Collected.Equal(now.Add(2*time.Minute)) || *newest["gpu3"].MachineID != "m1" {
		t.Errorf("%+v", newest)
	}
}

// read reads a document with one report.
func read(text []byte) (guest.Report, error) {
	reports, err := guest.ReadReports(document.Source{Paths: []string{document.Stdin}, Stdin: bytes.NewReader(text)})
	if err == nil && len(reports) != 1 {
		err = fmt.Errorf("%d reports", len(reports))
	}
	if err != nil {
		return guest.Report{}, err
	}
	return reports[0], nil
}

// sameAgain checks that a report is the same after it was written and read back.
func sameAgain(t testing.TB, r guest.Report) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := read(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	back, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(back)); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
}

func TestReadReports(t *testing.T) {
	text, err := json.Marshal(node(t))
	if err != nil {
		t.Fatal(err)
	}
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
			"sources: must be processes, vfio, groups, domains, nova.conf, hostname, machine_id, boot_id, boot_time"},
		{"an unknown state", func(r map[string]any) {
			r["sources"].([]any)[0].(map[string]any)["state"] = "perhaps"
		}, "sources[0].state: unknown state \"perhaps\""},
		{"no uuid", func(r map[string]any) { r["guests"].([]any)[0].(map[string]any)["uuid"] = "U" }, "guests[0].uuid: not a uuid in lower case: \"U\""},
		{"a holder of nothing", func(r map[string]any) { r["holders"].([]any)[0].(map[string]any)["iommu_group"] = nil },
			"holders[0]: must have either group or device"},
		{"no host", func(r map[string]any) { r["nova_host"] = nil }, "nova_host: is null or empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var document map[string]any
			if err := json.Unmarshal(text, &document); err != nil {
				t.Fatal(err)
			}
			test.change(document)
			for name, marshal := range map[string]func(any) ([]byte, error){"json": json.Marshal, "yaml": yaml.Marshal} {
				changed, err := marshal(document)
				if err != nil {
					t.Fatal(err)
				}
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
	text, err := json.Marshal(node(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("schema: 1\nholders: []\n"))
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
