package service

import (
	_ "embed"
	"os"
	"path/filepath"
)

//go:embed wsgi.py
var wsgi []byte

// WriteWSGI writes wsgi.py into a folder: it serves a project of OpenStack that has no server of
// its own. Its arguments are MODULE:FACTORY, or MODULE:application, and a port.
func WriteWSGI(dir string) error {
	return os.WriteFile(filepath.Join(dir, "wsgi.py"), wsgi, 0o600)
}
