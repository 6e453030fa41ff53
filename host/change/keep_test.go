package change_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"testing"

	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

// keepX leaves the line x of every file that has it.
func keepX(_ change.Entry, now, before []byte) ([]byte, error) {
	if !bytes.Contains(now, []byte("x\n")) || bytes.Contains(before, []byte("x\n")) {
		return before, nil
	}
	return append([]byte("x\n"), before...), nil
}

// TestKeep: undo leaves what keep returns, and earlier entries can be undone from there,
// also where a run was killed between rewriting them.
func TestKeep(t *testing.T) {
	for killed := range 4 { // entries that were rewritten; 3 is all of them
		m := lay(t)
		apply := func(files map[string]string) {
			j := m.open()
			var plan edit.Changes
			for _, name := range []string{"/etc/grub", "/etc/made/file"} {
				if text, ok := files[name]; ok {
					c, err := edit.Put(m.root, name, []byte(text), 0o644, false)
					hosttest.NoError(t, err)
					plan = append(plan, c)
				}
			}
			if _, err := j.Apply(t.Context(), change.Work{Command: "test", Change: change.Files{Root: m.root}.New(plan)}); err != nil {
				t.Fatal(err)
			}
		}
		undo := func() {
			m.keep = keepX
			plan, err := m.open().PlanUndo(t.Context(), 0)
			hosttest.NoError(t, err)
			if _, err := m.open().Undo(t.Context(), plan.Entry.ID); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when string, want map[string]string) {
			t.Helper()
			got := map[string]string{}
			for _, name := range []string{"/etc/grub", "/etc/made/file"} {
				text, err := m.root.ReadFile(name)
				if err == nil {
					got[name] = string(text)
				} else if !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			hosttest.EqualIn(t, fmt.Sprintf("%d, %s", killed, when), want, got)
		}
		const first = "first\nsecret=hunter2\nsecond\nthird\n"
		states := []map[string]string{
			{"/etc/grub": first},
			{"/etc/grub": "1\n" + first, "/etc/made/file": "1\n"},
			{"/etc/grub": "1\n" + first + "2\n", "/etc/made/file": "1\n2\n"},
			{"/etc/grub": "x\n1\n" + first + "3\n", "/etc/made/file": "1\n3\nx\n"},
		}
		for _, files := range states[1:] {
			apply(files)
		}
		entries, err := change.List(m.root)
		hosttest.NoError(t, err)
		rewriting, err := change.Files{Root: m.root, Keep: keepX}.Rewrite(entries, 3)
		rewritten := rewriting.Entries
		if err != nil || len(rewriting.Entries) != 3 {
			t.Fatalf("%d entries, %v", len(rewritten), err)
		}
		j, err := change.Machine(m.root).Lock()
		hosttest.NoError(t, err)
		for _, e := range rewritten[:killed] {
			hosttest.NoError(t, j.Write(e))
		}
		hosttest.NoError(t, j.Close())
		for i := 2; i >= 0; i-- {
			undo()
			want := maps.Clone(states[i])
			for _, name := range []string{"/etc/grub", "/etc/made/file"} {
				want[name] = "x\n" + want[name]
			}
			check("undone", want)
		}
		if left, err := m.interrupted(); left != nil || err != nil {
			t.Errorf("%+v, %v", left, err)
		}
	}
}
