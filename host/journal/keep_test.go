package journal_test

import (
	"bytes"
	"maps"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/edit"
	"gpustack/host/journal"
)

// keepX leaves the line x of every file that has it.
func keepX(_ journal.Entry, now, before []byte) ([]byte, error) {
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
		change := func(files map[string]string) {
			j := m.open()
			defer m.close(j)
			var plan edit.Plan
			for _, name := range []string{"/etc/grub", "/etc/made/file"} {
				if text, ok := files[name]; ok {
					c, err := edit.Put(m.root, name, []byte(text), 0o644, false)
					if err != nil {
						t.Fatal(err)
					}
					plan = append(plan, c)
				}
			}
			if _, err := j.Apply(t.Context(), journal.Work{Command: "test", Files: plan}); err != nil {
				t.Fatal(err)
			}
		}
		undo := func(keep journal.Keep) {
			j := m.open()
			defer m.close(j)
			entries, err := journal.List(m.root)
			if err != nil {
				t.Fatal(err)
			}
			e, err := journal.Pick(entries, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := j.Keep(e.ID, keep); err != nil {
				t.Fatal(err)
			}
			if _, err := j.Undo(t.Context(), e.ID); err != nil {
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
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%d, %s (-want +got):\n%s", killed, when, diff)
			}
		}
		const first = "first\nsecret=hunter2\nsecond\nthird\n"
		states := []map[string]string{
			{"/etc/grub": first},
			{"/etc/grub": "1\n" + first, "/etc/made/file": "1\n"},
			{"/etc/grub": "1\n" + first + "2\n", "/etc/made/file": "1\n2\n"},
			{"/etc/grub": "x\n1\n" + first + "3\n", "/etc/made/file": "1\n3\nx\n"},
		}
		for _, files := range states[1:] {
			change(files)
		}
		entries, err := journal.List(m.root)
		if err != nil {
			t.Fatal(err)
		}
		rewritten, err := journal.Keeping(m.root, entries, 3, keepX)
		if err != nil || len(rewritten) != 3 {
			t.Fatalf("%d entries, %v", len(rewritten), err)
		}
		j := m.open()
		for _, e := range rewritten[:killed] {
			if err := j.Write(e); err != nil {
				t.Fatal(err)
			}
		}
		m.close(j)
		for i := 2; i >= 0; i-- {
			undo(keepX)
			want := maps.Clone(states[i])
			for _, name := range []string{"/etc/grub", "/etc/made/file"} {
				want[name] = "x\n" + want[name]
			}
			check("undone", want)
		}
		if left, err := journal.Interrupted(m.root); left != nil || err != nil {
			t.Errorf("%+v, %v", left, err)
		}
	}
}
