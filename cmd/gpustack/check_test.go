package main

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/rdma"
)

// lists counts how often the folder of the journal is listed.
type lists struct{ n int }

func (*lists) File(string, []byte, error) {}
func (*lists) Link(string, string, error) {}
func (*lists) Mode(string, fs.FileMode)   {}

func (l *lists) Dir(name string, _ []string, _ error) {
	if name == "var/lib/gpustack/journal" {
		l.n++
	}
}

// TestJournalListedOnce: a check lists the journal once, for everything that it needs of it.
func TestJournalListedOnce(t *testing.T) {
	root := hosttest.Bare(t)
	files := change.Files{Root: root}
	record, err := rdma.Record{Schema: host.Schema, Kind: rdma.RecordKind}.Text()
	hosttest.NoError(t, err)
	put, err := edit.Put(root, rdma.RecordFile, record, 0o600, false)
	hosttest.NoError(t, err)
	engine := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{files}}
	work := change.Work{Command: "rdma prepare", About: &change.Topic{Subject: change.OfAdapters}, Change: files.New(edit.Changes{put})}
	if _, err := engine.Apply(context.Background(), work); err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]checkCommand{"host": hostCheck(), "rdma": rdmaCheck(), "container": containerCheck()} {
		var l lists
		err := inspect(context.Background(), testUI(t), k, given{root: root.Recorded(&l)}, checkOptions{words: func(string) []string { return nil }})
		if !errors.Is(err, errDifferent) && err != nil || l.n != 1 {
			t.Errorf("%s check lists it %d times: %v", name, l.n, err)
		}
	}
}
