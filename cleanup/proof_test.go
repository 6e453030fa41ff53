package cleanup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guest"
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
		if diff := cmp.Diff([][]Device{test.absent, test.used}, [][]Device{absent, used}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestParentInDomain: the host has a VF no more, and libvirt has its PF in a domain that is
// defined.
func TestParentInDomain(t *testing.T) {
	now := time.Now().UTC()
	p, err := NewProof([]guest.Report{evidence.Report("gpu1", evidence.Defines(t, "0000:86:00.0", "5c4cf4f2-0000-0000-0000-000000000000"))}, nil)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	for before, want := range map[time.Duration]bool{10 * time.Second: false, time.Minute: true} {
		if restarted, why := p.At(now).Restarted("gpu1", now.Add(-35*time.Minute-before)); restarted != want {
			t.Errorf("%s before the start: restarted %v %q", before, restarted, why)
		}
	}
}
