package journal_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/journal"
)

// entry is the file of an entry with an id and a status.
func entry(file, id int, status string) string {
	return fmt.Sprintf("-- var/lib/gpustack/journal/%04d.json --\n"+
		`{"schema":1,"id":%d,"kind":"journal entry", "changes":"files","command":"host `+
		`prepare","status":%q,"origin":{"user":"","host":"","version":"","argv":null},"started":"2026-03-01T08:00:00Z","ended":null,"files":[],"programs":null,"left":null}`+"\n",
		file, id, status)
}

// TestList: entries are listed in their order. A file that is none of a journal is ignored; one
// that cannot be read, or is no entry, is an error that names it.
func TestList(t *testing.T) {
	for _, test := range []struct {
		name, tree string
		ids        []int
		err        string // "" for none
	}{
		{"no journal", "-- etc/hostname --\nnode\n", nil, ""},
		{"no entry", "mkdir var/lib/gpustack/journal\n", nil, ""},
		{"in the order of numbers", entry(10000, 10000, "done") + entry(2, 2, "undone") + entry(9999, 9999, "done"), []int{2, 9999, 10000}, ""},
		{"what a killed run has left", entry(1, 1, "done") + "-- var/lib/gpustack/journal/0002.json.gpustack --\n-- var/lib/gpustack/journal/x.json --\n",
			[]int{1}, ""},
		{"a field of a later release", strings.Replace(entry(1, 1, "done"), `"changes"`, `"colour":"red","changes"`, 1), []int{1}, ""},
		{"a kind of a later release", strings.Replace(entry(1, 1, "done"), `"changes": "files"`, `"changes": "firmware"`, 1), []int{1}, ""},
		{"another number inside", entry(1, 2, "done"), nil, "/var/lib/gpustack/journal/0001.json: contains entry 2"},
		{"an unknown status", entry(1, 1, "frozen"), nil, `/var/lib/gpustack/journal/0001.json: unknown status "frozen"`},
		{"another schema", strings.Replace(entry(1, 1, "done"), `"schema":1`, `"schema":2`, 1), nil,
			"/var/lib/gpustack/journal/0001.json: schema 2: this version of gpustack reads schema 1"},
		{"an empty file", "-- var/lib/gpustack/journal/0001.json --\n", nil, "/var/lib/gpustack/journal/0001.json: the JSON document ends early"},
		{"a folder in place of an entry", "mkdir var/lib/gpustack/journal/0001.json\n", nil, "/var/lib/gpustack/journal/0001.json: not a regular file"},
		{"a file in place of the folder", "-- var/lib/gpustack/journal --\n", nil, "/var/lib/gpustack/journal: not a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			entries, err := journal.Machine(hosttest.Lay(t, test.tree)).List()
			var ids []int
			for _, e := range entries {
				ids = append(ids, e.ID)
			}
			if !slices.Equal(ids, test.ids) {
				t.Errorf("entries %v, want %v", ids, test.ids)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			// An entry that is cut does not block the others without a way out.
			if test.name == "an empty file" && !strings.Contains(host.HintOf(err).String(), "move it out of the folder: then the other entries can be undone") {
				t.Errorf("hint %q", host.HintOf(err))
			}
		})
	}
}

