package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/edit"
)

// Errors of the journal.
var (
	ErrLocked  = errors.New("another gpustack is changing this machine")
	ErrNoEntry = errors.New("no such entry")
	ErrUndone  = errors.New("is undone already")
	// ErrUnfinished goes with what stands in the way.
	ErrUnfinished = errors.New("was cut off, and cannot be put right yet")
	// ErrNotRolledBack goes with what stands in the way.
	ErrNotRolledBack = errors.New("could not be rolled back")
)

// RunProgram runs a program on the machine that the files belong to.
type RunProgram func(ctx context.Context, argv []string) error

// Journal is a machine's journal, open for writing and locked against others.
type Journal struct {
	root host.Root
	run  RunProgram
	// Current, if it is set, tells which programs an entry's are by now: those for one
	// kernel go with it, and others' come.
	Current func(recorded [][]string) ([][]string, error)

	lock *os.File
	now  func() time.Time
	made []string // folders made to hold it
}

// Open locks the journal, making it where there is none. From here on, all that
// the process does to files it does on one thread, so that a test can stop it at
// each step.
func Open(root host.Root, run RunProgram) (*Journal, error) {
	runtime.LockOSThread()
	j := &Journal{root: root, run: run, now: time.Now}
	if err := j.open(); err != nil {
		j.Close() //nolint:errcheck // the first error tells
		return nil, err
	}
	return j, nil
}

