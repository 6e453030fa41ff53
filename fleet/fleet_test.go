package fleet_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/fleet"
	"gpustack/fleet/fleettest"
	"gpustack/host"
	"gpustack/host/document"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
)

// otherMachine is the id of a machine.
const otherMachine = "3d13f0d5c3a94e7b8a6d2b1c0e9f8a7b"

// read reads documents in one stream.
func read(documents ...[]byte) (fleet.Fleet, error) {
	return fleet.Read(source(documents...))
}

func source(documents ...[]byte) document.Source {
	return document.Source{Paths: []string{document.Stdin}, Stdin: bytes.NewReader(bytes.Join(documents, []byte("\n")))}
}

// of returns the fleet of nodes.
func of(t testing.TB, nodes ...fleettest.Node) fleet.Fleet {
	t.Helper()
	f, err := read(fleettest.Lines(t, nodes...))
	hosttest.NoError(t, err)
	return f
}

// with returns a node that is changed.
func with(n fleettest.Node, change func(*fleettest.Node)) fleettest.Node {
	n.GPUs = slices.Clone(n.GPUs)
	change(&n)
	return n
}

// several returns nodes gpu1 to gpuN with as many GPUs.
func several(count, gpus int) (nodes []fleettest.Node) {
	for i := range count {
		nodes = append(nodes, fleettest.New(fmt.Sprintf("gpu%d", i+1), gpus))
	}
	return nodes
}

// TestRead: of documents of one host the newest counts, documents that conflict are errors, and
// everything that is wrong is reported at once.
func TestRead(t *testing.T) {
	gpu1 := fleettest.New("gpu1", 2)
	later := with(gpu1, func(n *fleettest.Node) { n.Time, n.GPUs = n.Time.Add(time.Hour), n.GPUs[:1] })
	undated := with(gpu1, func(n *fleettest.Node) { n.Time, n.GPUs = time.Time{}, nil })
	const other = "6f3e8a52-0d0c-4c3e-9d3b-2f8d0b9a7c11"
	for name, test := range map[string]struct {
		documents [][]byte
		want      string // nodes with their GPUs, then warnings
		errs      []error
		texts     []string // of errors
	}{
		"each kind": {documents: [][]byte{gpu1.Scan(t), gpu1.Check(t), gpu1.GuestReport(t)}, want: "gpu1 2 check guests"},
		"the newest": {documents: [][]byte{later.Scan(t), gpu1.Scan(t)},
			want: "gpu1 1; the output of host scan: several documents of 1 host, of which the newest counts: gpu1 (standard input:1)"},
		"the newest, last": {documents: [][]byte{gpu1.Scan(t), later.Scan(t)},
			want: "gpu1 1; the output of host scan: several documents of 1 host, of which the newest counts: gpu1 (standard input:2)"},
		"without a time": {documents: [][]byte{undated.Scan(t), gpu1.Scan(t), undated.Check(t)},
			texts: []string{"standard input:1: malformed: time is missing", "standard input:3: malformed: time is missing"}},
		"scans of two machines": {documents: [][]byte{gpu1.Scan(t), with(later, func(n *fleettest.Node) { n.ID = otherMachine }).Scan(t)},
			errs:  []error{fleet.ErrMachines},
			texts: []string{"standard input:2: two documents of one host are of different machines: standard input:1 is of another gpu1"}},
		"guests of another machine": {documents: [][]byte{gpu1.Scan(t), with(gpu1, func(n *fleettest.Node) { n.ID = otherMachine }).GuestReport(t)},
			errs: []error{fleet.ErrMachines}},
		"of a machine that is unknown": {documents: [][]byte{with(gpu1, func(n *fleettest.Node) { n.Server, n.ID = "", otherMachine }).Scan(t), gpu1.GuestReport(t)},
			want: "gpu1 2 guests"},
		"the same time":         {documents: [][]byte{gpu1.Scan(t), gpu1.Scan(t)}, errs: []error{fleet.ErrSameTime}},
		"the same time, checks": {documents: [][]byte{gpu1.Check(t), gpu1.Check(t)}, errs: []error{fleet.ErrSameTime}},
		"the same time, guests": {documents: [][]byte{gpu1.GuestReport(t), gpu1.GuestReport(t)}, errs: []error{fleet.ErrSameTime}},
		"without a name": {documents: [][]byte{bytes.Replace(gpu1.Check(t), []byte(`"host":"gpu1"`), []byte(`"host":null`), 1)},
			errs: []error{fleet.ErrNameless}},
		"the name in Nova": {documents: [][]byte{bytes.Replace(gpu1.Scan(t), []byte(`"host":"gpu1"`), []byte(`"host":null`), 1)}, want: "gpu1 2"},
		"names but for case": {documents: [][]byte{gpu1.Scan(t), bytes.Replace(gpu1.Check(t), []byte(`"host":"gpu1"`), []byte(`"host":"GPU1"`), 1)},
			errs: []error{fleet.ErrCase}},
		"a line break in a hostname": {documents: [][]byte{bytes.Replace(gpu1.Scan(t), []byte(`"host":"gpu1"`), []byte(`"host":"gpu1\\nall: {vars: {x: '{{ 7 }}'}}"`), 1)},
			errs: []error{host.ErrName}, texts: []string{"standard input: malformed: "}},
		"a template in a hostname": {documents: [][]byte{bytes.Replace(gpu1.Check(t), []byte(`"host":"gpu1"`), []byte(`"host":"{{ 7 }}"`), 1)},
			errs: []error{host.ErrName}},
		"a blank in the name in Nova": {documents: [][]byte{bytes.Replace(gpu1.Scan(t), []byte(`"nova_host":"gpu1"`), []byte(`"nova_host":"gpu1 x"`), 1)},
			errs: []error{host.ErrName}},
		"an option as the name of a report": {documents: [][]byte{bytes.Replace(gpu1.GuestReport(t), []byte(`"nova_host":"gpu1"`), []byte(`"nova_host":"--all"`), 1)},
			errs: []error{host.ErrName}},
		"a template as an alias": {documents: [][]byte{bytes.Replace(gpu1.Scan(t), []byte(`"alias_hint":null`), []byte(`"alias_hint":"{{ 7 }}"`), 1)},
			errs: []error{pci.ErrAlias}},
		"a text as the id of a machine": {documents: [][]byte{with(gpu1, func(n *fleettest.Node) { n.ID = "{{ 7 }}" }).Scan(t)},
			errs: []error{host.ErrMachineID}},
		"a text as the id of a report's machine": {documents: [][]byte{with(gpu1, func(n *fleettest.Node) { n.ID = "a\nb" }).GuestReport(t)},
			errs: []error{host.ErrMachineID}},
		"one name in Nova": {documents: [][]byte{gpu1.Scan(t), with(gpu1, func(n *fleettest.Node) { n.Name, n.NovaHost = "gpu2", "gpu1" }).Scan(t)},
			errs: []error{fleet.ErrSameNovaHost}},
		"renamed": {documents: [][]byte{with(later, func(n *fleettest.Node) { n.Name, n.NovaHost = "gpu9", "gpu1" }).Scan(t), gpu1.Scan(t)},
			want: "gpu9 1; the documents of gpu1 count only where gpu9 has none, because that is the name of this machine now"},
		"with its domain": {documents: [][]byte{gpu1.Scan(t), with(later, func(n *fleettest.Node) { n.Name = "gpu1.x" }).Scan(t), gpu1.Check(t)},
			want: "gpu1.x 1 check; the documents of gpu1 count only where gpu1.x has none, because that is the name of this machine now"},
		"under two hostnames at once": {documents: [][]byte{with(gpu1, func(n *fleettest.Node) { n.Name, n.NovaHost = "gpu1.x", "gpu1" }).Scan(t), gpu1.Check(t),
			gpu1.GuestReport(t)},
			want: "gpu1 2 check guests; the documents of gpu1.x count only where gpu1 has none, because that is the name of this machine now"},
		"a check under the hostname of before": {documents: [][]byte{gpu1.Check(t), with(later, func(n *fleettest.Node) { n.Name = "gpu1.x" }).Scan(t)},
			want: "gpu1 0 check; gpu1.x 1"},
		"with its domain, beside another one": {documents: [][]byte{gpu1.Scan(t), with(later, func(n *fleettest.Node) {
			n.Name, n.NovaHost = "gpu1.x",
				"gpu1.x"
		}).Scan(t),
			with(later, func(n *fleettest.Node) { n.Name, n.NovaHost, n.ID = "gpu1.y", "gpu1.y", otherMachine }).Scan(t)},
			want: "gpu1.x 1; gpu1.y 1; the documents of gpu1 count only where gpu1.x has none, because that is the name of this machine now"},
		"two machines with one id and one name in Nova, in turns": {documents: [][]byte{gpu1.Scan(t), with(later, func(n *fleettest.Node) {
			n.Name,
				n.NovaHost = "gpu2", "gpu1"
		}).Scan(t),
			with(gpu1, func(n *fleettest.Node) { n.Time = n.Time.Add(2 * time.Hour) }).Scan(t)}, errs: []error{fleet.ErrSameNovaHost}},
		"a cloned id": {documents: [][]byte{gpu1.Scan(t), with(later, func(n *fleettest.Node) { n.Name = "gpu2" }).Scan(t)}, want: "gpu1 2; gpu2 1"},
		"one name in Nova, two ids": {documents: [][]byte{gpu1.Scan(t), with(later, func(n *fleettest.Node) { n.Name, n.NovaHost, n.ID = "b", "gpu1", otherMachine }).Scan(t)},
			errs: []error{fleet.ErrSameNovaHost}},
		"filtered": {documents: [][]byte{bytes.Replace(gpu1.Scan(t), []byte(`"scope":"gpus"`), []byte(`"scope":"filtered"`), 1)},
			errs: []error{nova.ErrPartial}},
		"another command": {documents: [][]byte{gpu1.Scan(t), []byte(`{"schema":1,"kind":"history","entries":[]}`)},
			want: "gpu1 2; ignored, because only the output of host scan, host check or host guests is read: 1 document of history: standard input:2"},
		"a key twice": {documents: [][]byte{gpu1.Scan(t), []byte(`{"schema":1,"kind":"host scan","host":"a","devices":[],"host":"b"}`)},
			texts: []string{"standard input:2: not the output of host scan, host check or host guests: an object has the key \"host\" twice"}},
		"a later schema": {documents: [][]byte{gpu1.Scan(t), []byte(`{"schema":2,"kind":"host scan","host":"a","devices":[]}`)},
			texts: []string{"standard input:2: schema 2 is of another version"}},
		"half a document": {documents: [][]byte{gpu1.Check(t), gpu1.Scan(t)[:200]},
			texts: []string{"standard input:2: not the output of host scan, host check or host guests: not JSON"}},
		"a list that is null": {documents: [][]byte{[]byte(`{"schema":1,"kind":"host scan","host":"a","time":"2026-03-01T08:00:00Z","devices":null,"warnings":[]}`)},
			texts: []string{"standard input: malformed: devices is null"}},
		"a function twice": {documents: [][]byte{[]byte(`{"schema":1,"kind":"host scan","host":"a","time":"2026-03-01T08:00:00Z","devices":[{"address":"0000:17:00.0"},{"address":"0000:17:00.0"}],"warnings":[]}`)},
			texts: []string{"devices[1]: 0000:17:00.0 is listed twice"}},
		"a GPU without an address": {documents: [][]byte{[]byte(`{"schema":1,"kind":"host scan","host":"a","time":"2026-03-01T08:00:00Z","devices":[{"vendor_id":"10de","class":"0302"}],"warnings":[]}`)},
			texts: []string{"devices[0]: a GPU without an address"}},
		"an unknown verdict": {documents: [][]byte{bytes.Replace(gpu1.Check(t), []byte(`"verdict":"ready"`), []byte(`"verdict":"fine"`), 1)},
			texts: []string{`verdict: unknown value "fine"`}},
		"a time that is none": {documents: [][]byte{bytes.Replace(gpu1.Check(t), []byte(`"time":"2026`), []byte(`"time":"soon 2026`), 1)},
			texts: []string{"malformed: parsing time"}},
		"a failed command": {documents: [][]byte{[]byte(`{"schema":1,"kind":"failure","errors":[{"message":"root /x: no such file","hint":null}]}`)},
			texts: []string{"is the error report of a failed command", "root /x: no such file"}},
		"a package.json": {documents: [][]byte{[]byte(`{"name":"left-pad","version":"1.3.0"}`)},
			texts: []string{"standard input: not the output of host scan, host check or host guests"}},
		"all at once": {documents: [][]byte{gpu1.Scan(t), gpu1.Scan(t), []byte("{"), []byte(`{"schema":9}`),
			bytes.Replace(gpu1.GuestReport(t), []byte(`"complete":true`), []byte(`"complete":7`), 1)},
			errs: []error{fleet.ErrSameTime}, texts: []string{"standard input:3: ", "standard input:4: schema 9", "standard input:5: malformed: complete"}},
		"guests by domain": {documents: [][]byte{with(gpu1, func(n *fleettest.Node) {
			n.Guests = []fleettest.Guest{{UUID: other, GPUs: []string{"17:00"}}}
		}).GuestReport(t)}, want: "gpu1 0 guests " + other},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := read(test.documents...)
			for _, want := range test.errs {
				if !errors.Is(err, want) {
					t.Errorf("error %v instead of %v", err, want)
				}
			}
			for _, text := range test.texts {
				hosttest.ContainsIn(t, "error", text, fmt.Sprint(err))
			}
			if test.errs != nil || test.texts != nil {
				return
			}
			hosttest.NoError(t, err)
			var got []string
			for _, n := range f.Nodes {
				text := fmt.Sprintf("%s %d", n.Name, len(n.GPUs()))
				if n.Check != nil {
					text += " check"
				}
				if n.Guests != nil {
					text += " guests"
					for _, i := range n.Guests.Instances {
						text += " " + i.String()
					}
				}
				got = append(got, text)
			}
			hosttest.Equal(t, test.want, strings.Join(append(got, f.Warnings...), "; "))
		})
	}
}

