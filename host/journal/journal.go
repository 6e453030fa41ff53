package journal

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/edit"
)

// MachineDir is the folder with everything that gpustack records about a machine.
const MachineDir = "/var/lib/gpustack"

// Store is a folder that contains a journal.
type Store struct {
	Root host.Root
	Dir  string // below the root; the entries are in a subfolder of it
}

// Machine returns the store of the machine below root.
func Machine(root host.Root) Store {
	return Store{root, MachineDir}
}

// Path returns the path of the folder with the entries, below the root.
func (s Store) Path() string {
	return path.Join(s.Dir, "journal")
}

// failed returns an error with the file or folder that it is of. A folder that belongs to another
// user is most often that of the user who has called su(1) or sudo(8).
func (s Store) failed(name string, err error) error {
	err = host.OfFile(name, err)
	if s.Dir != MachineDir && errors.Is(err, fs.ErrPermission) {
		return host.WithHint(err, "set XDG_STATE_HOME or HOME to a folder that this user may write to: changes are recorded below it")
	}
	return err
}

// Errors of the journal.
var (
	ErrLocked  = host.WithHint(host.WithCode(errors.New("another gpustack is changing this machine"), host.CodeLocked, ""), "wait until it has ended")
	ErrNoEntry = host.WithHint(errors.New("no such entry"), host.Textf("'%s' lists the entries", host.NewCommand("history")))
	ErrUndone  = host.WithHint(errors.New("is already undone"), host.Textf("'%s' lists the entries", host.NewCommand("history")))
)

// List returns the entries, oldest first. It needs no lock.
func (s Store) List() ([]Entry, error) {
	dir := s.Path()
	names, err := s.Root.ReadDir(dir)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, s.failed(dir, err)
	}
	var entries []Entry
	for _, name := range names {
		number, ok := strings.CutSuffix(name, ".json")
		id, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue // left by a run that was killed
		}
		data, err := s.Root.ReadFile(path.Join(dir, name))
		if host.IsAbsent(err) {
			continue // a run has forgotten the entry since
		}
		if err == nil {
			var e Entry
			e, err = parseEntry(path.Join(dir, name), data, id)
			entries = append(entries, e)
			if err != nil && host.HintOf(err) == nil {
				return nil, host.WithHint(s.failed(path.Join(dir, name), err),
					"restore the file from a backup, or move it out of the folder: then the other entries can be undone, and what this one recorded cannot")
			}
		}
		if err != nil {
			return nil, s.failed(path.Join(dir, name), err)
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return a.ID - b.ID })
	return entries, nil
}

// Seen is what one look at a journal has found.
type Seen struct {
	Entries []Entry // oldest first
	Err     error   // of reading the entries
	// Open are the entries whose run was not completed. OpenErr is ErrLocked if a running gpustack may
	// be working on them.
	Open    []Entry
	OpenErr error
}

// Unfinished returns the entries whose run was not completed, oldest first. With ErrLocked it
// returns those that a running gpustack may be working on.
func (s Seen) Unfinished() ([]Entry, error) {
	return s.Open, cmp.Or(s.Err, s.OpenErr)
}

// Observe lists the entries and finds those whose run was not completed. It needs no lock.
func (s Store) Observe() Seen {
	seen := s.look()
	if seen.Err != nil || len(seen.Open) == 0 {
		return seen
	}
	// A run that tries to lock the journal at this moment fails, and tries again.
	lock, err := s.lockDir(unix.LOCK_SH)
	switch first := seen.Open[0]; {
	case errors.Is(err, ErrLocked):
		seen.OpenErr = fmt.Errorf("entry %d (%s): %w", first.ID, first.Command, ErrLocked)
		return seen
	case host.IsAbsent(err): // the run has forgotten its entry, and removed the folder
		return Seen{}
	case err != nil:
		seen.OpenErr = err
		return seen
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	return s.look()    // the run may have ended in between
}

func (s Store) look() Seen {
	entries, err := s.List()
	open := slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return !e.IsOpen() })
	return Seen{Entries: entries, Err: err, Open: open}
}

// Open returns the entries whose run was not completed, as [Seen.Unfinished] does.
func (s Store) Open() ([]Entry, error) {
	return s.Observe().Unfinished()
}

// Journal is a journal that is open for writing and locked against others.
type Journal struct {
	Store
	lock *os.File
	now  func() time.Time
	made []string // folders created for it
}

