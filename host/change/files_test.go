package change_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

const tree = `
-- etc/grub --
first
secret=hunter2
second
third
-- etc/gone --
old
`

// machine is a root with programs that only tell that they ran.
type machine struct {
	t      *testing.T
	root   host.Root
	ran    []string
	seen   *[]string // gets each program with the first line of a file as it is then, if it is set
	during func()    // called while a program runs, if it is set
	fail   error
	keep   change.Keep
}

func lay(t *testing.T) *machine {
	return &machine{t: t, root: hosttest.Lay(t, tree)}
}

// engine changes the machine's files.
type engine struct{ change.Engine }

func (m *machine) open() engine {
	files := change.Files{Root: m.root, Keep: m.keep}
	return engine{change.Engine{Store: change.Machine(m.root), Kinds: []change.Kind{files}, Run: m.run}}
}

func (m *machine) run(_ context.Context, p host.Program) error {
	m.ran = append(m.ran, p.String())
	if m.seen != nil {
		line, _, _ := strings.Cut(m.state()["/etc/grub"], "\n")
		*m.seen = append(*m.seen, p.String()+" "+line)
	}
	fail := m.fail
	if m.during != nil {
		m.during()
	}
	return fail
}

// Recover recovers all that is left open.
func (e engine) Recover(ctx context.Context) ([]change.Recovered, error) {
	left, err := e.Interrupted(context.Background(), change.ToRecover)
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, l := range left {
		if l.Here {
			ids = append(ids, l.Entry.ID)
		}
	}
	return e.Engine.Recover(ctx, ids)
}

// interrupted returns the only entry that a run has left open, or nil.
func (m *machine) interrupted() (*change.Entry, error) {
	left, err := m.open().Interrupted(context.Background(), change.ToLook)
	if len(left) == 0 {
		return nil, err
	}
	return &left[0].Entry, err
}

// work changes one file, makes one and removes one.
func (m *machine) work() change.Work {
	m.t.Helper()
	return change.Work{Command: "test", Change: change.Files{Root: m.root}.New(m.plan()), Programs: []host.Program{{Kind: host.UpdateGrub}}}
}

func (m *machine) plan() edit.Changes {
	m.t.Helper()
	var plan edit.Changes
	for _, want := range []struct{ name, text string }{
		{"/etc/grub", "FIRST\nsecret=hunter2\nsecond\nthird\nfourth\n"},
		{"/etc/new.d/new", "new\n"},
		{"/etc/gone", ""},
	} {
		c, err := edit.Observe(m.root, want.name).Remove(want.name)
		if want.text != "" {
			c, err = edit.Put(m.root, want.name, []byte(want.text), 0o644, false)
		}
		hosttest.NoError(m.t, err)
		plan = append(plan, c)
	}
	return plan
}

// state is what the machine's own files hold.
func (m *machine) state() map[string]string {
	m.t.Helper()
	state := map[string]string{}
	for _, name := range []string{"/etc/grub", "/etc/new.d/new", "/etc/gone"} {
		f, err := edit.Read(m.root, name)
		hosttest.NoError(m.t, err)
		if f != nil {
			state[name] = string(f.Content)
		}
	}
	if ok, _ := m.root.Exists("/etc/new.d"); ok {
		names, _ := m.root.ReadDir("/etc/new.d")
		state["/etc/new.d"] = strings.Join(names, " ")
	}
	return state
}

func (m *machine) statuses() (statuses []change.Status) {
	m.t.Helper()
	entries, err := change.List(m.root)
	hosttest.NoError(m.t, err)
	for _, e := range entries {
		statuses = append(statuses, e.Status)
	}
	return statuses
}

