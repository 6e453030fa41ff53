package host_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/snapshot"
)

func TestNewRootRefuses(t *testing.T) {
	dir := t.TempDir()
	hosttest.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for name, test := range map[string]struct{ dir, want string }{
		"nothing":         {"", "root: empty path"},
		"an absent place": {filepath.Join(dir, "absent"), "no such file or directory"},
		"a file":          {filepath.Join(dir, "file"), "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := host.NewRoot(test.dir); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestLinksStayBelowTheRoot(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	hosttest.NoError(t, os.WriteFile(outside, []byte("outside\n"), 0o600))
	root := hosttest.Lay(t, `
symlink etc/absolute -> /usr/lib/file
symlink etc/relative -> ../usr/lib/file
symlink etc/climbing -> ../../../../../../../../usr/lib/file
symlink lib -> usr/lib
symlink etc/out -> `+outside+`
-- usr/lib/file --
inside
`)
	for _, name := range []string{"etc/absolute", "/etc/relative", "etc/climbing", "lib/file", "etc/../lib/file"} {
		if data, err := root.ReadFile(name); err != nil || string(data) != "inside\n" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if data, err := root.ReadFile("etc/out"); !host.IsAbsent(err) {
		t.Errorf("a link out of the root gave %q, %v", data, err)
	}
}

func TestAbsentAndUnreadableAreTwoAnswers(t *testing.T) {
	root := hosttest.Lay(t, "-- etc/file --\ntext\n-- etc/folder/file --\n")
	hosttest.NoError(t, unix.Mkfifo(root.Path("etc/pipe"), 0o600))
	for name, test := range map[string]struct {
		file   string
		absent bool
	}{
		"no such file":                 {"etc/absent", true},
		"no such folder":               {"opt/absent", true},
		"a folder for a file":          {"etc/folder", false},
		"a file for a folder":          {"etc/file/below", false},
		"a pipe, which would block":    {"etc/pipe", false},
		"a name longer than a name is": {"etc/" + strings.Repeat("x", 300), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := root.ReadFile(test.file)
			if err == nil || host.IsAbsent(err) != test.absent {
				t.Errorf("error %v, absent %v", err, host.IsAbsent(err))
			}
			exists, err := root.Exists(test.file)
			if test.absent && (exists || err != nil) {
				t.Errorf("exists %v, %v", exists, err)
			}
		})
	}
}

func TestReadHeadIsBounded(t *testing.T) {
	root := hosttest.Lay(t, "-- file --\n0123456789\n")
	for n, want := range map[int]string{4: "0123", 100: "0123456789\n"} {
		if data, err := root.ReadHead("file", n); err != nil || string(data) != want {
			t.Errorf("%d bytes: %q, %v", n, data, err)
		}
	}
}

func TestReadFileRefusesTheHuge(t *testing.T) {
	root := hosttest.Lay(t, "-- file --\n")
	hosttest.NoError(t, os.Truncate(root.Path("file"), 5<<20))
	if _, err := root.ReadFile("file"); err == nil || host.IsAbsent(err) {
		t.Errorf("error %v", err)
	}
}

func TestEnter(t *testing.T) {
	root := hosttest.Lay(t, `
symlink list/plain -> ../real/a
symlink list/absolute -> /real/a
symlink list/climbing -> ../../../../real/a
symlink list/dangling -> ../real/none
-- real/a/value --
a
-- list/folder/value --
folder
`)
	list, err := root.OpenDir("list")
	hosttest.NoError(t, err)
	defer list.Close()
	buf := make([]byte, host.MaxAttribute+1)
	for name, test := range map[string]struct{ target, value string }{
		"plain":    {"../real/a", "a\n"},
		"absolute": {"/real/a", "a\n"},
		"climbing": {"../../../../real/a", "a\n"},
		"folder":   {"", "folder\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, target, err := list.Enter(name)
			hosttest.NoError(t, err)
			defer dir.Close()
			data, err := dir.ReadAttribute("value", buf)
			if target != test.target || string(data) != test.value || err != nil {
				t.Errorf("target %q, value %q, %v", target, data, err)
			}
		})
	}
	if _, target, err := list.Enter("dangling"); target != "../real/none" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dangling: target %q, %v", target, err)
	}
	if _, _, err := list.Enter("absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

func TestReadLong(t *testing.T) {
	dir, err := hosttest.Lay(t, "-- dir/short --\na\n-- dir/long --\nabcdefgh\n-- dir/longest --\nabcdefghi\n-- dir/longer --\nabcdefghij\n").OpenDir("dir")
	hosttest.NoError(t, err)
	defer dir.Close()
	const most = 10
	buf := make([]byte, 4)
	for _, test := range []struct {
		name, want string
		size       int // of the buffer after it
	}{
		{"short", "a\n", 4},
		{"long", "abcdefgh\n", most + 1},
		{"longest", "abcdefghi\n", most + 1},
		{"short", "a\n", most + 1},
		{"longer", "", most + 1},
	} {
		data, err := dir.ReadLong(test.name, &buf, most)
		if string(data) != test.want || (err != nil) != (test.want == "") || len(buf) != test.size {
			t.Errorf("%s: %q, %v, buffer of %d bytes", test.name, data, err, len(buf))
		}
	}
	if _, err := dir.ReadLong("absent", &buf, most); !host.IsAbsent(err) {
		t.Errorf("absent: %v", err)
	}
}

func TestReadAttributeRefuses(t *testing.T) {
	root := hosttest.Lay(t, `
mkdir dir/folder
symlink dir/link -> value
-- dir/value --
v
-- dir/long --
`+strings.Repeat("x", host.MaxAttribute)+`
`)
	hosttest.NoError(t, unix.Mkfifo(root.Path("dir/pipe"), 0o600))
	dir, err := root.OpenDir("dir")
	hosttest.NoError(t, err)
	defer dir.Close()
	buf := make([]byte, host.MaxAttribute+1)
	for _, name := range []string{"folder", "link", "long"} {
		if data, err := dir.ReadAttribute(name, buf); err == nil || host.IsAbsent(err) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if data, err := dir.ReadAttribute("pipe", buf); len(data) > 0 || host.IsAbsent(err) {
		t.Errorf("pipe: %q, %v (and it did not block)", data, err)
	}
	if _, err := dir.ReadAttribute("absent", buf); !host.IsAbsent(err) {
		t.Errorf("absent: %v", err)
	}
	there, err := dir.Which(make([]byte, 64), "value", "folder", "link", "absent") // several calls of the kernel's
	slices.Sort(there)
	if want := []string{"folder", "link", "value"}; !slices.Equal(there, want) || err != nil {
		t.Errorf("it has %q, %v", there, err)
	}
	dir.Close()
	if there, err := dir.Which(buf, "value"); len(there) > 0 || err == nil {
		t.Errorf("a closed one has %q", there)
	}
}

// TestReal: Real resolves a name alike with and without a recorder, never out of the root, and
// records each link on the way.
func TestReal(t *testing.T) {
	root := hosttest.Lay(t, `symlink a/up -> ../../../b
symlink b/abs -> /c/d
symlink loop -> loop
mkdir c/d
`)
	var tree snapshot.Tree
	for name, want := range map[string]string{
		"/a/up/abs/x": "/c/d/x", "a/up": "/b", "/": "/", "/absent/x": "/absent/x", "/loop": "",
	} {
		for _, r := range []host.Root{root, root.Recorded(&tree)} {
			got, err := r.Real(name)
			if want == "" && errors.Is(err, unix.ELOOP) || want != "" && err == nil && got == want {
				continue
			}
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	var text strings.Builder
	if err := tree.Write(&text, snapshot.Txtar); err != nil || strings.Count(text.String(), "symlink ") != 3 {
		t.Errorf("%v: three links are recorded:\n%s", err, &text)
	}
}