// TestUse: a GPU is free only if a scan and a complete guest report show it.
func TestUse(t *testing.T) {
	const uuid = "6f3e8a52-0d0c-4c3e-9d3b-2f8d0b9a7c11"
	for name, test := range map[string]struct {
		gpu    func(*fleettest.GPU)
		node   func(*fleettest.Node)
		report bool
		want   fleet.Use
	}{
		"ready, and no guest":         {report: true, want: fleet.Free},
		"ready, without a report":     {want: fleet.NotKnown},
		"ready, an incomplete report": {node: func(n *fleettest.Node) { n.Partial = true }, report: true, want: fleet.NotKnown},
		"a guest": {node: func(n *fleettest.Node) {
			n.Guests = []fleettest.Guest{{UUID: uuid, Running: true, GPUs: []string{"17:00"}}}
		}, report: true, want: fleet.InGuests},
		"a guest that is powered off": {node: func(n *fleettest.Node) {
			n.Guests = []fleettest.Guest{{UUID: uuid, Running: false, GPUs: []string{"17:00"}}}
		}, report: true, want: fleet.InGuests},
		"a guest in a partial report": {node: func(n *fleettest.Node) {
			n.Partial, n.Guests = true, []fleettest.Guest{{UUID: uuid, Running: true, GPUs: []string{"17:00"}}}
		}, report: true, want: fleet.InGuests},
		"another GPU's guest": {node: func(n *fleettest.Node) {
			n.Guests = []fleettest.Guest{{UUID: uuid, Running: true, GPUs: []string{"27:00"}}}
		}, report: true, want: fleet.Free},
		"in use, by the scan":          {gpu: func(g *fleettest.GPU) { g.State = "in use" }, report: true, want: fleet.InGuests},
		"with the host":                {gpu: func(g *fleettest.GPU) { g.State, g.Driver, g.Role = "host", "nvidia", "host" }, report: true, want: fleet.WithHost},
		"prepared, not booted":         {gpu: func(g *fleettest.GPU) { g.State, g.Driver = "host", "nvidia" }, report: true, want: fleet.WithHost},
		"for containers":               {gpu: func(g *fleettest.GPU) { g.State, g.Driver, g.Role = "host", "nvidia", "container" }, want: fleet.InContainer},
		"blocked":                      {gpu: func(g *fleettest.GPU) { g.State = "blocked" }, report: true, want: fleet.WithHost},
		"unknown":                      {gpu: func(g *fleettest.GPU) { g.State = "unknown" }, report: true, want: fleet.NotKnown},
		"unknown, recorded containers": {gpu: func(g *fleettest.GPU) { g.State, g.Role = "unknown", "container" }, report: true, want: fleet.NotKnown},
		"a state of a later version":   {gpu: func(g *fleettest.GPU) { g.State = "asleep" }, report: true, want: fleet.NotKnown},
	} {
		n := fleettest.New("gpu1", 1)
		if test.gpu != nil {
			test.gpu(&n.GPUs[0])
		}
		if test.node != nil {
			test.node(&n)
		}
		documents := [][]byte{n.Scan(t)}
		if test.report {
			documents = append(documents, n.GuestReport(t))
		}
		f, err := read(documents...)
		hosttest.NoError(t, err)
		hosttest.EqualIn(t, name, test.want, f.Nodes[0].Use(f.Nodes[0].GPUs()[0]))
	}
}

// TestTotals: GPUs of a node whose scan or guest report is older than is asked for are
// unknown, and no limit makes no document old.
func TestTotals(t *testing.T) {
	old := func(n *fleettest.Node) { n.Time = n.Time.Add(-48 * time.Hour) }
	fresh, stale := fleettest.New("gpu1", 4), with(fleettest.New("gpu2", 2), old)
	stale.GPUs[0].State = "host"
	half := fleettest.New("gpu3", 1)
	gpu4 := with(fleettest.New("gpu4", 1), old)
	f, err := read(fresh.Scan(t), fresh.GuestReport(t), stale.Scan(t), stale.GuestReport(t), half.Scan(t), with(half, old).GuestReport(t),
		gpu4.Scan(t), half.Check(t), with(fresh, old).Check(t), with(gpu4, func(n *fleettest.Node) { n.Time = fleettest.Made }).GuestReport(t))
	hosttest.NoError(t, err)
	for maxAge, want := range map[time.Duration]string{0: "8 GPUs, 7 free, 1 with the host, 0 unknown",
		24 * time.Hour: "8 GPUs, 4 free, 0 with the host, 4 unknown"} {
		for _, total := range f.Totals(fleettest.Made.Add(time.Hour), maxAge) {
			if got := fmt.Sprintf("%d GPUs, %d free, %d with the host, %d unknown", total.All, total.Free, total.WithHost, total.Unknown); got != want {
				t.Errorf("at most %s old: %s; want %s", maxAge, got, want)
			}
		}
	}
}

