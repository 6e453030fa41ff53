package journal_test

import (
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/journal"
)

// TestNextBoot: undone on a running machine, an entry of container prepare needs no reboot,
// although it runs a program.
func TestNextBoot(t *testing.T) {
	revert := []host.Program{{Kind: host.RevertBoot}}
	for _, test := range []struct {
		name  string
		entry journal.Entry
		want  bool
	}{
		{"containers", journal.Entry{Kind: journal.KindFiles, About: &journal.Topic{Subject: journal.OfContainers}, Programs: revert}, false},
		{"adapters", journal.Entry{Kind: journal.KindFiles, About: &journal.Topic{Subject: journal.OfAdapters}, Programs: revert}, true},
		{"guests", journal.Entry{Kind: journal.KindFiles, About: &journal.Topic{Subject: journal.OfGuests}, Programs: []host.Program{{Kind: host.UpdateInitramfs}}}, true},
		{"guests of another machine's root", journal.Entry{Kind: journal.KindFiles, About: &journal.Topic{Subject: journal.OfGuests}, Left: []host.Program{{}}}, true},
		{"Nova", journal.Entry{Kind: journal.KindFiles, About: &journal.Topic{Subject: journal.OfNova}}, false},
	} {
		hosttest.EqualIn(t, test.name, test.want, test.entry.NextBoot())
	}
}