func (j *Journal) open() error {
	for _, dir := range []string{"/var", "/var/lib", Dir, entriesDir} {
		mode := fs.FileMode(0o755)
		if dir == Dir || dir == entriesDir {
			mode = 0o700
		}
		place, err := j.root.Resolve(dir)
		if err == nil {
			err = os.Mkdir(place, mode)
		}
		switch {
		case err == nil:
			j.made = append(j.made, dir)
		case !errors.Is(err, fs.ErrExist):
			return fmt.Errorf("%s: %w", dir, host.Cause(err))
		}
	}
	// A command that only reads holds the lock for a moment, shared.
	var err error
	for range 5 {
		if j.lock, err = lockDir(j.root, unix.LOCK_EX); !errors.Is(err, ErrLocked) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// lockDir locks the folder of the entries, shared or not, until the file is closed.
func lockDir(root host.Root, how int) (*os.File, error) {
	place, err := root.Resolve(entriesDir)
	var dir *os.File
	if err == nil {
		dir, err = os.OpenFile(place, os.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", entriesDir, host.Cause(err))
	}
	err = unix.Flock(int(dir.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err == nil {
		// Between making the folder and locking it, another may have removed it.
		var here, locked unix.Stat_t
		if err = errors.Join(unix.Stat(place, &here), unix.Fstat(int(dir.Fd()), &locked)); err == nil && here.Ino != locked.Ino {
			err = ErrLocked
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", entriesDir, host.Cause(err)), dir.Close())
	}
	return dir, nil
}

// Close lets go of the lock. A journal that was made for nothing goes too.
func (j *Journal) Close() error {
	defer runtime.UnlockOSThread()
	if names, err := j.root.ReadDir(entriesDir); err == nil && len(names) == 0 {
		// Only made folders, and only empty ones, go.
		if err := edit.RemoveDirs(j.root, j.made); err != nil {
			return errors.Join(err, j.unlock())
		}
	}
	return j.unlock()
}

func (j *Journal) unlock() error {
	if j.lock == nil {
		return nil
	}
	return j.lock.Close()
}

// Recover puts right what killed runs left of files: those that were being changed go
// back, what was on its way back gets there, and programs that were to run are
// run. It returns the entries it dealt with, as they are now; one that was
// applying is gone. When ctx ends, the running step ends first, and the entry stays as it is
// for the next run.
func (j *Journal) Recover(ctx context.Context) ([]Entry, error) {
	entries, err := List(j.root)
	if err != nil {
		return nil, err
	}
	var dealt []Entry
	for i := range entries {
		e := &entries[i]
		if e.Kind != KindFiles || e.Status == Done || e.Status == Undone {
			continue
		}
		switch err = j.recover(ctx, e); {
		case interrupted(ctx, err):
			return dealt, fmt.Errorf("%w, the next run recovers entry %d", err, e.ID)
		case err != nil:
			return dealt, errors.Join(fmt.Errorf("entry %d: %w", e.ID, ErrUnfinished), err)
		}
		dealt = append(dealt, *e)
	}
	return dealt, nil
}

func (j *Journal) recover(ctx context.Context, e *Entry) error {
	switch e.Status {
	case Applying:
		return j.rollBack(ctx, e)
	case Undoing:
		if err := j.restore(ctx, e); err != nil {
			return err
		}
	}
	end := Done
	if e.Status == Undoing || e.Status == Unbuilding {
		end = Undone
	}
	if _, err := j.build(ctx, e, end); err != nil {
		return err
	}
	return j.finish(e, end)
}

// interrupted tells whether an error says that ctx has ended, and that nothing is torn.
func interrupted(ctx context.Context, err error) bool {
	cause := context.Cause(ctx)
	return cause != nil && errors.Is(err, cause) && !errors.Is(err, edit.ErrTorn)
}

// Work is what Apply does: changes, and the programs that make what follows from
// them, which are run, or left to somebody else.
type Work struct {
	Command  string // as it is to be called in the journal
	Files    edit.Plan
	Programs [][]string
	Left     [][]string
	Restart  []string
}

// Apply makes the changes that are pending, recorded, and runs the programs. Should a change
// fail, those before it are rolled back. Should a program fail, the changes stay, and the entry
// stays at rebuilding: the next run goes on from there, or it is undone.
//
// When ctx ends, the running step, a file or a program, ends first. Then the files are rolled
// back, and programs that had begun run again over them. No entry is left, and the error wraps
// the cause of ctx. Where that fails, the entry is left for the next run to recover.
func (j *Journal) Apply(ctx context.Context, work Work) (Entry, error) {
	if cause := context.Cause(ctx); cause != nil {
		return Entry{}, fmt.Errorf("%w, nothing was changed", cause)
	}
	entries, err := List(j.root)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Schema: schema, ID: 1, Kind: KindFiles, Command: work.Command, Status: Applying,
		Started: j.now().UTC().Round(time.Second), Files: []File{}, Programs: work.Programs, Left: work.Left, Restart: work.Restart}
	if len(entries) > 0 {
		e.ID = entries[len(entries)-1].ID + 1
	}
	made := map[string]bool{}
	for _, c := range work.Files.Pending() {
		f := record(c)
		f.Dirs = slices.DeleteFunc(slices.Clone(f.Dirs), func(d string) bool { return made[d] })
		for _, dir := range f.Dirs {
			made[dir] = true
		}
		e.Files = append(e.Files, f)
	}
	if err := j.write(e); err != nil {
		return Entry{}, errors.Join(err, j.Forget(e))
	}
	if err := work.Files.Apply(ctx, j.root); err != nil {
		if errors.Is(err, edit.ErrTorn) {
			return e, err // the next run tries again, from the journal
		}
		if interrupted(ctx, err) {
			err = fmt.Errorf("%w, all files were rolled back", err)
		}
		return Entry{}, errors.Join(err, j.Forget(e))
	}
	begun, err := j.build(ctx, &e, Done)
	if context.Cause(ctx) != nil {
		return j.abandon(ctx, e, begun, err)
	}
	if err != nil {
		return e, err
	}
	return e, j.finish(&e, Done)
}

// abandon rolls back an entry whose files are changed, and runs again the programs that had
// begun. failed is their error, if there was one beside the end of ctx.
func (j *Journal) abandon(ctx context.Context, e Entry, begun [][]string, failed error) (Entry, error) {
	cause := context.Cause(ctx)
	ctx = context.WithoutCancel(ctx)
	if errors.Is(failed, cause) {
		failed = nil
	}
	outcome := "all files were rolled back"
	err := func() error {
		if e.Status == Applying {
			return j.rollBack(ctx, &e)
		}
		if len(begun) > 0 {
			outcome += ", and these programs were run again: " + commandLines(begun)
		}
		// If this run is killed now, the next one finishes the way back.
		if err := j.setStatus(&e, Undoing); err != nil {
			return err
		}
		if err := j.restore(ctx, &e); err != nil {
			return err
		}
		if err := j.setStatus(&e, Unbuilding); err != nil {
			return err
		}
		if err := j.runAll(ctx, begun); err != nil {
			return err
		}
		return j.Forget(e)
	}()
	if err != nil {
		return e, errors.Join(failed, cause, fmt.Errorf("entry %d: %w: %w", e.ID, ErrNotRolledBack, err))
	}
	return Entry{}, errors.Join(failed, fmt.Errorf("%w, %s", cause, outcome))
}

func commandLines(programs [][]string) string {
	var lines []string
	for _, argv := range programs {
		lines = append(lines, strings.Join(argv, " "))
	}
	return strings.Join(lines, ", ")
}

func (j *Journal) runAll(ctx context.Context, programs [][]string) error {
	for _, argv := range programs {
		if err := j.run(ctx, argv); err != nil {
			return err
		}
	}
	return nil
}

// Begin records a change of rows or drivers before the first is made. detail is what it
// takes to take them back.
func (j *Journal) Begin(kind, command string, detail any) (Entry, error) {
	entries, err := List(j.root)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Schema: schema, ID: 1, Kind: kind, Command: command, Status: Applying, Started: j.now().UTC().Round(time.Second), Files: []File{}}
	if len(entries) > 0 {
		e.ID = entries[len(entries)-1].ID + 1
	}
	return j.Update(e, Applying, detail)
}

// Update records how far a change of rows or drivers has come.
func (j *Journal) Update(e Entry, status Status, detail any) (Entry, error) {
	text, err := json.Marshal(detail)
	if err != nil {
		return e, err
	}
	if e.Status = status; e.Kind == KindDrivers {
		e.Drivers = text
	} else {
		e.Rows = text
	}
	if status == Done || status == Undone {
		ended := j.now().UTC().Round(time.Second)
		e.Ended = &ended
	}
	return e, j.write(e)
}

// Revert writes an entry as it was before a change of its status that was rolled back.
func (j *Journal) Revert(was Entry) error {
	return j.write(was)
}

// Undo takes entry id back, or the latest that is not undone yet where id is 0.
//
// When ctx ends, the running step ends first. Then the files are changed again, and programs
// that had begun run again over them: the entry is as it was, and the error wraps the cause of
// ctx.
func (j *Journal) Undo(ctx context.Context, id int) (Entry, error) {
	if cause := context.Cause(ctx); cause != nil {
		return Entry{}, fmt.Errorf("%w, nothing was changed", cause)
	}
	entries, err := List(j.root)
	if err != nil {
		return Entry{}, err
	}
	e, err := Pick(entries, id)
	if err != nil {
		return Entry{}, err
	}
	// All of it or none: every file must be as it was left.
	back, err := e.Back(j.root)
	if err != nil {
		return e, err
	}
	was := e
	if err := j.setStatus(&e, Undoing); err != nil {
		return e, err
	}
	if err := j.restore(ctx, &e); interrupted(ctx, err) {
		return was, errors.Join(fmt.Errorf("%w, entry %d stays as it was", err, was.ID), j.write(was))
	} else if err != nil {
		return e, err
	}
	begun, err := j.build(ctx, &e, Undone)
	if context.Cause(ctx) != nil {
		return j.redo(ctx, was, back, begun, err)
	}
	if err != nil {
		return e, err
	}
	return e, j.finish(&e, Undone)
}

// redo changes the files of an entry again that undoing it has put back, and runs again the
// programs that had begun. failed is their error, if there was one beside the end of ctx.
func (j *Journal) redo(ctx context.Context, was Entry, back edit.Plan, begun [][]string, failed error) (Entry, error) {
	cause := context.Cause(ctx)
	ctx = context.WithoutCancel(ctx)
	if errors.Is(failed, cause) {
		failed = nil
	}
	var plan edit.Plan
	for i, c := range slices.Backward(back) {
		c = c.Inverse()
		c.Dirs = was.Files[len(was.Files)-1-i].Dirs
		plan = append(plan, c)
	}
	outcome := fmt.Sprintf("entry %d stays as it was", was.ID)
	e := was
	err := func() error {
		// If this run is killed now, the next one finishes the undo.
		if err := j.setStatus(&e, Undoing); err != nil {
			return err
		}
		if err := plan.Apply(ctx, j.root); err != nil {
			return err
		}
		// An undo that was cut off before had not run them over these files.
		if was.Status == Done && len(begun) > 0 {
			outcome += ", and these programs were run again: " + commandLines(begun)
			if err := j.setStatus(&e, Rebuilding); err != nil {
				return err
			}
			if err := j.runAll(ctx, begun); err != nil {
				return err
			}
		}
		return j.write(was)
	}()
	if err != nil {
		return e, errors.Join(failed, cause, fmt.Errorf("entry %d: %w: %w", e.ID, ErrNotRolledBack, err))
	}
	return was, errors.Join(failed, fmt.Errorf("%w, %s", cause, outcome))
}

// Pick returns entry id, or the latest that is not undone yet where id is 0.
func Pick(entries []Entry, id int) (Entry, error) {
	for _, e := range slices.Backward(entries) {
		switch {
		case id == 0 && e.Status != Undone:
			return e, nil
		case id == e.ID && e.Status == Undone:
			return Entry{}, fmt.Errorf("entry %d: %w", id, ErrUndone)
		case id == e.ID:
			return e, nil
		}
	}
	if id == 0 {
		return Entry{}, fmt.Errorf("nothing to undo: %w", ErrNoEntry)
	}
	return Entry{}, fmt.Errorf("entry %d: %w", id, ErrNoEntry)
}

// Back is the plan that takes an entry back. It names every file that stands in
// the way.
func (e Entry) Back(root host.Root) (edit.Plan, error) {
	var plan edit.Plan
	var errs []error
	for _, f := range slices.Backward(e.Files) {
		c, err := f.back(root)
		errs = append(errs, err)
		plan = append(plan, c)
	}
	return plan, errors.Join(errs...)
}

// rollBack takes back an entry that never came to be, and forgets it.
func (j *Journal) rollBack(ctx context.Context, e *Entry) error {
	if err := j.restore(ctx, e); err != nil {
		return err
	}
	return j.Forget(*e)
}

// restore puts the files of an entry back, the last first: all of them, or none if ctx ends.
func (j *Journal) restore(ctx context.Context, e *Entry) error {
	plan, err := e.Back(j.root)
	if err != nil {
		return err
	}
	for _, f := range e.Files {
		if err := edit.RemoveLeftover(j.root, f.Name); err != nil {
			return err
		}
	}
	if err := plan.Apply(ctx, j.root); err != nil {
		return err
	}
	for _, f := range slices.Backward(e.Files) {
		if err := edit.RemoveDirs(j.root, f.Dirs); err != nil {
			return err
		}
	}
	return nil
}

// build runs the programs of an entry on its way to an end. It returns those that it has begun,
// the one that has failed among them, and the cause of ctx where that has kept others from
// being started.
func (j *Journal) build(ctx context.Context, e *Entry, end Status) (begun [][]string, err error) {
	if cause := context.Cause(ctx); cause != nil || len(e.Programs) == 0 {
		return nil, cause
	}
	status := Rebuilding
	if end == Undone {
		status = Unbuilding
	}
	if err := j.setStatus(e, status); err != nil {
		return nil, err
	}
	programs := e.Programs
	if j.Current != nil {
		if programs, err = j.Current(programs); err != nil {
			return nil, err
		}
	}
	for i, argv := range programs {
		if cause := context.Cause(ctx); cause != nil {
			return programs[:i], cause
		}
		if err := j.run(ctx, argv); err != nil {
			return programs[:i+1], err
		}
	}
	return programs, nil
}

// setStatus records how far an entry has come.
func (j *Journal) setStatus(e *Entry, status Status) error {
	e.Status = status
	return j.write(*e)
}

// finish records that an entry has come to its end.
func (j *Journal) finish(e *Entry, end Status) error {
	ended := j.now().UTC().Round(time.Second)
	e.Ended = &ended
	return j.setStatus(e, end)
}

func (j *Journal) write(e Entry) error {
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return edit.Write(j.root, e.name(), append(text, '\n'), 0o600)
}

// Forget removes an entry of which nothing is left.
func (j *Journal) Forget(e Entry) error {
	if err := edit.RemoveLeftover(j.root, e.name()); err != nil {
		return err
	}
	place, err := j.root.Resolve(e.name())
	if err == nil {
		err = os.Remove(place)
	}
	if err != nil && !host.IsAbsent(err) {
		return fmt.Errorf("%s: %w", e.name(), host.Cause(err))
	}
	return nil
}