// TestOdd: a node that differs from a layout of many is in that layout and named with the
// difference; variants that many nodes have are layouts of their own.
func TestOdd(t *testing.T) {
	now := fleettest.Made.Add(time.Hour)
	change := func(number int, do func(*fleettest.Node)) func([]fleettest.Node) []fleettest.Node {
		return func(nodes []fleettest.Node) []fleettest.Node {
			nodes[number-1] = with(nodes[number-1], do)
			return nodes
		}
	}
	for name, test := range map[string]struct {
		change  func([]fleettest.Node) []fleettest.Node
		maxAge  time.Duration
		layouts string // GPUs × nodes
		want    []string
	}{
		"nothing": {layouts: "4×8"},
		"lost card": {change: change(3, func(n *fleettest.Node) { n.GPUs = n.GPUs[:3] }), layouts: "4×8",
			want: []string{"gpu3 lost card 0000:47:00.0: 10de:20b2 A100-SXM4-80GB/none"}},
		"moved address": {change: change(3, func(n *fleettest.Node) { n.GPUs[3].Address = "48:00" }), layouts: "4×8",
			want: []string{"gpu3 moved address 0000:48:00.0: 0000:47:00.0/0000:48:00.0"}},
		"added card": {change: change(3, func(n *fleettest.Node) { n.GPUs = append(n.GPUs, n.GPUs[3]); n.GPUs[4].Address = "57:00" }), layouts: "4×8",
			want: []string{"gpu3 added card 0000:57:00.0: none/10de:20b2 A100-SXM4-80GB"}},
		"all cards moved in the same server": {change: change(3, func(n *fleettest.Node) {
			for i := range n.GPUs {
				n.GPUs[i].Address = fmt.Sprintf("%02x:00", 0x81+i)
			}
		}), layouts: "4×8", want: []string{"gpu3 moved address 0000:81:00.0: 0000:17:00.0/0000:81:00.0",
			"gpu3 moved address 0000:82:00.0: 0000:27:00.0/0000:82:00.0",
			"gpu3 moved address 0000:83:00.0: 0000:37:00.0/0000:83:00.0", "gpu3 moved address 0000:84:00.0: 0000:47:00.0/0000:84:00.0"}},
		"all cards lost in the same server": {change: change(3, func(n *fleettest.Node) { n.GPUs = nil }), layouts: "4×8",
			want: []string{"gpu3 lost card 0000:17:00.0: 10de:20b2 A100-SXM4-80GB/none", "gpu3 lost card 0000:27:00.0: 10de:20b2 A100-SXM4-80GB/none",
				"gpu3 lost card 0000:37:00.0: 10de:20b2 A100-SXM4-80GB/none", "gpu3 lost card 0000:47:00.0: 10de:20b2 A100-SXM4-80GB/none"}},
		"another server": {change: change(3, func(n *fleettest.Node) {
			n.Server = "ThinkSystem"
			for i := range n.GPUs {
				n.GPUs[i].Address = fmt.Sprintf("%02x:00", 0x81+i)
			}
		}), layouts: "4×7 4×1"},
		"another product": {change: change(3, func(n *fleettest.Node) { n.GPUs[0].Product = "2330" }), layouts: "4×7 4×1"},
		"NUMA node":       {change: change(3, func(n *fleettest.Node) { n.GPUs[0].NUMA = 7 }), layouts: "4×8", want: []string{"gpu3 NUMA node 0000:17:00.0: 0/7"}},
		"group": {change: change(3, func(n *fleettest.Node) { n.GPUs[0].Group = []string{"00:1f.0"} }), layouts: "4×8",
			want: []string{"gpu3 group 0000:17:00.0: 0000:17:00.0 0000:17:00.1/0000:00:1f.0 0000:17:00.0 0000:17:00.1"}},
		"driver": {change: change(3, func(n *fleettest.Node) { n.GPUs[0].Driver, n.GPUs[0].State = "", "host" }), layouts: "4×8",
			want: []string{"gpu3 driver 0000:17:00.0: vfio-pci/none"}},
		"console": {change: change(3, func(n *fleettest.Node) { n.GPUs[0].Console = true }), layouts: "4×8",
			want: []string{"gpu3 console 0000:17:00.0: no console among the GPUs/the firmware's console"}},
		"firmware": {change: change(3, func(n *fleettest.Node) { n.Firmware = "1.0" }), layouts: "4×8", want: []string{"gpu3 firmware -: 2.14.2/1.0"}},
		"link width": {change: change(3, func(n *fleettest.Node) { n.Links = []string{"0000:17:00.0: the PCIe link has 8 of 16 lanes"} }), layouts: "4×8",
			want: []string{"gpu3 link width -: all lanes of card and slot/0000:17:00.0: the PCIe link has 8 of 16 lanes"}},
		"not ready": {change: change(3, func(n *fleettest.Node) { n.Verdict = "drifted" }), layouts: "4×8",
			want: []string{"gpu3 not ready -: ready/drifted: functions"}},
		"not prepared": {change: change(3, func(n *fleettest.Node) { n.Verdict = "not prepared" }), layouts: "4×8",
			want: []string{"gpu3 not ready -: ready/not prepared"}},
		"reboot pending": {change: change(3, func(n *fleettest.Node) { n.Verdict, n.Reboot = "pending reboot", true }), layouts: "4×8",
			want: []string{"gpu3 reboot pending -: ready/pending reboot"}},
		"incomplete": {change: change(3, func(n *fleettest.Node) { n.Missing = true }), layouts: "4×8",
			want: []string{"gpu3 incomplete -: all functions identified/class, ids or IOMMU group of a function could not be read"}},
		"a GPU that could not be identified": {change: change(3, func(n *fleettest.Node) { n.GPUs, n.Missing = n.GPUs[:3], true }), layouts: "4×8",
			want: []string{"gpu3 incomplete 0000:47:00.0: 10de:20b2 A100-SXM4-80GB/unknown",
				"gpu3 incomplete -: all functions identified/class, ids or IOMMU group of a function could not be read"}},
		"ids of a GPU that could not be read": {change: change(3, func(n *fleettest.Node) { n.GPUs[3].Product, n.Missing = "", true }), layouts: "4×8",
			want: []string{"gpu3 incomplete 0000:47:00.0: 10de:20b2 A100-SXM4-80GB/unknown",
				"gpu3 incomplete -: all functions identified/class, ids or IOMMU group of a function could not be read"}},
		"no scan": {change: change(3, func(n *fleettest.Node) { n.Kernel = "no scan" }), layouts: "4×7",
			want: []string{"gpu3 no scan -: the output of host scan/none"}},
		"an incomplete guest report": {change: change(3, func(n *fleettest.Node) { n.Partial = true }), layouts: "4×8",
			want: []string{"gpu3 use unknown -: a complete output of host guests/an incomplete one: use of 4 GPUs unknown"}},
		"an incomplete guest report, GPUs with the host": {change: change(3, func(n *fleettest.Node) {
			n.Partial = true
			for i := range n.GPUs {
				n.GPUs[i].State = "host"
			}
		}), layouts: "4×8"},
		"no guest report": {change: change(3, func(n *fleettest.Node) { n.Kernel = "no guests" }), layouts: "4×8",
			want: []string{"gpu3 use unknown -: a complete output of host guests/none: use of 4 GPUs unknown"}},
		"a state is unknown": {change: change(3, func(n *fleettest.Node) { n.GPUs[1].State = "unknown" }), layouts: "4×8",
			want: []string{"gpu3 use unknown -: the state of each GPU in the output of host scan/use of 1 GPU unknown"}},
		"old report": {change: change(3, func(n *fleettest.Node) { n.Time = n.Time.Add(-24 * time.Hour) }), maxAge: 12 * time.Hour, layouts: "4×8",
			want: []string{"gpu3 old report", "gpu3 old report", "gpu3 old report"}},
		"old, no limit": {change: change(3, func(n *fleettest.Node) { n.Time = n.Time.Add(-24 * time.Hour) }), layouts: "4×8"},
		"a future one": {change: change(3, func(n *fleettest.Node) { n.Time = n.Time.Add(24 * time.Hour) }), layouts: "4×8",
			want: []string{"gpu3 report from the future", "gpu3 report from the future", "gpu3 report from the future"}},
		"half are half filled": {change: func(nodes []fleettest.Node) []fleettest.Node {
			for i := range 4 {
				nodes[i] = with(nodes[i], func(n *fleettest.Node) { n.GPUs = n.GPUs[:2] })
			}
			return nodes
		}, layouts: "2×4 4×4"},
		"half are not prepared": {change: func(nodes []fleettest.Node) []fleettest.Node {
			for i := range 4 {
				nodes[i] = with(nodes[i], func(n *fleettest.Node) { n.GPUs[0].Driver, n.Verdict = "nvidia", "not prepared" })
			}
			return nodes
		}, layouts: "4×8"},
		"all have the console on a GPU": {change: func(nodes []fleettest.Node) []fleettest.Node {
			for i := range nodes {
				nodes[i] = with(nodes[i], func(n *fleettest.Node) { n.GPUs[0].Console = true })
			}
			return nodes
		}, layouts: "4×8"},
		"two nodes": {change: func(nodes []fleettest.Node) []fleettest.Node {
			nodes[0] = with(nodes[0], func(n *fleettest.Node) { n.GPUs = n.GPUs[:3] })
			return nodes[:2]
		}, layouts: "3×1 4×1"},
		"three nodes": {change: func(nodes []fleettest.Node) []fleettest.Node {
			nodes[0] = with(nodes[0], func(n *fleettest.Node) { n.GPUs = n.GPUs[:3] })
			return nodes[:3]
		}, layouts: "4×3", want: []string{"gpu1 lost card 0000:47:00.0: 10de:20b2 A100-SXM4-80GB/none"}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := several(8, 4)
			if test.change != nil {
				nodes = test.change(nodes)
			}
			var documents [][]byte
			for _, n := range nodes {
				if n.Kernel != "no scan" {
					documents = append(documents, n.Scan(t))
				}
				documents = append(documents, n.Check(t))
				if n.Kernel != "no guests" {
					documents = append(documents, n.GuestReport(t))
				}
			}
			f, err := read(documents...)
			hosttest.NoError(t, err)
			layouts := f.Layouts()
			var shapes, got []string
			for _, l := range layouts {
				shapes = append(shapes, fmt.Sprintf("%d×%d", len(l.GPUs), len(l.Nodes)))
			}
			hosttest.EqualIn(t, "layouts", test.layouts, strings.Join(shapes, " "))
			for _, o := range f.Odd(layouts, now, test.maxAge) {
				text := fmt.Sprintf("%s %s", o.Node, o.What)
				if o.What != fleet.OldReport && o.What != fleet.FutureReport {
					at := "-"
					if o.Address != nil {
						at = o.Address.String()
					}
					text += fmt.Sprintf(" %s: %s/%s", at, o.Expected, o.Found)
				}
				got = append(got, text)
			}
			hosttest.EqualIn(t, "odd", test.want, got)
		})
	}
}

