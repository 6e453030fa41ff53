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
	var err error
	j.lock, err = lockDir(j.root, unix.LOCK_EX)
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
// applying is gone.
func (j *Journal) Recover(ctx context.Context) ([]Entry, error) {
	entries, err := List(j.root)
	if err != nil {
		return nil, err
	}
	var dealt []Entry
	for i := range entries {
		e := &entries[i]
		if e.Kind != KindFiles {
			continue
		}
		switch e.Status {
		case Applying:
			err = j.rollBack(e)
		case Rebuilding:
			err = j.build(ctx, e, Done)
		case Undoing:
			err = j.putBack(ctx, e)
		case Unbuilding:
			err = j.build(ctx, e, Undone)
		default:
			continue
		}
		if err != nil {
			return dealt, errors.Join(fmt.Errorf("entry %d: %w", e.ID, ErrUnfinished), err)
		}
		dealt = append(dealt, *e)
	}
	return dealt, nil
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

// Apply makes the changes that are pending, recorded, and runs the programs. Should a change fail, those before it are taken back. Should a program
// fail, the changes stay, and the entry stays at rebuilding: the next run goes on
// from there, or it is undone.
func (j *Journal) Apply(ctx context.Context, work Work) (Entry, error) {
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
	if err := work.Files.Apply(j.root); err != nil {
		if errors.Is(err, edit.ErrTorn) {
			return e, err // the next run tries again, from the journal
		}
		return Entry{}, errors.Join(err, j.Forget(e))
	}
	return e, j.build(ctx, &e, Done)
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

// Undo takes entry id back, or the latest that is not undone yet where id is 0.
func (j *Journal) Undo(ctx context.Context, id int) (Entry, error) {
	entries, err := List(j.root)
	if err != nil {
		return Entry{}, err
	}
	e, err := Pick(entries, id)
	if err != nil {
		return Entry{}, err
	}
	// All of it or none: every file must be as it was left.
	if _, err := e.Back(j.root); err != nil {
		return e, err
	}
	return e, j.putBack(ctx, &e)
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

func (j *Journal) putBack(ctx context.Context, e *Entry) error {
	e.Status = Undoing
	if err := j.write(*e); err != nil {
		return err
	}
	if err := j.restore(e); err != nil {
		return err
	}
	return j.build(ctx, e, Undone)
}

// rollBack takes back an entry that never came to be, and forgets it.
func (j *Journal) rollBack(e *Entry) error {
	if err := j.restore(e); err != nil {
		return fmt.Errorf("entry %d could not be rolled back: %w", e.ID, err)
	}
	return j.Forget(*e)
}

// restore puts the files of an entry back, the last first.
func (j *Journal) restore(e *Entry) error {
	plan, err := e.Back(j.root)
	if err != nil {
		return err
	}
	for i, c := range plan {
		f := e.Files[len(e.Files)-1-i]
		err := errors.Join(edit.RemoveLeftover(j.root, f.Name), c.Apply(j.root))
		if err == nil {
			err = edit.RemoveDirs(j.root, f.Dirs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// build runs the programs of an entry, and ends it.
func (j *Journal) build(ctx context.Context, e *Entry, end Status) error {
	if len(e.Programs) > 0 {
		e.Status = Rebuilding
		if end == Undone {
			e.Status = Unbuilding
		}
		if err := j.write(*e); err != nil {
			return err
		}
		programs := e.Programs
		if j.Current != nil {
			var err error
			if programs, err = j.Current(programs); err != nil {
				return err
			}
		}
		for _, argv := range programs {
			if err := j.run(ctx, argv); err != nil {
				return err
			}
		}
	}
	ended := j.now().UTC().Round(time.Second)
	e.Status, e.Ended = end, &ended
	return j.write(*e)
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
