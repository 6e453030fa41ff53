package service

import (
	_ "embed"
	"errors"
	"os"
	"path/filepath"
)

var (
	//go:embed wsgi.py
	wsgi []byte
	//go:embed stacks.py
	stacks []byte
)

// WriteWSGI writes wsgi.py into a folder: it serves a project of OpenStack that has no server of
// its own. Its arguments are MODULE:FACTORY, or MODULE:application, and a port. Beside it lies
// stacks.py: a program that imports it prints its stacks when it gets SIGUSR1.
func WriteWSGI(dir string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "wsgi.py"), wsgi, 0o600),
		os.WriteFile(filepath.Join(dir, "stacks.py"), stacks, 0o600),
	)
}