// TestDiff: each difference is found, in both directions, and what guests use is none.
func TestDiff(t *testing.T) {
	for name, test := range map[string]struct {
		now  func(*fleettest.Node)
		want []string
	}{
		"nothing": {},
		"guests":  {now: func(n *fleettest.Node) { n.GPUs[0].State = "in use"; n.Time = n.Time.Add(time.Hour) }},
		"a dead GPU": {now: func(n *fleettest.Node) { n.GPUs = n.GPUs[1:] }, want: []string{
			"removed 0000:17:00.0 GPU: 10de:20b2 A100-SXM4-80GB/-", "removed 0000:17:00.1 function: 10de:1aef/-"}},
		"moved": {now: func(n *fleettest.Node) { n.GPUs[0].Address = "18:00" }, want: []string{
			"moved 0000:18:00.0 GPU: 0000:17:00.0/0000:18:00.0", "moved 0000:18:00.1 function: 0000:17:00.1/0000:18:00.1"}},
		"replaced": {now: func(n *fleettest.Node) { n.GPUs[0].Product = "2330" },
			want: []string{"changed 0000:17:00.0 product: 10de:20b2 A100-SXM4-80GB/10de:2330 H100-SXM5-80GB"}},
		"driver": {now: func(n *fleettest.Node) { n.GPUs[0].Driver = "nvidia" }, want: []string{
			"changed 0000:17:00.0 driver: vfio-pci/nvidia", "changed 0000:17:00.1 driver: vfio-pci/nvidia"}},
		"role": {now: func(n *fleettest.Node) { n.GPUs[0].Role = "container" },
			want: []string{"changed 0000:17:00.0 role: guest/container", "changed 0000:17:00.1 role: guest/container"}},
		"device type": {now: func(n *fleettest.Node) { n.GPUs[0].Type = "type-PF" }, want: []string{"changed 0000:17:00.0 device_type: type-PCI/type-PF"}},
		"NUMA node": {now: func(n *fleettest.Node) { n.GPUs[0].NUMA = 1 }, want: []string{
			"changed 0000:17:00.0 NUMA node: 0/1", "changed 0000:17:00.1 NUMA node: 0/1"}},
		"kernel":   {now: func(n *fleettest.Node) { n.Kernel = "6.8.0-47-generic" }, want: []string{"changed - kernel: 6.8.0-45-generic/6.8.0-47-generic"}},
		"firmware": {now: func(n *fleettest.Node) { n.Firmware = "3" }, want: []string{"changed - firmware: 2.14.2/3"}},
		"a GPU that could not be identified": {now: func(n *fleettest.Node) { n.GPUs, n.Missing = n.GPUs[1:], true }, want: []string{
			"changed 0000:17:00.0 GPU: 10de:20b2 A100-SXM4-80GB/unknown", "changed 0000:17:00.1 function: 10de:1aef/unknown"}},
		"ids that could not be read": {now: func(n *fleettest.Node) { n.GPUs[0].Product, n.Missing = "", true }, want: []string{
			"changed 0000:17:00.0 product: 10de:20b2 A100-SXM4-80GB/unknown"}},
		"verdict": {now: func(n *fleettest.Node) { n.Verdict = "drifted" }, want: []string{"changed - verdict: ready/drifted"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := fleettest.New("gpu1", 3)
			now := with(before, func(n *fleettest.Node) {
				if test.now != nil {
					test.now(n)
				}
			})
			got := differences(fleet.Diff(of(t, before), of(t, now)))
			hosttest.Equal(t, test.want, got)
			if back := fleet.Diff(of(t, now), of(t, before)); len(back) != len(got) {
				t.Errorf("%d differences in the other direction, %d in this one", len(back), len(got))
			}
		})
	}
	gpu1, gpu2 := fleettest.New("gpu1", 1), fleettest.New("gpu2", 2)
	hosttest.Equal(t, []string{"removed - node: 1 GPU/-", "added - node: -/2 GPUs"}, differences(fleet.Diff(of(t, gpu1), of(t, gpu2))))
	unscanned, err := read(gpu1.Check(t))
	hosttest.NoError(t, err)
	hosttest.Equal(t, []string{"changed - functions: 1 GPU/unknown functions"}, differences(fleet.Diff(of(t, gpu1), unscanned)))
}

// TestDiffMalformed: a node whose file is malformed is neither added nor removed; its functions are
// unknown.
func TestDiffMalformed(t *testing.T) {
	gpu1, gpu2 := fleettest.New("host1", 1).Scan(t), fleettest.New("host2", 2).Scan(t)
	folder := func(file string, text []byte) fleet.Fleet {
		dir := t.TempDir()
		hosttest.NoError(t, errors.Join(os.WriteFile(filepath.Join(dir, file), text, 0o600), os.WriteFile(filepath.Join(dir, "gpu2.json"), gpu2, 0o600)))
		f, err := fleet.Read(document.Source{Paths: []string{dir}})
		hosttest.NoError(t, err)
		return f
	}
	whole, torn, another := folder("gpu1.scan.json", gpu1), folder("gpu1.scan.json", gpu1[:200]), folder("gpu3.scan.json", nil)
	hosttest.Equal(t, []string{"changed - functions: 1 GPU/unknown functions"}, differences(fleet.Diff(whole, torn)))
	hosttest.Equal(t, []string{"changed - functions: unknown functions/1 GPU"}, differences(fleet.Diff(torn, whole)))
	hosttest.Equal(t, []string{"removed - node: 1 GPU/-"}, differences(fleet.Diff(whole, another)))
}

func differences(all []fleet.Difference) (texts []string) {
	value := func(s *string) string {
		if s == nil {
			return "-"
		}
		return *s
	}
	for _, d := range all {
		at := "-"
		if d.Address != nil {
			at = d.Address.String()
		}
		texts = append(texts, fmt.Sprintf("%s %s %s: %s/%s", d.Change, at, d.What, value(d.Old), value(d.New)))
	}
	return texts
}

// services returns the output of openstack compute service list for nodes in zones.
func services(zones map[string]string, change func(host string, row map[string]string)) []byte {
	var b bytes.Buffer
	b.WriteString("[")
	for i, name := range slices.Sorted(mapsKeys(zones)) {
		if i > 0 {
			b.WriteString(",")
		}
		row := map[string]string{"Binary": "nova-compute", "Host": name, "Zone": zones[name], "Status": "enabled", "State": "up",
			"Updated": fleettest.Made.Format("2006-01-02T15:04:05.000000")}
		if change != nil {
			change(name, row)
		}
		fmt.Fprintf(&b, `{"ID":"x","Binary":%q,"Host":%q,"Zone":%q,"Status":%q,"State":%q,"Updated At":%q,"Disabled Reason":%q}`, row["Binary"],
			row["Host"], row["Zone"], row["Status"], row["State"], row["Updated"], row["Reason"])
	}
	b.WriteString("]")
	return b.Bytes()
}

func mapsKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestParseZones: what a file does not show is an error that names the row, all at once.
func TestParseZones(t *testing.T) {
	two := string(services(map[string]string{"a": "az1", "b": "az2"}, nil))
	for name, test := range map[string]struct {
		text string
		by   fleet.By
		want string
		err  error
		says []string
	}{
		"services":   {two, fleet.ByZone, "a az1, b az2", nil, nil},
		"lower case": {`[{"host":"a","zone":"z","status":"enabled","state":"up","updated at":"2026-11-20T12:00:00.000000"}]`, fleet.ByZone, "a z", nil, nil},
		"disabled": {`[{"host":"a","zone":"z","status":"disabled","state":"down","Disabled Reason":"RMA 7"},` +
			`{"host":"b","zone":"z","status":"disabled","state":"up","updated at":"2026-11-20T12:00:00.000000","Disabled Reason":null}]`, fleet.ByZone,
			"a z (disabled: RMA 7) (down), b z (disabled: )", nil, nil},
		"enabled, with an old reason": {`[{"host":"a","zone":"z","status":"enabled","state":"up","updated at":"2026-11-20T12:00:00.000000","Disabled Reason":"x"}]`, fleet.ByZone, "a z", nil, nil},
		"other services": {`[{"binary":"nova-scheduler","host":"c","zone":"internal"},{"host":"a","zone":"z","status":"enabled","state":"up","updated at":"2026-11-20T12:00:00.000000"}]`,
			fleet.ByZone, "a z", nil, nil},
		"an object":  {`{"services":` + two + `}`, fleet.ByZone, "a az1, b az2", nil, nil},
		"aggregates": {`{"services":` + two + `,"aggregates":{"x":["a","b","gone"],"y":["b"]}}`, fleet.ByAggregate, "a x, b x y, gone x (down)", nil, nil},
		"in none":    {`{"services":` + two + `,"aggregates":{"x":["a"]}}`, fleet.ByAggregate, "a x, b ", nil, nil},
		"one has not reported yet": {`[{"host":"0","zone":"z","status":"enabled","state":"up","Updated At":null},` + two[1:], fleet.ByZone,
			"0 z, a az1, b az2", nil, nil},
		"none is up": {`[{"host":"a","zone":"z","status":"enabled","state":"down","Updated At":null}]`, fleet.ByZone, "a z (down)", nil, nil},
		"without the column": {`[{"host":"a","zone":"z","status":"enabled","state":"up"}]`, fleet.ByZone, "", fleet.ErrMap,
			[]string{"FILE: has no time in Updated At of a service that is up"}},
		"a time that is none": {`[{"host":"a","zone":"z","status":"enabled","state":"up","Updated At":"now"}]`, fleet.ByZone, "", fleet.ErrMap,
			[]string{`FILE: "now" in Updated At is not a time such as 2026-11-20T12:00:00.000000`}},
		"a time with its zone": {`[{"host":"a","zone":"z","status":"enabled","state":"up","updated at":"2026-11-20T12:00:00Z"},` +
			`{"host":"b","zone":"z","status":"enabled","state":"up","updated at":"2026-11-20T13:00:00.5+01:00"}]`, fleet.ByZone, "a z, b z", nil, nil},
		"no service":       {`[]`, fleet.ByZone, "", fleet.ErrMap, nil},
		"no aggregate":     {two, fleet.ByAggregate, "", fleet.ErrMap, []string{"has no aggregates"}},
		"not JSON":         {`gpu1 az1`, fleet.ByZone, "", fleet.ErrMap, nil},
		"aggregates alone": {`{"x":["a"]}`, fleet.ByAggregate, "", fleet.ErrMap, []string{"has no nova-compute", "has no aggregates"}},
		"a document": {`{"schema":1,"kind":"host scan","host":"a","devices":[],"warnings":[]}`, fleet.ByAggregate, "", fleet.ErrMap,
			[]string{"is the output of host scan"}},
		"no rows":      {`["x"]`, fleet.ByZone, "", fleet.ErrMap, []string{"FILE: json: cannot unmarshal"}},
		"a key twice":  {`{"services":[],"services":[]}`, fleet.ByAggregate, "", fleet.ErrMap, []string{`the key "services" twice`}},
		"a host twice": {`{"services":` + two + `,"aggregates":{"x":["a","a"]}}`, fleet.ByAggregate, "", fleet.ErrMap, []string{"x: a is listed twice"}},
		"null":         {`{"services":` + two + `,"aggregates":{"x":[null]}}`, fleet.ByAggregate, "", fleet.ErrMap, []string{"x: a host has no name"}},
		"rows": {`[{"host":"a","zone":"z","status":"enabled","state":"up","updated at":"2026-11-20T12:00:00.000000"},{"host":"a","zone":"z","status":"enabled","state":"up","updated at":"2026-11-20T12:00:00.000000"},` +
			`{"zone":"z"},{"host":"b","status":"on","state":"up","updated at":"2026-11-20T12:00:00.000000"},{"host":"c","zone":"z"}]`,
			fleet.ByZone, "", fleet.ErrMap, []string{"row 2: a is listed twice", "row 3: host is missing", "row 4: b: zone is missing",
				`row 4: b: status: "on" is neither enabled nor disabled`,
				"row 5: c: status is missing", "row 5: c: state is missing"}},
	} {
		z, err := fleet.ParseZones("FILE", []byte(test.text), test.by)
		if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
			t.Errorf("%s: error %v, not %v", name, err, test.err)
		}
		for _, text := range test.says {
			hosttest.ContainsIn(t, name+": error", text, fmt.Sprint(err))
		}
		var got []string
		for _, h := range z.Hosts {
			text := h.Name + " " + strings.Join(h.Zones, " ")
			if h.Disabled {
				text += " (disabled: " + h.Reason + ")"
			}
			if h.Down {
				text += " (down)"
			}
			got = append(got, text)
		}
		if all := strings.Join(got, ", "); test.err == nil && all != test.want {
			t.Errorf("%s: %s, not %s", name, all, test.want)
		}
	}
}

func isOwn(reason string) bool { return reason == own }

// planText returns a plan in a few lines.
func planText(p fleet.Plan) (lines []string) {
	for _, w := range p.Waves {
		var names []string
		for _, n := range w.Nodes {
			names = append(names, n.Name)
		}
		lines = append(lines, fmt.Sprintf("%d %s: %s", w.Number, w.Kind, strings.Join(names, " ")))
	}
	for _, b := range p.Blocked {
		lines = append(lines, "blocked "+b.Node+": "+strings.Join(b.Reasons, "; "))
	}
	if p.Done+p.Later > 0 {
		lines = append(lines, fmt.Sprintf("done %d, later %d", p.Done, p.Later))
	}
	return append(lines, p.Without...)
}

// own is a reason of the operator's, foreign one of another operator's gpustack.
const own, foreign = "gpustack 2026-11-20T11:00:00Z 5e0c3a71: reboot", "gpustack 2026-11-20T11:00:00Z 00000000: reboot"

