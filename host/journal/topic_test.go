package journal_test

import (
	"testing"

	"gpustack/host"
	"gpustack/host/journal"
)

// TestTopic: what a change is about is a field of its entry. Of entries of 47ed7fd and earlier it
// follows from the text of the command.
func TestTopic(t *testing.T) {
	for _, test := range []struct {
		name  string
		entry journal.Entry
		want  journal.Topic
	}{
		{"host prepare", journal.Entry{Kind: journal.KindFiles, Command: "host prepare --device 84:00.0"}, journal.Topic{Subject: journal.OfGuests}},
		{"host prepare --none", journal.Entry{Kind: journal.KindFiles, Command: "host prepare --none"}, journal.Topic{Subject: journal.OfGuests, None: true}},
		{"what removed the last function", journal.Entry{Kind: journal.KindFiles, Command: "host prepare --remove 84:00.0 --none"},
			journal.Topic{Subject: journal.OfGuests, None: true}},
		{"rdma prepare", journal.Entry{Kind: journal.KindFiles, Command: "rdma prepare --none"}, journal.Topic{Subject: journal.OfAdapters, None: true}},
		{"container prepare", journal.Entry{Kind: journal.KindFiles, Command: "container prepare --device 0000:84:00.0"}, journal.Topic{Subject: journal.OfContainers}},
		{"nova configure", journal.Entry{Kind: journal.KindFiles, Command: "nova configure --role compute"}, journal.Topic{Subject: journal.OfNova, Role: "compute"}},
		{"drivers", journal.Entry{Kind: journal.KindDrivers, Command: "host bind --device 84:00.0"}, journal.Topic{}},
		{"a command of a later release", journal.Entry{Kind: journal.KindFiles, Command: "host tune"}, journal.Topic{}},
		{"a field against its text", journal.Entry{Kind: journal.KindFiles, Command: "host prepare --none", About: &journal.Topic{Subject: journal.OfAdapters}},
			journal.Topic{Subject: journal.OfAdapters}},
	} {
		if got := test.entry.Topic(); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

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
		{"containers, recorded by an earlier commit", journal.Entry{Kind: journal.KindFiles, Command: "container prepare --none", Programs: revert}, false},
		{"adapters", journal.Entry{Kind: journal.KindFiles, About: &journal.Topic{Subject: journal.OfAdapters}, Programs: revert}, true},
		{"guests", journal.Entry{Kind: journal.KindFiles, About: &journal.Topic{Subject: journal.OfGuests}, Programs: []host.Program{{Kind: host.UpdateInitramfs}}}, true},
		{"guests of another machine's root", journal.Entry{Kind: journal.KindFiles, About: &journal.Topic{Subject: journal.OfGuests}, Left: []host.Program{{}}}, true},
		{"Nova", journal.Entry{Kind: journal.KindFiles, About: &journal.Topic{Subject: journal.OfNova}}, false},
	} {
		if got := test.entry.NextBoot(); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}
