package hosttest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Program writes a program into a folder. No fork may inherit the file while it is open for
// writing: the program could not be started then ("text file busy").
func Program(t testing.TB, dir, name, script string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// Engine writes a program into a folder that plays podman, docker or nerdctl: it has the image
// localhost/rdma:1 alone, notes its arguments for [Asked], and starts no container but does what
// the shell code run says.
func Engine(t testing.TB, dir, name, run string) {
	t.Helper()
	Program(t, dir, name, `#!/bin/sh
echo "$*" >>$0.asked
case "$1 $*" in
image*" localhost/rdma:1") echo id; exit 0 ;;
image*broken) echo "Error: database is locked" >&2; exit 125 ;;
image*) echo "Error: inspecting object: $5: image not known" >&2; exit 125 ;;
rm*) exit 0 ;;
esac
`+run)
}

// Asked returns the lines of arguments with which a program of [Engine] was started, "" if it was
// not.
func Asked(t testing.TB, dir, engine string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, engine+".asked"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}