// Lock locks the journal and creates it if necessary.
//
// Errors: ErrLocked.
func (s Store) Lock() (*Journal, error) {
	j := &Journal{Store: s, now: time.Now}
	if err := j.begin(); err != nil {
		j.Close() //nolint:errcheck // the first error is returned
		return nil, err
	}
	return j, nil
}

// begin locks the folder of the entries and creates it if necessary. It tries again while a
// read-only command holds a shared lock for a moment, and if another run removes the empty folder
// that it has created.
func (j *Journal) begin() (err error) {
	for range 5 {
		if err = j.makeDirs(); err == nil {
			j.lock, err = j.lockDir(unix.LOCK_EX)
		}
		if !errors.Is(err, ErrLocked) && !host.IsAbsent(err) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func (j *Journal) makeDirs() error {
	for _, dir := range ancestors(j.Path()) {
		mode := fs.FileMode(0o700)
		if dir == "/var" || dir == "/var/lib" {
			mode = 0o755
		}
		place, err := j.Root.Resolve(dir)
		if err == nil {
			err = os.Mkdir(place, mode)
		}
		switch {
		case err == nil:
			j.made = append(j.made, dir)
		case errors.Is(err, fs.ErrExist):
		default:
			// Above the journal's own folders, a directory that exists may not be writable.
			if ok, existsErr := j.Root.Exists(dir); existsErr != nil || !ok {
				return j.failed(dir, err)
			}
		}
	}
	return nil
}

// ancestors returns a folder and its parents, outermost first, without the root.
func ancestors(dir string) (dirs []string) {
	for ; dir != "/" && dir != "."; dir = path.Dir(dir) {
		dirs = append([]string{dir}, dirs...)
	}
	return dirs
}

// lockDir locks the folder of the entries, shared or exclusively, until the file is closed.
func (s Store) lockDir(how int) (*os.File, error) {
	place, err := s.Root.Resolve(s.Path())
	var dir *os.File
	if err == nil {
		dir, err = os.OpenFile(place, os.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return nil, s.failed(s.Path(), err)
	}
	err = unix.Flock(int(dir.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err == nil {
		// Another run may have removed the folder between its creation and the lock.
		var here, locked unix.Stat_t
		if err = errors.Join(unix.Stat(place, &here), unix.Fstat(int(dir.Fd()), &locked)); err == nil && here.Ino != locked.Ino {
			err = ErrLocked
		}
	}
	if err != nil {
		return nil, errors.Join(s.failed(s.Path(), err), dir.Close())
	}
	return dir, nil
}

// Close releases the lock. It removes folders that Lock created and nothing was written to.
func (j *Journal) Close() error {
	var err error
	if names, readErr := j.Root.ReadDir(j.Path()); readErr == nil && len(names) == 0 {
		err = edit.RemoveDirs(j.Root, j.made)
	}
	if j.lock == nil {
		return err
	}
	return errors.Join(err, j.lock.Close())
}

// Begin sets the number and the time of an entry and writes it. It must be called before anything
// is changed.
func (j *Journal) Begin(e *Entry) error {
	entries, err := j.List()
	if err != nil {
		return err
	}
	e.Schema, e.Kind, e.ID, e.Status, e.Started = host.Schema, kind, 1, Applying, j.time()
	if len(entries) > 0 {
		e.ID = entries[len(entries)-1].ID + 1
	}
	if e.Files == nil {
		e.Files = []File{}
	}
	if err := j.Write(*e); err != nil {
		return errors.Join(err, j.Forget(*e))
	}
	return nil
}

// SetStatus sets and writes the status of an entry.
func (j *Journal) SetStatus(e *Entry, status Status) error {
	is := *e
	is.Status = status
	if !is.IsOpen() {
		is.Ended = new(j.time())
	}
	if err := j.Write(is); err != nil {
		return err
	}
	*e = is
	return nil
}

func (j *Journal) time() time.Time {
	return j.now().UTC().Round(time.Second)
}

// Write writes an entry unchanged.
func (j *Journal) Write(e Entry) error {
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return edit.Write(j.Root, j.name(e), append(text, '\n'), 0o600)
}

// Forget removes an entry whose change has left nothing.
func (j *Journal) Forget(e Entry) error {
	name := j.name(e)
	if err := edit.RemoveLeftover(j.Root, name); err != nil {
		return err
	}
	return edit.RemoveFile(j.Root, name)
}

func (j *Journal) name(e Entry) string {
	return fmt.Sprintf("%s/%04d.json", j.Path(), e.ID)
}
