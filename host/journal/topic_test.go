package journal_test

import (
	"testing"

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