// TestWrite: entries are numbered, are for root only, and get the time at which they end.
func TestWrite(t *testing.T) {
	store := journal.Machine(hosttest.Lay(t, "-- etc/hostname --\nnode\n"))
	j := lock(t, store)
	defer j.Close()
	first, second := journal.Entry{Changes: journal.KindDrivers, Command: "host bind"}, journal.Entry{Changes: journal.KindFiles, Command: "host prepare"}
	hosttest.NoError(t, first.SetDetail([]string{"0000:84:00.0"}))
	for _, e := range []*journal.Entry{&first, &second} {
		hosttest.NoError(t, j.Begin(e))
	}
	for _, status := range []journal.Status{journal.Rebuilding, journal.Done} {
		hosttest.NoError(t, j.SetStatus(&first, status))
		hosttest.EqualIn(t, fmt.Sprintf("%s: ended", status), status == journal.Done, first.Ended != nil)
	}
	for name, want := range map[string]os.FileMode{"/var/lib": 0o755, "/var/lib/gpustack": 0o700, "/var/lib/gpustack/journal": 0o700,
		"/var/lib/gpustack/journal/0001.json": 0o600} {
		if info, err := os.Stat(store.Root.Path(name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info, err, want)
		}
	}
	entries, err := store.List()
	hosttest.NoError(t, err)
	want, err := json.Marshal([]journal.Entry{first, second})
	hosttest.NoError(t, err)
	if got, err := json.Marshal(entries); err != nil || string(got) != string(want) {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
	if err := j.Forget(second); err != nil {
		t.Error(err)
	}
	if err := j.Forget(second); err != nil {
		t.Errorf("again: %v", err)
	}
	if entries, err := store.List(); err != nil || len(entries) != 1 {
		t.Errorf("after the second was forgotten: %v, %v", entries, err)
	}
	third := journal.Entry{Changes: journal.KindFiles}
	if err := j.Begin(&third); err != nil || third.ID != 2 {
		t.Errorf("the number after that: %d, %v", third.ID, err)
	}
}

// TestLock: one run at a time changes a journal. A journal to which nothing was written is removed,
// with the folders that were made for it.
func TestLock(t *testing.T) {
	root := hosttest.Lay(t, "mkdir var/lib\n")
	store := journal.Machine(root)
	j := lock(t, store)
	if _, err := store.Lock(); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	e := journal.Entry{Changes: journal.KindFiles, Command: "host prepare"}
	hosttest.NoError(t, j.Begin(&e))
	if open, err := store.Open(); !errors.Is(err, journal.ErrLocked) || len(open) != 1 {
		t.Errorf("while a run works on it: %v, %v", open, err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if open, err := store.Open(); err != nil || len(open) != 1 {
		t.Errorf("after the run was killed: %v, %v", open, err)
	}
	j = lock(t, store)
	hosttest.NoError(t, errors.Join(j.SetStatus(&e, journal.Done), j.Close()))
	if open, err := store.Open(); err != nil || len(open) != 0 {
		t.Errorf("after the run was completed: %v, %v", open, err)
	}
	j = lock(t, store)
	hosttest.NoError(t, errors.Join(j.Forget(e), j.Close()))
	if exists, err := root.Exists("/var/lib/gpustack/journal"); err != nil || !exists {
		t.Errorf("a journal of an earlier run: %t, %v", exists, err)
	}
	hosttest.NoError(t, os.RemoveAll(root.Path("/var/lib/gpustack")))
	if err := lock(t, store).Close(); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]bool{"/var/lib": true, "/var/lib/gpustack": false} {
		if exists, err := root.Exists(name); err != nil || exists != want {
			t.Errorf("%s exists: %t, %v", name, exists, err)
		}
	}
}

func lock(t *testing.T, store journal.Store) *journal.Journal {
	t.Helper()
	j, err := store.Lock()
	hosttest.NoError(t, err)
	return j
}

// TestDetail: only kinds other than files have a detail, and only objects a type.
func TestDetail(t *testing.T) {
	for _, test := range []struct{ kind, want string }{
		{journal.KindFiles, `entry 0: kind "files" has no such detail`}, {"firmware", `entry 0: kind "firmware" has no such detail`},
		{journal.KindRows, "  "}, {journal.KindDrivers, "  "}, {journal.KindObjects, "  flavor"},
	} {
		e := journal.Entry{Changes: test.kind}
		got := ""
		if err := e.SetDetail(map[string]string{"type": "flavor"}); err != nil {
			got = err.Error()
		} else {
			got = "  " + e.ObjectType()
		}
		if got != test.want || (e.Detail() == nil) != (test.want[0] != ' ') {
			t.Errorf("%s: %q, detail %s", test.kind, got, e.Detail())
		}
	}
	hosttest.EqualIn(t, "a detail without a type", "", (journal.Entry{Changes: journal.KindObjects, Objects: []byte("[]")}).ObjectType())
}

// file returns a file with a content, nil for "".
func file(content string) *edit.File {
	if content == "" {
		return nil
	}
	return &edit.File{Content: []byte(content), Meta: edit.Meta{Mode: 0o644, UID: os.Geteuid(), GID: os.Getegid()}}
}

// TestUndo: a file that is as the change left it becomes what it was; one that is so already stays,
// and one that was edited since is not touched.
func TestUndo(t *testing.T) {
	for _, test := range []struct {
		name, before, after, now string // "" for no file
		transient                bool
		want, err                string
	}{
		{"edited", "a\nb\n", "a\nc\n", "a\nc\n", false, "a\nb\n", ""},
		{"created", "", "a\n", "a\n", false, "", ""},
		{"removed", "a\n", "", "", false, "a\n", ""},
		{"undone already", "a\nb\n", "a\nc\n", "a\nb\n", false, "a\nb\n", ""},
		{"removed since, with what it belonged to", "a\n", "b\n", "", true, "", ""},
		{"removed since", "a\n", "b\n", "", false, "", "/etc/x: was edited since"},
		{"edited since", "a\n", "b\n", "c\n", false, "", "/etc/x: was edited since"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, "mkdir etc\n")
			recorded := journal.NewFile(edit.Change{Name: "/etc/x", Before: file(test.before), After: file(test.after), Transient: test.transient})
			c, err := recorded.Undo(root, file(test.now))
			if err != nil || test.err != "" {
				if err == nil || err.Error() != test.err || !errors.Is(err, journal.ErrEdited) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			got := ""
			if c.After != nil {
				got = string(c.After.Content)
			}
			hosttest.Equal(t, test.want, got)
		})
	}
	// Permissions that a file got since remain, and prevent nothing.
	hardened := file("b\n")
	hardened.Mode = 0o600
	for _, before := range []string{"", "a\n"} {
		recorded := journal.NewFile(edit.Change{Name: "/etc/x", Before: file(before), After: file("b\n")})
		c, err := recorded.Undo(hosttest.Lay(t, "mkdir etc\n"), hardened)
		if err != nil || before != "" && (string(c.After.Content) != before || c.After.Mode != 0o600) || before == "" && c.After != nil {
			t.Errorf("other permissions, from %q: %+v, %v", before, c.After, err)
			continue
		}
		if again, err := recorded.Undo(hosttest.Lay(t, "mkdir etc\n"), c.After); err != nil || again.Action() != edit.None {
			t.Errorf("undone already, with other permissions: %+v, %v", again, err)
		}
	}
	lost := journal.NewFile(edit.Change{Name: "/etc/hostname", Before: file("a\n"), After: file("b\n")})
	lost.Back = []journal.Piece{{Offset: 9, Length: 1}}
	root := hosttest.Lay(t, "-- etc/hostname --\nb\n")
	if _, err := lost.Undo(root, file("b\n")); err == nil || err.Error() != "/etc/hostname: the journal does not lead back to its former content" {
		t.Errorf("pieces that do not fit: %v", err)
	}
}

// TestThen: what a change left is found behind later changes of the same file, and not behind an
// edit.
func TestThen(t *testing.T) {
	record := func(before, after string) journal.File {
		return journal.NewFile(edit.Change{Name: "/etc/x", Before: file(before), After: file(after)})
	}
	first, second, third := record("", "a\n"), record("a\n", "a\nb\n"), record("a\nb\n", "")
	for _, test := range []struct {
		name   string
		of     journal.File
		now    string
		later  []journal.File
		want   string
		wantOK bool
	}{
		{"as it is", first, "a\n", nil, "a\n", true},
		{"behind a change", first, "a\nb\n", []journal.File{second}, "a\n", true},
		{"behind a removal", first, "", []journal.File{second, third}, "a\n", true},
		{"behind a change that was undone", first, "a\n", []journal.File{second}, "a\n", true},
		{"of a removal", third, "c\n", nil, "", true},
		{"behind an edit", first, "a\nc\n", []journal.File{second}, "a\nc\n", false},
		{"removed by hand", first, "", nil, "", false},
	} {
		then, ok := test.of.Then(file(test.now), test.later)
		got := ""
		if then != nil {
			got = string(then.Content)
		}
		if got != test.want || ok != test.wantOK {
			t.Errorf("%s: %q, %t", test.name, got, ok)
		}
	}
}

// TestSecrets: a record has the lines that differed, and none beside them.
func TestSecrets(t *testing.T) {
	before := "[database]\nconnection = mysql://nova:S3CRET@db/nova\n[pci]\nalias = old\n"
	f := journal.NewFile(edit.Change{Name: "/etc/nova/nova.conf", Before: file(before), After: file(strings.Replace(before, "old", "new", 1))})
	hosttest.Equal(t, "alias = old\n", string(f.Replaced()))
	if created := journal.NewFile(edit.Change{Name: "/etc/x", After: file("a\n")}); created.Replaced() != nil {
		t.Errorf("of a file that was created: %q", created.Replaced())
	}
}

// FuzzFile: whatever two contents a file had, its record restores the first one from the second.
func FuzzFile(f *testing.F) {
	for _, seed := range [][2]string{{"a\nb\n", "a\nc\n"}, {"a", "a\n"}, {"\r\n\x00", "\xff\n\n"}, {"", "a\nb"}, {"a\na\na\n", "a\na\n"}} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		was, is := &edit.File{Content: before}, &edit.File{Content: after}
		record := journal.NewFile(edit.Change{Name: "/etc/x", Before: was, After: is})
		if got, ok := record.Previous(is); !ok || !got.Equal(was) {
			t.Errorf("%q from %q: %v, %t", before, after, got, ok)
		}
		back := record.Between(was, is)
		if got, ok := back.Previous(was); !ok || !got.Equal(is) {
			t.Errorf("%q from %q: %v, %t", after, before, got, ok)
		}
	})
}

// FuzzEntry: any file is an entry with the number of its name and a known status, or an error.
func FuzzEntry(f *testing.F) {
	for _, seed := range []string{entry(1, 1, "done"), entry(1, 1, "applying"), entry(1, 2, "done")} {
		_, text, _ := strings.Cut(seed, "\n")
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"schema":1,"kind":"journal entry","id":1,"changes":"files","status":"done","files":[{"name":"/x","back":[{"offset":-1,"length":-1,"text":null}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		root := hosttest.Root(t, t.TempDir())
		dir := root.Path("/var/lib/gpustack/journal")
		hosttest.NoError(t, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/0001.json", data, 0o600)))
		entries, err := journal.Machine(root).List()
		if err != nil {
			return
		}
		if len(entries) != 1 || entries[0].ID != 1 || entries[0].Status == "" {
			t.Fatalf("%+v", entries)
		}
		for _, file := range entries[0].Files { // as undo does with what a person may have edited
			file.Restore(&edit.File{Content: []byte("a\nb\n")})
		}
	})
}
