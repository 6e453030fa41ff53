package vm

import (
	"strings"
	"testing"
	"time"

	"gpustack/host/pci"
	"gpustack/integration/vm/agent"
	"gpustack/nova/probe"
)

// TestProbe runs the script of flavor test in a machine, as a guest's cloud-init does, and reads its
// report from the serial console, as Nova does. The guest has two GPUs, and a third whose memory
// has no address.
func TestProbe(t *testing.T) {
	t.Parallel()
	topology := Topology{Name: "probe", CPU: intel, Devices: []Device{
		{Options: "bus=pcie.0,addr=0x4", Plays: &k4200}, {Options: "bus=pcie.0,addr=0x5", Plays: &k4200},
		{Options: "bus=pcie.0,addr=0x6", Plays: &huge}, {Options: "VGA,bus=pcie.0,addr=0x10"},
	}}
	m := small(t, topology)
	const (
		nonce   = "7f3a00c1"
		lost    = "0000:00:06.0"
		perhaps = 90 * time.Second
	)
	script := probe.Script(nonce, probe.Options{Driver: true})
	before := time.Now()
	reply, err := m.Ask(t.Context(), agent.Request{Argv: []string{"sh", "-eu", "-c", script}})
	if err != nil || reply.Status != 0 {
		t.Fatalf("%+v, %v", reply, err)
	}
	for strings.Count(m.Console(), " END\r\n") < 3 && time.Since(before) < perhaps {
		time.Sleep(beat)
	}
	t.Logf("three lines after %.1f s", time.Since(before).Seconds())
	if got := strings.Count(m.Console(), "GPUSTACK-PROBE v1 nonce="+nonce+" devices="); got != 3 {
		t.Errorf("%d lines", got)
	}
	r, whole := probe.Parse(m.Console(), nonce)
	if !whole {
		t.Fatalf("no report in:\n%s", end(m.Console()))
	}
	if r.Driver == nil || r.Driver.State != probe.DriverAbsent {
		t.Errorf("driver: %+v", r.Driver)
	}
	gpu, large := probe.ID{Vendor: 0x10de, Product: 0x11b4}, probe.ID{Vendor: 0x10de, Product: 0x20b5}
	if got := probe.Compare(probe.Wanted{gpu: 2}, r); got.Verdict != probe.Pass {
		t.Errorf("%+v", got)
	}
	address, err := pci.ParseAddress(lost)
	if err != nil {
		t.Fatal(err)
	}
	got := probe.Compare(probe.Wanted{large: 1}, r)
	if got.Verdict != probe.Fail || got.Seen[large] != 1 || len(got.Unassigned) != 1 || got.Unassigned[0] != address {
		t.Errorf("%+v", got)
	}
	// The kernel's view: all functions but bridges, none of which has lost a region but one.
	if want := strings.Count(m.run("sh", "-c", `for f in /sys/bus/pci/devices/*; do case $(cat $f/class) in 0x0604*) ;; *) echo x; esac; done`), "x"); len(r.Devices) != want {
		t.Errorf("%d functions, want %d", len(r.Devices), want)
	}
	for _, d := range r.Devices {
		if d.Assigned == (d.Address == address) {
			t.Errorf("%+v", d)
		}
	}
	log := m.run("dmesg")
	if !strings.Contains(log, "failed to assign") {
		t.Errorf("the kernel has found room for all regions:\n%s", log)
	}
}
