package cleanup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
)

// TestEveryReportCounts: of two reports of a host, one with a token and one without, the order is
// unknown. What either shows in use is in use.
func TestEveryReportCounts(t *testing.T) {
	now := time.Now().UTC()
	since, d := now.Add(-20*time.Minute), Device{Address: "0000:84:00.0", Type: TypePCI}
	old := evidence.Report("gpu1", evidence.Token(guest.NewToken(now.Add(-9*time.Minute))), func(r *guest.Report) { r.Collected = now.Add(-9 * time.Minute) })
	fresh := evidence.Report("gpu1", evidence.Holds(t, d.Address, "5c4cf4f2-0000-0000-0000-000000000000"), func(r *guest.Report) { r.Collected = now.Add(-5 * time.Second) })
	for name, test := range map[string]struct {
		reports []guest.Report
		absent  bool
	}{
		"the one that shows nothing": {[]guest.Report{old}, true},
		"the one that shows the use": {[]guest.Report{fresh}, false},
		"both":                       {[]guest.Report{old, fresh}, false},
	} {
		p, err := NewProof(test.reports, nil)
		hosttest.NoError(t, err)
		p = p.At(now)
		if absent, why := p.Absent("gpu1", u, []Device{d}, since); absent != test.absent {
			t.Errorf("%s: absent %v %q", name, absent, why)
		}
		if use := p.Holder("gpu1", d.Address, since); (use.Guest == "") != test.absent {
			t.Errorf("%s: %+v", name, use)
		}
	}
}

// TestNetworkInterface: a guest that has a VF's network interface for itself uses the VF without an
// open file of it. An interface that was not mapped to a function may be that of any network
// function; GPUs are judged as before.
func TestNetworkInterface(t *testing.T) {
	const guestV = "5c4cf4f2-0000-0000-0000-000000000000"
	now := time.Now().UTC()
	vf := Device{Address: "0000:86:00.1", Type: TypeVF, Parent: text("0000:86:00.0")}
	pf, gpu := Device{Address: "0000:86:00.0", Type: TypePF}, Device{Address: "0000:84:00.0", Type: TypePCI}
	family := evidence.VFs(t, pf.Address, vf.Address)
	for name, test := range map[string]struct {
		change func(*guest.Report)
		absent []Device
		used   []Device
	}{
		"that runs": {func(r *guest.Report) {
			evidence.Defines(t, vf.Address, guestV)(r)
			r.Domains[0].Running = true
		}, []Device{gpu}, []Device{vf}},
		"of a domain that does not run": {evidence.Defines(t, vf.Address, guestV), []Device{gpu}, nil},
		"not mapped": {func(r *guest.Report) {
			r.Doubtful = &guest.Doubtful{Because: []string{"ens9"}}
			for _, pf := range r.VirtualFunctions {
				r.Doubtful.Functions = append(append(r.Doubtful.Functions, pf.Address), pf.Functions...)
			}
		}, []Device{gpu}, nil},
		"none": {func(*guest.Report) {}, []Device{gpu, vf, pf}, nil},
	} {
		p, err := NewProof([]guest.Report{evidence.Report("gpu1", family, test.change)}, nil)
		hosttest.NoError(t, err)
		p = p.At(now)
		var absent, used []Device
		for _, d := range []Device{gpu, vf, pf} {
			if ok, _ := p.Absent("gpu1", u, []Device{d}, now.Add(-time.Hour)); ok {
				absent = append(absent, d)
			}
			if use := p.Holder("gpu1", d.Address, now.Add(-time.Hour)); use.Named && use.Guest == guestV {
				used = append(used, d)
			}
		}
		hosttest.EqualIn(t, name, [][]Device{test.absent, test.used}, [][]Device{absent, used})
	}
}