func TestApplyAndUndo(t *testing.T) {
	m := lay(t)
	before := m.state()
	j := m.open()
	e, err := j.Apply(context.Background(), m.work())
	if err != nil || e.ID != 1 {
		t.Fatal(e, err)
	}
	after := map[string]string{"/etc/grub": "FIRST\nsecret=hunter2\nsecond\nthird\nfourth\n", "/etc/new.d/new": "new\n", "/etc/new.d": "new"}
	hosttest.Equal(t, after, m.state())
	// The journal has no line that did not change.
	text, err := m.root.ReadFile("/var/lib/gpustack/journal/0001.json")
	if err != nil || strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "aHVudGVyMg") {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := j.Undo(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	hosttest.EqualIn(t, "undone", before, m.state())
	hosttest.Equal(t, []string{"update-grub", "update-grub"}, m.ran)
	hosttest.Equal(t, []change.Status{change.Undone}, m.statuses())
}

// TestStoppedAt: a run that stopped with an entry in each status is put right by
// the next, wherever among the files it stopped.
func TestStoppedAt(t *testing.T) {
	for _, test := range []struct {
		status change.Status
		made   int  // how many of the files are as the work makes them
		done   bool // whether the work stands in the end
		left   int  // entries
		ran    int
	}{
		{change.Applying, 0, false, 0, 0},
		{change.Applying, 1, false, 0, 0},
		{change.Applying, 3, false, 0, 0},
		{change.Rebuilding, 3, true, 1, 1},
		{change.Undoing, 3, false, 1, 1},
		{change.Undoing, 1, false, 1, 1},
		{change.Undoing, 0, false, 1, 1},
		{change.Unbuilding, 0, false, 1, 1},
	} {
		t.Run(string(test.status)+string(rune('0'+test.made)), func(t *testing.T) {
			m := lay(t)
			before := m.state()
			plan := m.plan()
			j := m.open()
			if _, err := j.Apply(context.Background(), m.work()); err != nil {
				t.Fatal(err)
			}
			after := m.state()
			for _, c := range plan[test.made:] {
				hosttest.NoError(t, c.Inverse().Apply(m.root))
			}
			if test.status == change.Unbuilding {
				hosttest.NoError(t, edit.RemoveDirs(m.root, []string{"/etc/new.d"}))
			}
			m.setStatus(test.status)
			m.ran = nil
			entry, err := m.interrupted()
			if err != nil || entry == nil || entry.Status != test.status {
				t.Fatal(entry, err)
			}
			j = m.open()
			if _, err := j.Recover(context.Background()); err != nil {
				t.Fatal(err)
			}
			want := before
			if test.done {
				want = after
			}
			hosttest.Equal(t, want, m.state())
			if len(m.statuses()) != test.left || len(m.ran) != test.ran {
				t.Errorf("%v, ran %v", m.statuses(), m.ran)
			}
			if e, err := m.interrupted(); e != nil || err != nil {
				t.Error(e, err)
			}
		})
	}
}

func (m *machine) setStatus(status change.Status) {
	m.t.Helper()
	const name = "/var/lib/gpustack/journal/0001.json"
	text, err := m.root.ReadFile(name)
	hosttest.NoError(m.t, err)
	changed := strings.Replace(string(text), `"status": "done"`, `"status": "`+string(status)+`"`, 1)
	hosttest.NoError(m.t, os.WriteFile(m.root.Path(name), []byte(changed), 0o600))
}

// TestFailed: a change that fails takes those before it back, and leaves no trace.
func TestFailed(t *testing.T) {
	m := lay(t)
	work := m.work()
	hosttest.NoError(t, os.WriteFile(m.root.Path("/etc/gone"), []byte("mine\n"), 0o644))
	before := m.state()
	j := m.open()
	_, err := j.Apply(context.Background(), work)
	if !errors.Is(err, edit.ErrChanged) {
		t.Errorf("%v", err)
	}
	hosttest.EqualIn(t, "before and after", before, m.state())
	if ok, err := m.root.Exists("/var"); ok || err != nil {
		t.Errorf("the journal was left: %v, %v", ok, err)
	}
}

// TestProgramFailed: the files stay, and the next run goes on, or undoes.
func TestProgramFailed(t *testing.T) {
	for _, undo := range []bool{false, true} {
		m := lay(t)
		before := m.state()
		m.fail = errors.New("no space")
		j := m.open()
		e, err := j.Apply(context.Background(), m.work())
		if !errors.Is(err, m.fail) || e.Status != change.Rebuilding {
			t.Fatal(e.Status, err)
		}
		after := m.state()
		m.fail = nil
		if undo {
			after = before
			_, err = j.Undo(context.Background(), 0)
		} else {
			_, err = j.Recover(context.Background())
		}
		hosttest.NoError(t, err)
		if diff := cmp.Diff(after, m.state()); diff != "" || len(m.ran) != 2 {
			t.Errorf("ran %v (-want +got):\n%s", m.ran, diff)
		}
	}
}

// countdown is a context that ends when it has been asked often enough whether it has.
type countdown struct {
	context.Context
	left *int
}

func (c countdown) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

// all is all that a run could change: the machine's own files and the change.
func (m *machine) all() map[string]string {
	m.t.Helper()
	all := m.state()
	names, err := m.root.ReadDir("/var/lib/gpustack/journal")
	if err != nil && !host.IsAbsent(err) {
		m.t.Fatal(err)
	}
	for _, name := range names {
		text, err := m.root.ReadFile("/var/lib/gpustack/journal/" + name)
		hosttest.NoError(m.t, err)
		all[name] = string(text)
	}
	return all
}

// TestInterrupted ends the context at each place where apply and undo look at it: files and
// journal are as before then, and each program that had begun has run once more, with the files
// as before.
func TestInterrupted(t *testing.T) {
	for _, undo := range []bool{false, true} {
		name := map[bool]string{false: "apply", true: "undo"}[undo]
		for asked := 0; ; asked++ {
			m := lay(t)
			work := m.work()
			work.Programs = append(work.Programs, host.Program{Kind: host.UpdateInitramfs})
			j := m.open()
			if undo {
				if _, err := j.Apply(context.Background(), work); err != nil {
					t.Fatal(err)
				}
			}
			before := m.all()
			var ran []string // with the first line of what it saw
			m.ran, m.seen = nil, &ran
			left := asked
			ctx := countdown{context.Background(), &left}
			var err error
			if undo {
				_, err = j.Undo(ctx, 1)
			} else {
				_, err = j.Apply(ctx, work)
			}
			if err == nil {
				if asked < 8 || len(ran) != 2 {
					t.Errorf("%s: asked %d times only, ran %q", name, asked, ran)
				}
				break
			}
			begun := len(ran) / 2
			want := "context canceled, all files were rolled back"
			after, restored := "FIRST", "first"
			if undo {
				want, after, restored = "context canceled, entry 1 stays as it was", "first", "FIRST"
			}
			if asked == 0 {
				want = "context canceled, nothing was changed"
			}
			wantRan := []string{"update-grub " + after, "update-initramfs -u -k all " + after}[:begun]
			for i, program := range []string{"update-grub", "update-initramfs -u -k all"}[:begun] {
				want += []string{", and these programs were run again: ", ", "}[i] + program
				wantRan = append(wantRan, program+" "+restored)
			}
			if !errors.Is(err, context.Canceled) || err.Error() != want {
				t.Errorf("%s, asked %d times: %v, want %s", name, asked, err, want)
			}
			hosttest.EqualIn(t, fmt.Sprintf("%s, asked %d times: ran", name, asked), wantRan, ran, cmpopts.EquateEmpty())
			if diff := cmp.Diff(before, m.all()); diff != "" {
				t.Errorf("%s, asked %d times (-before +after):\n%s", name, asked, diff)
			}
		}
	}
}

// TestInterruptedTwice: where rolling back fails, as it does when a second signal stops its
// programs, the next run finishes it.
func TestInterruptedTwice(t *testing.T) {
	for _, undo := range []bool{false, true} {
		m := lay(t)
		j := m.open()
		if undo {
			if _, err := j.Apply(context.Background(), m.work()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		m.during = func() {
			cancel()
			m.fail = host.ErrStopped
		}
		var err error
		if undo {
			_, err = j.Undo(ctx, 1)
		} else {
			_, err = j.Apply(ctx, m.work())
		}
		if !errors.Is(err, change.ErrNotRolledBack) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		m.during, m.fail = nil, nil
		if dealt, err := j.Recover(context.Background()); err != nil || len(dealt) != 1 {
			t.Errorf("%v, %v", dealt, err)
		}
		want := map[string]string{"/etc/grub": "first\nsecret=hunter2\nsecond\nthird\n", "/etc/gone": "old\n"}
		status := change.Undone
		if undo {
			want, status = map[string]string{"/etc/grub": "FIRST\nsecret=hunter2\nsecond\nthird\nfourth\n", "/etc/new.d/new": "new\n", "/etc/new.d": "new"}, change.Done
		}
		hosttest.Equal(t, want, m.state())
		hosttest.Equal(t, []change.Status{status}, m.statuses())
	}
}

// TestInterruptedRecovery: recovery that is interrupted leaves the entry to the next run.
func TestInterruptedRecovery(t *testing.T) {
	for _, status := range []change.Status{change.Applying, change.Rebuilding, change.Undoing, change.Unbuilding} {
		for asked := 0; ; asked++ {
			m := lay(t)
			j := m.open()
			if _, err := j.Apply(context.Background(), m.work()); err != nil {
				t.Fatal(err)
			}
			m.setStatus(status)
			left := asked
			_, err := j.Recover(countdown{context.Background(), &left})
			if err != nil {
				if want := "context canceled, the next run recovers entry 1"; !errors.Is(err, context.Canceled) || err.Error() != want {
					t.Errorf("%s, asked %d times: %v, want %s", status, asked, err, want)
				}
				if dealt, err := j.Recover(context.Background()); err != nil || len(dealt) != 1 {
					t.Errorf("%s, asked %d times: %v, %v", status, asked, dealt, err)
				}
			}
			if left, interrupted := m.interrupted(); left != nil || interrupted != nil {
				t.Errorf("%s, asked %d times: %v, %v", status, asked, left, interrupted)
			}
			if err == nil {
				break
			}
		}
	}
}

// TestFailedRecovery: what could not be recovered is not reported as finished.
func TestFailedRecovery(t *testing.T) {
	for _, status := range []change.Status{change.Applying, change.Rebuilding, change.Undoing, change.Unbuilding} {
		m := lay(t)
		if _, err := m.open().Apply(t.Context(), m.work()); err != nil {
			t.Fatal(err)
		}
		m.setStatus(status)
		m.fail = errors.New("no space")
		if status == change.Applying { // no program is run
			m.fail = change.ErrEdited
			hosttest.NoError(t, os.WriteFile(m.root.Path("/etc/grub"), []byte("edited\n"), 0o600))
		}
		recovered, err := m.open().Recover(t.Context())
		if !errors.Is(err, change.ErrUnfinished) || !errors.Is(err, m.fail) {
			t.Errorf("%s: %v", status, err)
		}
		for _, r := range recovered {
			hosttest.EqualIn(t, fmt.Sprintf("%s: entry %d", status, r.Entry.ID), "", r.Text)
		}
	}
}

// steady is a kind of change that is left open, and recovered whether the context has ended or not.
type steady struct{ recovering func() }

func (steady) Name() string                                                { return change.KindObjects }
func (s steady) Open(context.Context, change.Entry) (change.Change, error) { return s, nil }
func (steady) Kind() string                                                { return change.KindObjects }
func (steady) Record(*change.Entry) error                                  { return nil }
func (steady) Check(context.Context, change.Purpose) error                 { return nil }
func (steady) Apply(context.Context, func() error) (change.Outcome, error) { return change.Open, nil }
func (steady) Undo(context.Context, func() error) (change.Outcome, error) {
	return change.Reverted, nil
}
func (s steady) Recover(context.Context, func() error) (change.Outcome, string, error) {
	s.recovering()
	return change.Stands, "", nil
}

// blocked is a change of files after which an entry cannot be written: its temporary file is a
// folder.
type blocked struct {
	*change.FileChange
	block func()
}

func (b blocked) Apply(ctx context.Context, save func() error) (change.Outcome, error) {
	defer b.block()
	return b.FileChange.Apply(ctx, save)
}

// TestLeftOpen: a change that is made, and whose status cannot be written, says what is left and
// what ends it; the next run rolls it back.
func TestLeftOpen(t *testing.T) {
	for _, programs := range []bool{false, true} {
		m := lay(t)
		before, w := m.state(), m.work()
		if !programs {
			w.Programs = nil
		}
		block := m.root.Path("/var/lib/gpustack/journal/.gpustack-0001.json~")
		w.Change = blocked{w.Change.(*change.FileChange), func() { hosttest.NoError(t, os.MkdirAll(block+"/full", 0o700)) }}
		entry, err := m.open().Apply(t.Context(), w)
		const want = "entry 1 is left open, and files may be changed in part: /var/lib/gpustack/journal/0001.json: directory not empty"
		remedy := change.Left{Entry: entry}.Remedy().String()
		if err == nil || err.Error() != want || host.HintOf(err).String() != remedy || entry.Status != change.Applying {
			t.Errorf("%v, %s", err, entry.Status)
		}
		if len(m.ran) > 0 {
			t.Errorf("ran %q", m.ran)
		}
		hosttest.NoError(t, os.RemoveAll(block))
		if recovered, err := m.open().Recover(t.Context()); err != nil || len(recovered) != 1 {
			t.Errorf("%v, %v", recovered, err)
		}
		hosttest.Equal(t, before, m.state())
	}
}

// TestInterruptedBetweenEntries: when the context ends, the next entry is not begun.
func TestInterruptedBetweenEntries(t *testing.T) {
	m, stop := lay(t), errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	kind := steady{func() { cancel(stop) }}
	e := engine{change.Engine{Store: change.Machine(m.root), Kinds: []change.Kind{kind}}}
	for range 2 {
		if _, err := e.Apply(t.Context(), change.Work{Command: "test", Change: kind}); err != nil {
			t.Fatal(err)
		}
	}
	recovered, err := e.Recover(ctx)
	if len(recovered) != 1 || !errors.Is(err, stop) || err.Error() != "stop, the next run recovers entry 2" {
		t.Errorf("%v, %v", recovered, err)
	}
	hosttest.Equal(t, []change.Status{change.Done, change.Applying}, m.statuses())
}

func TestLocked(t *testing.T) {
	m := lay(t)
	j, err := change.Machine(m.root).Lock()
	hosttest.NoError(t, err)
	if _, err := m.open().Apply(t.Context(), m.work()); !errors.Is(err, change.ErrLocked) {
		t.Errorf("%v", err)
	}
	hosttest.NoError(t, j.Close())
	if _, err := m.open().Apply(t.Context(), m.work()); err != nil {
		t.Errorf("%v", err)
	}
}

// TestOtherKinds: an entry of a kind that is not handled here is named, and left as it is.
func TestOtherKinds(t *testing.T) {
	for kind, want := range map[string]string{
		change.KindDrivers: "entry 1 (test) was interrupted while applying: the next command that changes this machine recovers it first",
		change.KindRows:    "entry 1 (test) was interrupted, and its outcome is unknown: gpustack repair-migration --apply determines it and completes or reverts the repair, gpustack undo 1 undoes it",
		"spells":           "entry 1 (test) was interrupted, and its outcome is unknown: the release of gpustack that made it recovers it",
	} {
		t.Run(kind, func(t *testing.T) {
			m := &machine{t: t, root: hosttest.Lay(t, "-- var/lib/gpustack/journal/0001.json --\n"+
				`{"schema": 1, "id": 1, "kind": "journal entry", "changes": "`+kind+`", "command": "test", "status": "applying", "origin":{"user":"","host":"","version":"","argv":null},"started": "2026-03-01T08:00:00Z", "ended": null, "files": [], "programs": null, "left": null, "colour": 1}`+
				"\n")}
			left, err := m.open().Interrupted(t.Context(), change.ToRecover)
			if err != nil || len(left) != 1 || left[0].Here || left[0].Text() != want {
				t.Errorf("%+v, %v", left, err)
			}
			if recovered, err := m.open().Recover(t.Context()); err != nil || len(recovered) > 0 {
				t.Errorf("%v, %v", recovered, err)
			}
			if _, err := m.open().PlanUndo(t.Context(), 1); err == nil {
				t.Error("undo can be planned")
			}
			hosttest.Equal(t, []change.Status{change.Applying}, m.statuses())
		})
	}
}

// TestLockWhileClosing: a run that locks a journal which another one removes again at that moment
// finds it locked, or makes it.
func TestLockWhileClosing(t *testing.T) {
	store := change.Machine(hosttest.Lay(t, tree))
	errs := make(chan error)
	for range 2 {
		go func() {
			for range 500 {
				j, err := store.Lock()
				if err == nil {
					err = j.Close()
				}
				if err != nil && !errors.Is(err, change.ErrLocked) {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestListWhileForgetting: an entry that a run forgets while others list the journal is no error.
func TestListWhileForgetting(t *testing.T) {
	m := lay(t)
	j, err := change.Machine(m.root).Lock()
	hosttest.NoError(t, err)
	defer j.Close()
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			e := change.Entry{Changes: change.KindFiles, Command: "test"}
			if err := errors.Join(j.Begin(&e), j.Forget(e)); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 1000 {
		if _, err := change.List(m.root); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestUnreadable: a journal that is not understood is an error, never an empty one.
func TestUnreadable(t *testing.T) {
	const rest = `"command": "x", "origin":{"user":"","host":"","version":"","argv":null},"started": "2026-03-01T08:00:00Z", "ended": null, "files": [], "programs": null, "left": null}`
	for _, test := range []struct{ name, text, want string }{
		{"truncated", `{"schema": 1, "id": 1`, "the JSON document ends early"},
		{"of another release", `{"schema": 2, "id": 1}`, "schema 2: this version of gpustack reads schema 1"},
		{"under another name", `{"schema": 1, "id": 2, "kind": "journal entry", "changes": "files", "status": "done", ` + rest, "contains entry 2"},
		{"of no kind of change", `{"schema": 1, "kind": "journal entry", "id": 1, "status": "done", ` + rest, "malformed JSON: changes is missing"},
		{"of another status", `{"schema": 1, "id": 1, "kind": "journal entry", "changes": "files", "status": "lost", ` + rest, `unknown status "lost"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, "-- var/lib/gpustack/journal/0001.json --\n"+test.text+"\n")
			_, err := change.List(root)
			if want := "/var/lib/gpustack/journal/0001.json: " + test.want; err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

// TestOfLaterRelease: fields that this release does not know do not keep an entry from being
// undone.
func TestOfLaterRelease(t *testing.T) {
	m := lay(t)
	before := m.state()
	if _, err := m.open().Apply(t.Context(), m.work()); err != nil {
		t.Fatal(err)
	}
	const name = "/var/lib/gpustack/journal/0001.json"
	text, err := m.root.ReadFile(name)
	hosttest.NoError(t, err)
	changed := strings.Replace(string(text), `"schema": 1,`, `"schema": 1, "colour": {"red": 1},`, 1)
	hosttest.NoError(t, os.WriteFile(m.root.Path(name), []byte(changed), 0o600))
	if _, err := m.open().Undo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	hosttest.Equal(t, before, m.state())
}

// FuzzEntry: whatever an entry contains, the result is an error or a plan, and what the plan
// restores has the hash that the entry names.
func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"schema":1,"id":1,"kind":"journal entry", "changes":"files","status":"done","files":[{"name":"/etc/grub","before":{"hash":"x"},"after":null,"back":[{"offset":0,"length":1,"text":"eA=="}]}]}`))
	f.Add([]byte(`{"schema":1,"id":1,"kind":"journal entry", "changes":"files","command":"x","status":"done","origin":{"user":"","host":"","version":"","argv":null},"started":"2026-03-01T08:00:00Z","ended":null,"files":[{"name":"/etc/grub",` +
		`"before":{"hash":"x","mode":1,"uid":0,"gid":0,"xattrs":null},"after":{"hash":"y","mode":1,"uid":0,"gid":0,"xattrs":null},"dirs":null,"back":null,` +
		`"meaning":{"grammar":"boot entry","whole":null,"values":[{"name":"first","before":[],"after":["first"]}]}}],` +
		`"unchanged":[{"name":"/etc/gone","meaning":{"grammar":"grub defaults","whole":{"name":"","before":null,"after":["old"]},"values":[]}}],"programs":null,"left":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		root := hosttest.Lay(t, tree+"-- var/lib/gpustack/journal/0001.json --\n{}\n")
		hosttest.NoError(t, os.WriteFile(root.Path("/var/lib/gpustack/journal/0001.json"), data, 0o600))
		entries, err := change.List(root)
		if err != nil {
			return
		}
		for _, e := range entries {
			if _, err := json.Marshal(e); err != nil {
				t.Fatal(err)
			}
			if rewriting, err := (change.Files{Root: root}).Rewrite(entries, e.ID); err == nil && len(rewriting.Entries) > 0 {
				e = rewriting.Entries[len(rewriting.Entries)-1]
			}
			c, err := change.Files{Root: root}.Open(t.Context(), e)
			hosttest.NoError(t, err)
			plan, err := c.(*change.FileChange).Back()
			if err != nil {
				continue
			}
			for i, c := range plan {
				if f := e.Files[len(e.Files)-1-i]; c.After != nil && (f.Before == nil || c.After.Hash() != f.Before.Hash) {
					t.Errorf("%s gets %q", c.Name, c.After.Content)
				}
			}
		}
	})
}

// TestUndoWithoutFolder: the folder of a removed file may be removed since, as by its package.
func TestUndoWithoutFolder(t *testing.T) {
	m := &machine{t: t, root: hosttest.Lay(t, "-- etc/sub/dir/gone --\nold\n")}
	c, err := edit.Observe(m.root, "/etc/sub/dir/gone").Remove("/etc/sub/dir/gone")
	hosttest.NoError(t, err)
	if _, err := m.open().Apply(t.Context(), change.Work{Command: "test", Change: change.Files{Root: m.root}.New(edit.Changes{c})}); err != nil {
		t.Fatal(err)
	}
	hosttest.NoError(t, os.RemoveAll(m.root.Path("/etc/sub")))
	if _, err := m.open().Undo(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(m.root.Path("/etc/sub/dir/gone")); err != nil || string(text) != "old\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestUndoFailed: an undo that fails changes nothing, and its entry stays done.
func TestUndoFailed(t *testing.T) {
	m := lay(t)
	if _, err := m.open().Apply(t.Context(), m.work()); err != nil {
		t.Fatal(err)
	}
	// A folder has the name of a temporary file.
	after := m.state()
	hosttest.NoError(t, os.MkdirAll(m.root.Path("/etc/.gpustack-grub~/full"), 0o755))
	if _, err := m.open().Undo(t.Context(), 0); err == nil {
		t.Error("no error")
	}
	hosttest.Equal(t, after, m.state())
	if got := m.statuses(); len(got) != 1 || got[0] != change.Done {
		t.Errorf("%v", got)
	}
}
