package snapshot_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/snapshot"
)

func record() *snapshot.Tree {
	var t snapshot.Tree
	t.Dir("list", []string{"a", "b", "empty"}, nil)
	t.File("list/a", []byte("text\n"), nil)
	t.Link("list/b", "../real/with space", nil)
	t.File("odd/no-line-end", []byte("x"), nil)
	t.File("odd/private", []byte("x\n"), nil)
	t.Mode("odd/private", 0o640)
	t.File("odd/bytes", []byte{0, 1, 2, 0xff, '\n'}, nil)
	t.File("odd/escape", []byte("\x1b[31m\n"), nil)
	t.File("odd/marker", []byte("-- list/a --\n"), nil)
	t.File("odd/empty", nil, nil)
	t.File("odd/long", bytes.Repeat([]byte("long"), 100), nil)
	t.File("closed", nil, errors.New("permission denied"))
	t.Dir("shut", nil, errors.New("permission denied"))
	t.Dir("folder", nil, nil)
	return &t
}

// look lists the tree below dir: a line for each file, link and directory.
func look(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		b.WriteString(strings.TrimPrefix(path, dir+"/") + " " + info.Mode().String())
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			b.WriteString(" -> " + target)
			if err != nil {
				return err
			}
		case info.Mode().IsRegular() && info.Mode().Perm() != 0:
			data, err := os.ReadFile(path)
			b.WriteString(" " + string(data))
			if err != nil {
				return err
			}
		}
		b.WriteString("\n")
		return nil
	})
	hosttest.NoError(t, err)
	return b.String()
}

func unpack(t *testing.T, tree *snapshot.Tree) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "new")
	hosttest.NoError(t, tree.Unpack(dir))
	return look(t, dir)
}

func TestArchivesGiveTheTreeBack(t *testing.T) {
	want := unpack(t, record())
	for _, part := range []string{"list/a -rw-r--r-- text\n", "list/b Lrwxrwxrwx -> ../real/with space\n", "list/empty d",
		"closed Lrwxrwxrwx -> closed\n", "shut ----------\n", "odd/no-line-end -rw-r--r-- x\n", "odd/private -rw-r----- x\n"} {
		hosttest.Contains(t, part, want)
	}
	for name, format := range map[string]snapshot.Format{"txtar": snapshot.Txtar, "tar.gz": snapshot.TarGz} {
		t.Run(name, func(t *testing.T) {
			var first, second bytes.Buffer
			hosttest.NoError(t, record().Write(&first, format))
			if err := record().Write(&second, format); err != nil || first.String() != second.String() {
				t.Errorf("the same tree gives other bytes, %v", err)
			}
			tree, err := snapshot.Read(&first, format)
			hosttest.NoError(t, err)
			hosttest.Equal(t, want, unpack(t, tree))
		})
	}
}

func TestRemove(t *testing.T) {
	tree := record()
	tree.Remove("list/a", "absent")
	if got := unpack(t, tree); strings.Contains(got, "\nlist/a ") {
		t.Errorf("still there:\n%s", got)
	}
}

func TestReadRefuses(t *testing.T) {
	packed := func(headers ...tar.Header) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		for _, h := range headers {
			hosttest.NoError(t, w.WriteHeader(&h))
		}
		w.Close()
		z.Close()
		return b.String()
	}
	for _, test := range []struct {
		name    string
		format  snapshot.Format
		archive string
		want    string
	}{
		{"nothing", snapshot.Txtar, "", "not a txtar archive: contains no files"},
		{"prose", snapshot.Txtar, "once upon a time\n", `line 1: must be mkdir, symlink, chmod, base64 or a remark with #: "once upon a time"`},
		{"another command", snapshot.Txtar, "# x\nexec rm -rf /\n-- a --\n", `line 2: must be`},
		{"a link without target", snapshot.Txtar, "symlink a\n", `line 1: symbolic link without target`},
		{"a carriage return in a target", snapshot.Txtar, "symlink a -> b\rc\n", `line 1: symbolic link whose target has a carriage return: "symlink a -> b\rc"`},
		{"an absolute name", snapshot.Txtar, "-- /etc/passwd --\n", `not a relative path below a root: "/etc/passwd"`},
		{"a climbing name", snapshot.Txtar, "-- a/../../b --\n", `not a relative path below a root`},
		{"a climbing folder", snapshot.Txtar, "mkdir ..\n", `not a relative path below a root`},
		{"wrong base64", snapshot.Txtar, "base64 a\n-- a --\n!\n", `a: illegal base64`},
		{"no gzip", snapshot.TarGz, "plain", "unexpected EOF"},
		{"a climbing name in a tar", snapshot.TarGz, packed(tar.Header{Name: "../b", Typeflag: tar.TypeReg}), `not a relative path below a root: "../b"`},
		{"an absolute name in a tar", snapshot.TarGz, packed(tar.Header{Name: "/b", Typeflag: tar.TypeReg}), `not a relative path below a root: "/b"`},
		{"a device", snapshot.TarGz, packed(tar.Header{Name: "b", Typeflag: tar.TypeBlock}), "b: not a file, directory or symbolic link"},
		{"cut short", snapshot.TarGz, packed(tar.Header{Name: "b", Typeflag: tar.TypeReg})[:60], "unexpected EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := snapshot.Read(strings.NewReader(test.archive), test.format)
			hosttest.ContainsIn(t, "error", test.want, fmt.Sprint(err))
		})
	}
}

