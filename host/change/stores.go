package change

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"gpustack/host"
)

// UserStore returns the store for changes that do not need root: the machine's own store for root,
// otherwise a folder of the user (XDG Base Directory Specification 0.8, XDG_STATE_HOME).
func UserStore() (Store, error) {
	root, err := host.NewRoot("/")
	if err != nil || os.Geteuid() == 0 {
		return Machine(root), err
	}
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // such a value is invalid and is ignored
		home := os.Getenv("HOME")
		if !filepath.IsAbs(home) {
			return Store{}, errNoHome
		}
		dir = filepath.Join(home, ".local/state")
	}
	return Store{Root: root, Dir: filepath.Join(dir, "gpustack")}, nil
}

// errNoHome means that a user other than root has no folder to record changes in.
var errNoHome = host.WithHint(errors.New("cannot determine where to record changes: neither XDG_STATE_HOME nor HOME is set"),
	"set HOME or XDG_STATE_HOME to a folder of the user")

// Stores returns the stores that history and undo read: the user's, and the machine's. With
// --root, that of the tree alone.
func Stores(dir string) ([]Store, error) {
	root, err := host.NewRoot(dir)
	if err != nil {
		return nil, err
	}
	return storesOf(root)
}

// storesOf is stores for the machine below root.
func storesOf(root host.Root) ([]Store, error) {
	machine := Machine(root)
	if !root.IsMachine() || os.Geteuid() == 0 {
		return []Store{machine}, nil
	}
	own, err := UserStore()
	if errors.Is(err, errNoHome) {
		return []Store{machine}, nil // such a user has recorded nothing
	}
	if err != nil {
		return nil, err
	}
	// The machine's journal belongs to root; a user who cannot read it sees their own.
	if _, err := machine.List(); errors.Is(err, fs.ErrPermission) {
		if entries, ownErr := own.List(); ownErr != nil || len(entries) > 0 {
			return []Store{own}, nil
		}
	}
	return []Store{own, machine}, nil
}