// TestPlan: those interrupted first, then canaries, enough GPUs are left in each zone, and nodes of which
// something is unknown, or which others hold, are blocked.
func TestPlan(t *testing.T) {
	zones := map[string]string{}
	for i := range 8 {
		zones[fmt.Sprintf("gpu%d", i+1)] = fmt.Sprintf("az%d", i/4+1)
	}
	guest := []fleettest.Guest{{UUID: "6f3e8a52-0d0c-4c3e-9d3b-2f8d0b9a7c11", Running: true, GPUs: []string{"17:00"}}}
	for name, test := range map[string]struct {
		keep   string
		change func([]fleettest.Node)
		row    func(host string, row map[string]string)
		last   bool
		maxAge time.Duration
		most   int  // nodes of a wave
		next   bool // the next wave alone
		goal   string
		want   []string
		errs   []string
	}{
		"half":    {keep: "50%", want: []string{"0 canary: gpu1", "1 regular: gpu2 gpu3 gpu5 gpu6", "2 regular: gpu4 gpu7 gpu8"}},
		"a few":   {keep: "4", want: []string{"0 canary: gpu1", "1 regular: gpu2 gpu3 gpu5 gpu6", "2 regular: gpu4 gpu7 gpu8"}},
		"nothing": {keep: "0", want: []string{"0 canary: gpu1", "1 regular: gpu2 gpu3 gpu4 gpu5 gpu6 gpu7 gpu8"}},
		"all": {keep: "100%", errs: []string{"zone az1: 10de:20b2 A100-SXM4-80GB: not enough GPUs stay schedulable: 0 of 8 can be " +
			"spared, which is too few for gpu1 (2 GPUs)", "zone az2: "}},
		"more than there are": {keep: "9", errs: []string{"zone az1: 10de:20b2 A100-SXM4-80GB: not enough GPUs stay schedulable: 0 of 8 can be " +
			"spared, which is too few for gpu1 (2 GPUs)", "zone az2: "}},
		"guests": {keep: "4", change: func(n []fleettest.Node) { n[0].Guests, n[5].Guests = guest, guest }, want: []string{
			"0 canary: gpu2", "1 regular: gpu3 gpu5", "2 regular: gpu4 gpu7", "3 regular: gpu8", "blocked gpu1: 1 guest", "blocked gpu6: 1 guest"}},
		"too few for some": {keep: "4", change: func(n []fleettest.Node) { n[0].Guests, n[1].Guests, n[2].Guests = guest, guest, guest }, last: true,
			want: []string{"0 canary: gpu5", "1 regular: gpu6 gpu7", "2 regular: gpu8", "3 blocked: gpu1", "4 blocked: gpu2", "5 blocked: gpu3",
				"blocked gpu1: 1 guest", "blocked gpu2: 1 guest", "blocked gpu3: 1 guest",
				"blocked gpu4: zone az1: 10de:20b2 A100-SXM4-80GB: 1 of 5 can be spared"}},
		"guests in last waves": {keep: "3", last: true, change: func(n []fleettest.Node) { n[0].Guests, n[1].Guests, n[2].Guests = guest, guest, guest },
			want: []string{
				"0 canary: gpu4", "1 regular: gpu5 gpu6", "2 regular: gpu7 gpu8", "3 blocked: gpu1 gpu2", "4 blocked: gpu3",
				"blocked gpu1: 1 guest", "blocked gpu2: 1 guest", "blocked gpu3: 1 guest"}},
		"unknown guests": {keep: "2", change: func(n []fleettest.Node) { n[0].Partial = true }, want: []string{
			"0 canary: gpu2", "1 regular: gpu3 gpu4 gpu5 gpu6 gpu7", "2 regular: gpu8",
			"blocked gpu1: the output of host guests is incomplete: its guests are unknown"}},
		"unknown functions": {keep: "0", change: func(n []fleettest.Node) { n[0].Missing = true }, want: []string{
			"0 canary: gpu2", "1 regular: gpu3 gpu4 gpu5 gpu6 gpu7 gpu8", "blocked gpu1: host scan could not identify all functions"}},
		"down, and of others": {keep: "2", row: func(host string, row map[string]string) {
			switch host {
			case "gpu1":
				row["Status"], row["Reason"] = "disabled", "RMA 7"
			case "gpu2":
				row["Status"], row["Reason"] = "disabled", foreign
			case "gpu5":
				row["Status"] = "disabled"
			case "gpu3":
				row["State"] = "down"
			}
		}, last: true, want: []string{"0 canary: gpu6", "1 regular: gpu7 gpu8",
			"blocked gpu1: nova-compute is disabled by others: RMA 7", "blocked gpu2: nova-compute is disabled by others: " + foreign,
			"blocked gpu3: nova-compute is down", "blocked gpu4: zone az1: 10de:20b2 A100-SXM4-80GB: 0 of 2 can be spared",
			"blocked gpu5: nova-compute is disabled by others: no reason is given"}},
		"interrupted": {keep: "8", most: 1, change: func(n []fleettest.Node) { n[1].Kernel, n[2].Guests = "new", guest },
			row: func(host string, row map[string]string) {
				if slices.Contains([]string{"gpu1", "gpu2", "gpu3"}, host) {
					row["Status"], row["Reason"] = "disabled", own
				}
			}, want: []string{"0 interrupted: gpu1", "1 interrupted: gpu2", "blocked gpu3: 1 guest", "done 0, later 5"}},
		"interrupted, and down": {keep: "4", row: func(host string, row map[string]string) {
			if host == "gpu2" {
				row["Status"], row["State"], row["Reason"] = "disabled", "down", own
			}
		}, want: []string{"blocked gpu2: nova-compute is down; the rest waits until this node of an earlier wave is back", "done 0, later 7"}},
		"interrupted, without documents of now": {keep: "4", maxAge: time.Hour, change: func(n []fleettest.Node) { n[1].Time = n[1].Time.Add(-2 * time.Hour) },
			row: func(host string, row map[string]string) {
				if host == "gpu2" {
					row["Status"], row["Reason"] = "disabled", own
				}
			}, want: []string{"blocked gpu2: its documents are older than 1h0m0s; the rest waits until this node of an earlier wave is back", "done 0, later 7"}},
		"interrupted, with a guest": {keep: "0", change: func(n []fleettest.Node) { n[1].Guests = guest },
			row: func(host string, row map[string]string) {
				if host == "gpu2" {
					row["Status"], row["Reason"] = "disabled", own
				}
			}, want: []string{"0 canary: gpu1", "1 regular: gpu3 gpu4 gpu5 gpu6 gpu7 gpu8", "blocked gpu2: 1 guest"}},
		"the next": {keep: "4", most: 2, next: true, want: []string{"0 canary: gpu1", "done 0, later 7"}},
		"after the canary": {keep: "4", most: 2, next: true, change: func(n []fleettest.Node) { n[0].Kernel = "new" },
			want: []string{"0 regular: gpu2 gpu3", "done 1, later 5"}},
		"the canary's check is of the kernel before": {keep: "4", next: true, change: func(n []fleettest.Node) { n[0].Kernel, n[0].Checked = "new", "old" },
			want: []string{"0 canary: gpu1", "done 0, later 7"}},
		"the canary's scan is of the kernel before": {keep: "4", next: true, change: func(n []fleettest.Node) { n[0].Kernel, n[0].Checked = "old", "new" },
			want: []string{"0 canary: gpu1", "done 0, later 7"}},
		"after the canary, which has a guest": {keep: "0", next: true, change: func(n []fleettest.Node) { n[0].Kernel, n[0].Guests = "new", guest },
			want: []string{"0 regular: gpu2 gpu3 gpu4 gpu5 gpu6 gpu7 gpu8", "done 1, later 0"}},
		"canaries that have not come back": {keep: "0", next: true, change: func(n []fleettest.Node) {
			n[0].Kernel, n[1].Kernel, n[2].Kernel, n[3].Kernel, n[3].Partial = "new", "new", "new", "new", true
		}, row: func(host string, row map[string]string) {
			switch host {
			case "gpu1":
				row["State"] = "down"
			case "gpu2":
				row["Status"], row["Reason"] = "disabled", "AUTO: Connection to libvirt lost: 1"
			case "gpu3":
				row["Host"] = "other"
			}
		}, want: []string{"0 canary: gpu5", "blocked gpu1: nova-compute is down",
			"blocked gpu2: nova-compute is disabled by others: AUTO: Connection to libvirt lost: 1", "blocked gpu3: not in FILE: its zone is unknown",
			"blocked gpu4: the output of host guests is incomplete: its guests are unknown", "done 0, later 3", "other"}},
		"the last": {keep: "4", next: true, change: func(n []fleettest.Node) {
			for i := range n {
				n[i].Kernel = "new"
			}
		}, want: []string{"done 8, later 0"}},
		"done, but for a reboot": {keep: "8", goal: "ready", change: func(n []fleettest.Node) { n[3].Reboot, n[4].Verdict = true, "drifted" },
			errs: []string{"0 of 8 can be spared, which is too few for gpu4 (2 GPUs)"}},
		"the version":     {keep: "0", goal: "gpustack=1.0.0", want: []string{"done 8, later 0"}},
		"another version": {keep: "0", goal: "gpustack=1.0.1", most: 7, want: []string{"0 canary: gpu1", "1 regular: gpu2 gpu3 gpu4 gpu5 gpu6 gpu7 gpu8"}},
		"at most three":   {keep: "0", most: 3, want: []string{"0 canary: gpu1", "1 regular: gpu2 gpu3 gpu4", "2 regular: gpu5 gpu6 gpu7", "3 regular: gpu8"}},
		"from the future": {keep: "0", change: func(n []fleettest.Node) { n[0].Time = n[0].Time.Add(time.Hour) }, want: []string{
			"0 canary: gpu2", "1 regular: gpu3 gpu4 gpu5 gpu6 gpu7 gpu8", "blocked gpu1: its documents are from the future"}},
		"not in the map": {keep: "2", row: func(host string, row map[string]string) {
			if host == "gpu1" {
				row["Host"] = "other"
			}
		}, want: []string{"0 canary: gpu2", "1 regular: gpu3 gpu4 gpu5 gpu6 gpu7", "2 regular: gpu8", "blocked gpu1: not in FILE: its zone is unknown", "other"}},
		"old documents": {keep: "2", maxAge: time.Hour, change: func(n []fleettest.Node) { n[0].Time = n[0].Time.Add(-2 * time.Hour) }, want: []string{
			"0 canary: gpu2", "1 regular: gpu3 gpu4 gpu5 gpu6 gpu7", "2 regular: gpu8", "blocked gpu1: its documents are older than 1h0m0s"}},
		"a GPU of the host": {keep: "0", change: func(n []fleettest.Node) {
			for i := range n {
				n[i].GPUs[0].State, n[i].GPUs[0].Driver = "host", "nvidia"
			}
		}, want: []string{"0 canary: gpu1", "1 regular: gpu2 gpu3 gpu4 gpu5 gpu6 gpu7 gpu8"}},
		"none is free": {keep: "8", change: func(n []fleettest.Node) {
			for i := range n {
				for g := range n[i].GPUs {
					n[i].GPUs[g].State = "blocked"
				}
			}
		}, want: []string{"0 canary: gpu1", "1 regular: gpu2 gpu3 gpu4 gpu5 gpu6 gpu7 gpu8"}},
		"refused by host prepare": {keep: "8", change: func(n []fleettest.Node) {
			for i := range n {
				for g := range n[i].GPUs {
					n[i].GPUs[g].State, n[i].GPUs[g].Driver, n[i].GPUs[g].Role = "blocked", "nvidia", "host"
				}
			}
		}, want: []string{"0 canary: gpu1", "1 regular: gpu2 gpu3 gpu4 gpu5 gpu6 gpu7 gpu8"}},
		"nothing for guests yet": {keep: "8", change: func(n []fleettest.Node) {
			for i := range n {
				for g := range n[i].GPUs {
					n[i].GPUs[g].State, n[i].GPUs[g].Driver = "host", "nvidia"
				}
			}
		}, want: []string{"0 canary: gpu1", "1 regular: gpu2 gpu3 gpu4 gpu5 gpu6 gpu7 gpu8"}},
		"two layouts": {keep: "4", change: func(n []fleettest.Node) {
			for i := range 4 {
				n[2*i].GPUs = n[2*i].GPUs[:1]
			}
		}, want: []string{"0 canary: gpu2", "1 canary: gpu1", "2 regular: gpu4 gpu6", "3 regular: gpu3 gpu8", "4 regular: gpu5 gpu7"}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := several(8, 2)
			if test.change != nil {
				test.change(nodes)
			}
			z, err := fleet.ParseZones("FILE", services(zones, test.row), fleet.ByZone)
			hosttest.NoError(t, err)
			keep, err := fleet.ParseKeep(test.keep)
			hosttest.NoError(t, err)
			if test.goal == "" {
				test.goal = "kernel=new"
			}
			if test.most == 0 {
				test.most = len(nodes)
			}
			goal, err := fleet.ParseGoal(test.goal)
			hosttest.NoError(t, err)
			p, err := of(t, nodes...).Plan(fleet.PlanOptions{Zones: z, Map: "FILE", Goal: goal, Keep: keep, MaxNodes: test.most, All: !test.next,
				BlockedLast: test.last, MaxAge: test.maxAge, Now: fleettest.Made.Add(time.Minute), Own: isOwn})
			if test.errs != nil {
				for _, text := range test.errs {
					if !errors.Is(err, fleet.ErrKeep) || !strings.Contains(err.Error(), text) {
						t.Errorf("error %v without %q", err, text)
					}
				}
				return
			}
			hosttest.NoError(t, err)
			hosttest.Equal(t, test.want, planText(p))
		})
	}
}