func TestUnpackStaysInItsFolder(t *testing.T) {
	outside := t.TempDir()
	tree, err := snapshot.Read(strings.NewReader("symlink out -> "+outside+"\n-- out/file --\n"), snapshot.Txtar)
	hosttest.NoError(t, err)
	if err := tree.Unpack(filepath.Join(t.TempDir(), "new")); err == nil {
		t.Error("a link over a folder is no error")
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("wrote %v outside", left)
	}
}

func TestUnpackRefusesAFolderInUse(t *testing.T) {
	dir := t.TempDir()
	hosttest.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	hosttest.ContainsIn(t, "error", "not empty", fmt.Sprint(record().Unpack(dir)))
	if got := look(t, dir); got != "mine -rw-------  \n" && got != "mine -rw------- \n" {
		t.Errorf("left\n%s", got)
	}
}

func TestWriteRefusesNamesThatNoArchiveHolds(t *testing.T) {
	for _, name := range []string{"a\nb", "/a", "../a", "a//b", ""} {
		var tree snapshot.Tree
		tree.File(name, nil, nil)
		if err := tree.Write(&bytes.Buffer{}, snapshot.Txtar); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}

func TestFormatOf(t *testing.T) {
	for file, want := range map[string]snapshot.Format{"a.txtar": snapshot.Txtar, "a.tar.gz": snapshot.TarGz, "dir/a.tgz": snapshot.TarGz} {
		if got, err := snapshot.FormatOf(file); err != nil || got != want {
			t.Errorf("%s: %v, %v", file, got, err)
		}
	}
	for _, file := range []string{"a", "a.txt", "a.tar", "txtar"} {
		if _, err := snapshot.FormatOf(file); err == nil {
			t.Errorf("%s is taken", file)
		}
	}
}

// FuzzRead unpacks any archive: nothing is written outside the directory, and a new archive of the
// tree has the same content.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	hosttest.NoError(f, record().Write(&b, snapshot.Txtar))
	f.Add(b.Bytes())
	f.Add([]byte("symlink a -> ../..\nsymlink b -> a\n-- b/c --\n"))
	f.Add([]byte("symlink a -> b\rc\n"))
	f.Add([]byte("mkdir a\nchmod 000 a/b\nbase64 c\n-- c --\neA==\n"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		tree, err := snapshot.Read(bytes.NewReader(archive), snapshot.Txtar)
		if err != nil {
			return
		}
		above := t.TempDir()
		dir := filepath.Join(above, "x", "y")
		hosttest.NoError(t, os.MkdirAll(dir, 0o755))
		if tree.Unpack(dir) == nil {
			var again bytes.Buffer
			if err := tree.Write(&again, snapshot.Txtar); err != nil {
				t.Fatalf("read and laid out, but not written: %v", err)
			}
		}
		for _, place := range []string{above, filepath.Join(above, "x")} {
			if left, _ := os.ReadDir(place); len(left) != 1 {
				t.Fatalf("%q laid out %v", archive, left)
			}
		}
	})
}

// TestExists: a file or link that was read keeps its content when only its existence is asked for
// later.
func TestExists(t *testing.T) {
	var tree snapshot.Tree
	tree.Dir("proc", []string{"mounts"}, nil)
	tree.File("proc/mounts", nil, nil)
	tree.File("proc/mounts", []byte("none / tmpfs rw 0 0\n"), nil)
	tree.File("proc/mounts", nil, nil)
	tree.Link("proc/self", "1", nil)
	tree.File("proc/self", nil, nil)
	tree.File("proc/secret", nil, os.ErrPermission)
	tree.File("proc/secret", nil, nil)
	var text strings.Builder
	hosttest.NoError(t, tree.Write(&text, snapshot.Txtar))
	const want = "symlink proc/secret -> secret\nsymlink proc/self -> 1\n-- proc/mounts --\nnone / tmpfs rw 0 0\n"
	hosttest.Equal(t, want, text.String())
}

// TestUnpackFails: an error names what could not be written, with all folders on the way.
func TestUnpackFails(t *testing.T) {
	for name, record := range map[string]func(tree *snapshot.Tree){
		"a file in a file":   func(tree *snapshot.Tree) { tree.File("etc/a/b/c", nil, nil) },
		"a folder in a file": func(tree *snapshot.Tree) { tree.Dir("etc/a/b/c", nil, nil) },
		"a link in a file":   func(tree *snapshot.Tree) { tree.Link("etc/a/b/c", "d", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			var tree snapshot.Tree
			tree.File("etc/a/b", nil, nil)
			record(&tree)
			dir := t.TempDir()
			err := tree.Unpack(dir)
			if want := filepath.Join(dir, "etc/a/b/c") + ": open " + filepath.Join(dir, "etc/a/b") + ": not a directory"; err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}
