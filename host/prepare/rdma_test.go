package prepare_test

import (
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/selection"
)

// TestRecordedByRDMA: a function that rdma prepare has recorded, or a VF that it makes, is refused.
func TestRecordedByRDMA(t *testing.T) {
	for _, test := range []struct {
		name string
		is   func(*rdma.Prepared, pci.Address)
	}{
		{"an adapter", func(p *rdma.Prepared, a pci.Address) { p.Address = a }},
		{"a VF", func(p *rdma.Prepared, a pci.Address) { p.VFs[0].Address = a }},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, hosttest.Server{CPU: "GenuineIntel", More: "-- var/lib/gpustack/.keep --\n"}.Archive())
			a := pci.Address{Bus: 2}
			selected := selection.Options{Add: hosttest.Selectors(t, a.String())}
			if _, err := plan(t, root, selected); err != nil {
				t.Fatal(err)
			}
			p := rdma.Prepared{Path: []pci.Address{}, Use: rdma.ForGuests, VFs: []rdma.PreparedVF{{}}}
			test.is(&p, a)
			text, err := rdma.Record{Schema: host.Schema, Kind: rdma.RecordKind, Adapters: []rdma.Prepared{p}, Files: []rdma.File{}}.Text()
			hosttest.NoError(t, err)
			hosttest.NoError(t, edit.Write(root, rdma.RecordFile, text, 0o600))
			if _, err := plan(t, root, selected); err == nil || !strings.Contains(err.Error(), "0000:02:00.0: is recorded by rdma prepare") {
				t.Errorf("%v, want a refusal", err)
			}
			if _, err := plan(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:01:00.0")}); err != nil {
				t.Error(err)
			}
			hosttest.NoError(t, edit.Write(root, rdma.RecordFile, []byte("{"), 0o600))
			if _, err := plan(t, root, selected); err == nil || !strings.Contains(err.Error(), rdma.RecordFile) {
				t.Errorf("a record that cannot be read: %v, want an error", err)
			}
		})
	}
}