// TestOldMap: the age of a map is that of the newest report of a service that is up.
func TestOldMap(t *testing.T) {
	for reported, want := range map[string]error{"2026-11-20T11:05:00": nil, "2026-11-20T10:30:00": fleet.ErrOldMap, "2026-11-20T13:30:00": fleet.ErrOldMap} {
		z, err := fleet.ParseZones("FILE", services(map[string]string{"gpu1": "az1", "gpu2": "az1"}, func(host string, row map[string]string) {
			row["State"] = map[string]string{"gpu1": "up", "gpu2": "down"}[host]
			row["Updated"] = map[string]string{"gpu1": reported, "gpu2": row["Updated"]}[host]
		}), fleet.ByZone)
		hosttest.NoError(t, err)
		if _, err = of(t, several(2, 1)...).Plan(fleet.PlanOptions{Zones: z, MaxAge: time.Hour, Now: fleettest.Made}); !errors.Is(err, want) {
			t.Errorf("%s: error %v, not %v", reported, err, want)
		}
	}
}

// TestPlanHolds: of random fleets, no wave takes more GPUs out of a zone than may be, by a count of
// its own; each node is in exactly one wave or blocked, or all is refused because one cannot be.
func TestPlanHolds(t *testing.T) {
	plans, refused := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 7))
		var nodes []fleettest.Node
		zones, idle, drained := map[string]string{}, map[string]bool{}, map[string]bool{}
		aggregates := map[string][]string{}
		for i := range 1 + r.IntN(30) {
			n := fleettest.New(fmt.Sprintf("gpu%d", i), r.IntN(5))
			for g := range n.GPUs {
				n.GPUs[g].Product = []string{"20b2", "2330"}[r.IntN(2)]
				n.GPUs[g].State = []string{"guest-ready", "guest-ready", "guest-ready", "guest-ready", "in use", "host", "unknown"}[r.IntN(7)]
			}
			n.Partial, n.Missing = r.IntN(12) == 0, r.IntN(20) == 0
			n.Kernel = []string{"old", "old", "new"}[r.IntN(3)]
			if r.IntN(6) == 0 {
				n.Guests = []fleettest.Guest{{UUID: fmt.Sprintf("6f3e8a52-0d0c-4c3e-9d3b-%012x", i), Running: r.IntN(2) == 0}}
			}
			nodes = append(nodes, n)
			if r.IntN(15) == 0 {
				continue // not in the map
			}
			zones[n.Name] = fmt.Sprintf("az%d", r.IntN(3))
			idle[n.Name], drained[n.Name] = r.IntN(10) == 0, r.IntN(40) == 0
			for a := range 3 {
				if r.IntN(2) == 0 || a == 2 && len(aggregates) == 0 {
					aggregates[fmt.Sprintf("agg%d", a)] = append(aggregates[fmt.Sprintf("agg%d", a)], n.Name)
				}
			}
		}
		zones["other"] = "az0"
		by, text := fleet.ByZone, services(zones, func(host string, row map[string]string) {
			if idle[host] {
				row[[]string{"Status", "State"}[seed%2]] = []string{"disabled", "down"}[seed%2]
			}
			if drained[host] {
				row["Status"], row["State"], row["Reason"] = "disabled", "up", own
			}
		})
		in := map[string][]string{}
		for host, zone := range zones {
			in[host] = []string{zone}
		}
		if seed%3 == 2 && len(aggregates) > 0 {
			by, in = fleet.ByAggregate, map[string][]string{}
			var parts []string
			for name, hosts := range aggregates {
				parts = append(parts, fmt.Sprintf("%q: [\"%s\"]", name, strings.Join(hosts, `","`)))
				for _, h := range hosts {
					in[h] = append(in[h], name)
				}
			}
			text = fmt.Appendf(nil, `{"services":%s,"aggregates":{%s}}`, text, strings.Join(parts, ","))
		}
		z, err := fleet.ParseZones("FILE", text, by)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		keep := fleet.Keep{Number: []int{0, 1, 2, 4, 20, 50, 75}[r.IntN(7)], Percent: r.IntN(2) == 0}
		o := fleet.PlanOptions{Zones: z, Map: "FILE", Goal: fleet.Goal{Kernel: "new"}, Keep: keep, MaxNodes: r.IntN(6), All: true,
			BlockedLast: r.IntN(2) == 0, Now: fleettest.Made, Own: isOwn}
		p, err := of(t, nodes...).Plan(o)

		// What is schedulable, by the description of the nodes.
		free := map[string]map[string]int{} // of each node, by product
		total, novas := map[string]int{}, map[string]bool{}
		for _, n := range nodes {
			free[n.Name] = map[string]int{}
			for _, g := range n.GPUs {
				is := g.State == "guest-ready" && !n.Partial && !idle[n.Name] && !drained[n.Name]
				for _, zone := range in[n.Name] {
					novas[zone+g.Product] = novas[zone+g.Product] || g.State != "host"
					if is {
						total[zone+g.Product]++
					}
				}
				if is {
					free[n.Name][g.Product]++
				}
			}
		}
		toKeep := func(at string) int {
			switch {
			case keep.Percent:
				return (total[at]*keep.Number + 99) / 100
			case novas[at]:
				return keep.Number
			}
			return 0
		}
		const isDone, isBlocked, hasGuests, isDrained, isLarge, isRegular = "done", "blocked", "guests", "drained", "large", "regular"
		are := map[string]string{}
		count := map[string]int{}
		for _, n := range nodes {
			inUse := slices.ContainsFunc(n.GPUs, func(g fleettest.GPU) bool { return g.State == "in use" })
			switch {
			case n.Partial || n.Missing || in[n.Name] == nil || idle[n.Name] && !drained[n.Name]:
				are[n.Name] = isBlocked
			case n.Kernel == "new" && !drained[n.Name]:
				are[n.Name] = isDone
			case (len(n.Guests) > 0 || inUse) && !o.BlockedLast:
				are[n.Name] = isBlocked
			case drained[n.Name]:
				are[n.Name] = isDrained
			case len(n.Guests) > 0 || inUse:
				are[n.Name] = hasGuests
			default:
				are[n.Name] = isRegular
			}
			for _, zone := range in[n.Name] {
				for product, gpus := range free[n.Name] {
					if (are[n.Name] == isRegular || are[n.Name] == hasGuests) && gpus > max(total[zone+product]-toKeep(zone+product), 0) {
						are[n.Name] = isLarge
					}
				}
			}
			count[are[n.Name]]++
			if are[n.Name] == isBlocked && drained[n.Name] && (n.Partial || n.Missing || in[n.Name] == nil) {
				count[isDrained]++ // the rest waits for it
			}
		}
		impossible := count[isLarge] > 0 && count[isDrained]+count[isRegular]+count[hasGuests] == 0
		if (err != nil) != impossible || err != nil && !errors.Is(err, fleet.ErrKeep) {
			t.Fatalf("seed %d: error %v, impossible %t", seed, err, impossible)
		}
		if err != nil {
			refused++
			continue
		}
		plans++
		kinds := []fleet.WaveKind{fleet.Interrupted, fleet.Canary, fleet.Regular, fleet.Last}
		at := 0
		for i, w := range p.Waves {
			if w.Number != i || len(w.Nodes) == 0 || slices.Index(kinds, w.Kind) < at {
				t.Fatalf("seed %d: wave %d: %+v", seed, i, w)
			}
			if most := o.MaxNodes; most > 0 && len(w.Nodes) > most && w.Kind != fleet.Canary {
				t.Errorf("seed %d: wave %d has %d nodes", seed, i, len(w.Nodes))
			}
			at = slices.Index(kinds, w.Kind)
			left := map[string]int{}
			for k, n := range total {
				left[k] = n
			}
			for _, n := range w.Nodes {
				want := map[fleet.WaveKind]string{fleet.Interrupted: isDrained, fleet.Last: hasGuests, fleet.Canary: isRegular,
					fleet.Regular: isRegular}[w.Kind]
				hosttest.EqualIn(t, fmt.Sprintf("seed %d: %s is in a wave of kind %s", seed, n.Name, w.Kind), want, are[n.Name])
				are[n.Name] = "placed"
				for _, zone := range in[n.Name] {
					for product, gpus := range free[n.Name] {
						left[zone+product] -= gpus
						if left[zone+product] < toKeep(zone+product) && gpus > 0 {
							t.Errorf("seed %d: wave %d leaves %d of %s, %d are to be kept", seed, i, left[zone+product], zone+product, toKeep(zone+product))
						}
					}
				}
			}
			for _, k := range w.Left {
				if place := k.Zone + strings.TrimPrefix(k.String(), "10de:"); k.Schedulable != left[place] || k.Keep != toKeep(place) {
					t.Errorf("seed %d: wave %d says %+v, left %d, keep %d", seed, i, k, left[place], toKeep(place))
				}
			}
		}
		if later := count[isRegular] + count[hasGuests] + count[isLarge]; p.Done != count[isDone] || count[isDrained] > 0 && p.Later != later {
			t.Errorf("seed %d: done %d, later %d, not %d and %d", seed, p.Done, p.Later, count[isDone], later)
		}
		for _, b := range p.Blocked {
			if is := are[b.Node]; !slices.Contains([]string{isBlocked, isLarge, hasGuests, "placed"}, is) {
				t.Errorf("seed %d: %s is blocked: %q", seed, b.Node, b.Reasons)
			}
		}
		for name, is := range are {
			if count[isDrained] == 0 && (is == isRegular || is == hasGuests) || is == isDrained {
				t.Errorf("seed %d: %s is in no wave, and is %s", seed, name, is)
			}
		}
	}
	if plans < 80 || refused < 20 {
		t.Errorf("%d plans, %d refused", plans, refused)
	}
}

