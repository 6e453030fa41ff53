package repair

import (
	"testing"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb/novadbtest"
	"gpustack/host/hosttest"
)

// TestWaitOff: no nova-compute frees the devices of a host that is declared off, so that a repair says
// that a second run does, and waits for nothing.
func TestWaitOff(t *testing.T) {
	proof, err := cleanup.NewProof(nil, []string{"gpu2"})
	hosttest.NoError(t, err)
	kept := &novadbtest.Database{Answers: []novadbtest.Answer{{Part: "SELECT COUNT(*) FROM pci_devices", Rows: [][]any{{int64(1)}}}}}
	r := &Repairer{Databases: novadbtest.Open(t, kept), Options: find.Options{Proof: proof}, Record: func([]cleanup.Unit) error { return nil }}
	for _, test := range []struct{ host, note string }{
		{"gpu1", ""},
		{"gpu2", "no nova-compute frees the devices while gpu2 is off: run the same command again, which frees them"},
	} {
		units := []cleanup.Unit{{Cell: "cell1", Repair: cleanup.Online, State: cleanup.Written, Instance: instance, Devices: []cleanup.Held{{Host: test.host}}}}
		waits := false
		err := r.Wait(t.Context(), units, time.Millisecond, func(int) { waits = true })
		if err != nil || units[0].Note != test.note || units[0].State != cleanup.Written || waits != (test.note == "") {
			t.Errorf("%s: %q, %s, waits: %v, %v", test.host, units[0].Note, units[0].State, waits, err)
		}
	}
}