// TestParentInDomain: the host has a VF no more, and libvirt has its PF in a domain that is
// defined.
func TestParentInDomain(t *testing.T) {
	now := time.Now().UTC()
	p, err := NewProof([]guest.Report{evidence.Report("gpu1", evidence.Defines(t, "0000:86:00.0", "5c4cf4f2-0000-0000-0000-000000000000"))}, nil)
	hosttest.NoError(t, err)
	for parent, want := range map[string]bool{"0000:86:00.0": false, "0000:87:00.0": true} {
		d := Device{Address: parent[:len(parent)-1] + "1", Type: TypeVF, Parent: text(parent)}
		if absent, why := p.At(now).Absent("gpu1", u, []Device{d}, now.Add(-time.Hour)); absent != want {
			t.Errorf("a VF of %s: absent %v %q", parent, absent, why)
		}
	}
}

// TestWriterBehind: a row's time is that of the nova-conductor that wrote it, whose clock may be
// some seconds behind the database's.
func TestWriterBehind(t *testing.T) {
	now := time.Now().UTC()
	age := int((35 * time.Minute).Seconds())
	r := evidence.Report("gpu1", evidence.Token(guest.NewToken(now)), func(r *guest.Report) {
		r.NovaCompute = []guest.NovaCompute{{PID: 1, AgeSeconds: &age}}
	})
	p, err := NewProof([]guest.Report{r}, nil)
	hosttest.NoError(t, err)
	for before, want := range map[time.Duration]bool{10 * time.Second: false, time.Minute: true} {
		if restarted, why := p.At(now).Restarted("gpu1", now.Add(-35*time.Minute-before)); restarted != want {
			t.Errorf("%s before the start: restarted %v %q", before, restarted, why)
		}
	}
}

// TestSpelled: a report, and the operator's word, hold for the host that the database treats as equal,
// and for no other. Two of one host contradict each other.
func TestSpelled(t *testing.T) {
	const address = "0000:84:00.0"
	devices, since, report := []Device{{ID: 1, Address: address, Type: TypePCI}}, time.Now().Add(-time.Hour), evidence.Report
	for name, test := range map[string]struct {
		names   map[string]string
		off     []string
		reports []guest.Report
		want    string // the answers for GPU1: absent, stopped, off, holder
	}{
		"a report":                     {map[string]string{"gpu1": "GPU1"}, nil, []guest.Report{report("gpu1", evidence.Stopped)}, "true true false "},
		"a report of the host's name":  {nil, nil, []guest.Report{report("GPU1", evidence.Stopped)}, "true true false "},
		"a report of another host":     {map[string]string{"gpu1": "GPU2"}, nil, []guest.Report{report("gpu1", evidence.Stopped)}, "false false false "},
		"declared off by another name": {map[string]string{"gpu1": "GPU1"}, []string{"gpu1"}, nil, "true true true "},
		"off twice":                    {map[string]string{"gpu1": "GPU1"}, []string{"gpu1", "GPU1"}, nil, "true true true "},
		"another host is off":          {map[string]string{"gpu2": "GPU2"}, []string{"gpu2"}, nil, "false false false "},
		"a guest uses the device":      {map[string]string{"gpu1": "GPU1"}, nil, []guest.Report{report("gpu1", evidence.Holds(t, address, u))}, "false false false " + u},
		"two reports":                  {map[string]string{"gpu1": "GPU1"}, nil, []guest.Report{report("gpu1"), report("GPU1", evidence.Holds(t, address, u))}, "false false false " + u},
		"two machines":                 {map[string]string{"gpu1": "GPU1"}, nil, []guest.Report{report("gpu1"), report("GPU1", func(r *guest.Report) { r.MachineID = text("other") })}, "reports of GPU1 come from several machines"},
		"off, and a report":            {map[string]string{"gpu1": "GPU1"}, []string{"gpu1"}, []guest.Report{report("GPU1")}, "host GPU1 is declared off, but"},
	} {
		p, err := NewProof(test.reports, test.off)
		hosttest.NoError(t, err)
		got := ""
		if p, err = p.Spelled(test.names); err != nil {
			got = err.Error()
		} else {
			p = p.At(time.Now())
			absent, _ := p.Absent("GPU1", u, devices, since)
			stopped, _ := p.Stopped("GPU1", since)
			got = fmt.Sprint(absent, stopped, p.Off("GPU1"), " ", p.Holder("GPU1", address, since).Guest)
		}
		if !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