// TestPlace: hosts of the map are nodes by their names in Nova, then by hostnames with and without
// the domain, never by two.
func TestPlace(t *testing.T) {
	node := func(name, inNova string) fleettest.Node {
		return with(fleettest.New(name, 1), func(n *fleettest.Node) { n.NovaHost = inNova })
	}
	for name, test := range map[string]struct {
		nodes []fleettest.Node
		hosts []string
		want  string
		err   error
	}{
		"the name in Nova":    {[]fleettest.Node{node("a.x", "nova-a")}, []string{"nova-a"}, "", nil},
		"the hostname":        {[]fleettest.Node{node("a.x", "nova-a")}, []string{"a.x"}, "", nil},
		"without the domain":  {[]fleettest.Node{node("a.x", "a.x")}, []string{"a"}, "", nil},
		"another domain":      {[]fleettest.Node{node("a.x", "a.x")}, []string{"a.y"}, "blocked a.x: not in FILE: its zone is unknown; a.y", nil},
		"two of one name":     {[]fleettest.Node{node("a.x", "a.x"), node("a.y", "a.y")}, []string{"a"}, "", fleet.ErrAmbiguous},
		"one of them by Nova": {[]fleettest.Node{node("a.x", "a"), node("a.y", "a.y")}, []string{"a"}, "blocked a.y: not in FILE: its zone is unknown", nil},
		"both":                {[]fleettest.Node{node("a.x", "a"), node("a.y", "a.y")}, []string{"a", "a.y"}, "", nil},
	} {
		zones := map[string]string{}
		for _, h := range test.hosts {
			zones[h] = "az1"
		}
		z, err := fleet.ParseZones("FILE", services(zones, nil), fleet.ByZone)
		hosttest.NoError(t, err)
		p, err := of(t, test.nodes...).Plan(fleet.PlanOptions{Zones: z, Map: "FILE", All: true, Goal: fleet.Goal{Kernel: "new"}, Now: fleettest.Made})
		if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
			t.Errorf("%s: error %v, not %v", name, err, test.err)
			continue
		}
		p.Waves = nil
		hosttest.EqualIn(t, name, test.want, strings.Join(planText(p), "; "))
	}
}

// TestAnsibleNames: hosts are named as their files, and names that Ansible reads otherwise are
// refused, all at once.
func TestAnsibleNames(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string // hostnames by file
		want  string
		err   error
	}{
		"by file": {map[string]string{"gpu-01.json": "a", "gpu-02.yaml": "b"}, "a=gpu-01 b=gpu-02", nil},
		"with the kind": {map[string]string{"gpu-01.scan.json": "a", "x-scan.json": "b", "scan.json": "c", "y_check.json": "d"},
			"a=gpu-01 b=x-scan c=scan d=y_check", nil},
		"a domain":                   {map[string]string{"a.example.net.json": "a"}, "a=a.example.net", nil},
		"several":                    {map[string]string{"all-nodes.jsonl": "a,b"}, "a=a b=b", nil},
		"twice":                      {map[string]string{"x/n.json": "a", "y/n.json": "b"}, "", fleet.ErrAnsibleTwice},
		"a document of another host": {map[string]string{"a.json": "a", "b.json": "b", "b.check.json": "check of a"}, "", fleet.ErrAnsibleNames},
		"a range":                    {map[string]string{"gpu[1:3].json": "a"}, "", fleet.ErrAnsibleName},
		"a port":                     {map[string]string{"gpu:22.json": "a"}, "", fleet.ErrAnsibleName},
		"a blank":                    {map[string]string{"gpu 1.json": "a"}, "", fleet.ErrAnsibleName},
		"all":                        {map[string]string{"all.json": "a"}, "", fleet.ErrAnsibleName},
		"a wave":                     {map[string]string{"wave_00.json": "a"}, "", fleet.ErrAnsibleName},
	} {
		dir := t.TempDir()
		zones := map[string]string{}
		var folders []string
		var guests [][]byte
		for file, hosts := range test.files {
			var text []byte
			for h := range strings.SplitSeq(hosts, ",") {
				if of, ok := strings.CutPrefix(h, "check of "); ok {
					text = fleettest.New(of, 1).Check(t)
					continue
				}
				zones[h] = "az1"
				guests = append(guests, fleettest.New(h, 1).GuestReport(t))
				text = append(append(text, fleettest.New(h, 1).Scan(t)...), '\n')
			}
			path := filepath.Join(dir, file)
			hosttest.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)))
			if !slices.Contains(folders, filepath.Dir(path)) {
				folders = append(folders, filepath.Dir(path))
			}
		}
		from := source(guests...)
		from.Paths = append(from.Paths, folders...)
		f, err := fleet.Read(from)
		hosttest.NoError(t, err)
		z, err := fleet.ParseZones("FILE", services(zones, nil), fleet.ByZone)
		hosttest.NoError(t, err)
		p, err := f.Plan(fleet.PlanOptions{Zones: z, Map: "FILE", Goal: fleet.Goal{Kernel: "new"}, All: true, BlockedLast: true, Now: fleettest.Made})
		hosttest.NoError(t, err)
		names, err := p.AnsibleNames()
		var got []string
		for n, name := range names {
			got = append(got, n.Name+"="+name)
		}
		slices.Sort(got)
		if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) || err == nil && strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q, error %v", name, got, err)
		}
	}
}

// TestLarge: in a fleet of 2,000 nodes, read as JSON lines, every lost card is found, and every
// node is in a wave.
func TestLarge(t *testing.T) {
	nodes, text := fleettest.Large(t)
	f := of(t, nodes...)
	layouts := f.Layouts()
	lost := 0
	for _, o := range f.Odd(layouts, fleettest.Made, 0) {
		if o.What == fleet.LostCard {
			lost++
		}
	}
	if len(layouts) != 5 || lost != 20 {
		t.Errorf("%d layouts, %d lost cards", len(layouts), lost)
	}
	z, err := fleet.ParseZones("FILE", text, fleet.ByZone)
	hosttest.NoError(t, err)
	p, err := f.Plan(fleet.PlanOptions{Zones: z, Map: "FILE", Goal: fleet.Goal{Kernel: "new"}, All: true,
		Keep: fleet.Keep{Number: 75, Percent: true}, BlockedLast: true, Now: fleettest.Made})
	hosttest.NoError(t, err)
	placed := 0
	for _, w := range p.Waves {
		placed += len(w.Nodes)
	}
	if placed != 2000 {
		t.Errorf("%d nodes in %d waves", placed, len(p.Waves))
	}
}

// FuzzRead: no input panics, what is accepted can be shown, compared and planned, and reading it
// again gives the same.
func FuzzRead(f *testing.F) {
	f.Add(fleettest.Lines(f, fleettest.New("gpu1", 2), fleettest.New("gpu2", 1)))
	f.Add([]byte(`{"schema":1,"kind":"host scan","host":{"hostname":"a"},"devices":[{"address":"0000:17:00.0","vendor_id":"10de","class":"0302"}],"warnings":[]}`))
	f.Add([]byte("schema: 1\nhost: a\ndevices: []\nwarnings: []\n"))
	f.Add([]byte(`{"schema":1,"kind":"host history","host":{"hostname":"a"},"devices":[],"warnings":[]}`)) // ignored
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := read(text)
		if err != nil {
			return
		}
		again, err := read(text)
		hosttest.NoError(t, err)
		if d := fleet.Diff(found, again); len(d) > 0 {
			t.Errorf("differs from itself: %+v", d)
		}
		found.Odd(found.Layouts(), fleettest.Made, time.Hour)
		for _, total := range found.Totals(fleettest.Made, 0) {
			if total.All != total.Free+total.InGuests+total.InContainer+total.WithHost+total.Unknown {
				t.Errorf("%+v", total)
			}
		}
		var z fleet.Zones
		for _, n := range found.Nodes {
			z.Hosts = append(z.Hosts, fleet.ZoneHost{Name: n.InNova(), Zones: []string{"az1"}})
		}
		p, err := found.Plan(fleet.PlanOptions{Zones: z, Map: "FILE", Goal: fleet.Goal{Kernel: "new"}, All: true, BlockedLast: true, Now: fleettest.Made})
		hosttest.NoError(t, err)
		planned := len(p.Blocked)
		for _, w := range p.Waves {
			planned += len(w.Nodes)
		}
		if n := len(found.Nodes); planned+p.Done < n || n == 0 && len(found.Warnings) == 0 {
			t.Errorf("%d nodes, %d planned or blocked", n, planned)
		}
	})
}
