package cdi_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	library "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/hosttest"
)

var update = flag.Bool("update", false, "write testdata/verdicts.txt")

// set is a machine with specs, good and malformed.
type set struct {
	name, text, ask string
	crashes         bool // the library crashes on it
}

func readSets(t *testing.T) []set {
	t.Helper()
	files, err := filepath.Glob("testdata/sets/*.txtar")
	hosttest.NoError(t, err)
	if len(files) < 18 {
		t.Fatalf("%d sets found", len(files))
	}
	var all []set
	for _, file := range files {
		data := hosttest.Read(t, file)
		s := set{name: strings.TrimSuffix(filepath.Base(file), ".txtar"), text: data}
		for _, line := range strings.Split(s.text, "\n") {
			if name, ok := strings.CutPrefix(line, "# ask "); ok {
				s.ask = name
			}
			s.crashes = s.crashes || line == "# library crashes"
		}
		all = append(all, s)
	}
	return all
}

// verdict is what the library makes of a set: its errors by file, the devices that it resolves, and
// what it changes in a container.
type verdict struct {
	errors  map[string][]string
	devices []string
	changed oci.Spec
	err     string
	crash   string
}

// ask returns the library's verdict, with paths as below the root.
func ask(root host.Root, name string) (v verdict) {
	defer func() {
		if crash := recover(); crash != nil {
			v = verdict{crash: fmt.Sprint(crash)}
		}
	}()
	dir := strings.TrimSuffix(root.Path("/"), "/")
	cache, err := library.NewCache(library.WithSpecDirs(root.Path("etc/cdi"), root.Path("var/run/cdi")), library.WithAutoRefresh(false))
	if err != nil {
		return verdict{err: err.Error()}
	}
	v.errors = map[string][]string{}
	for file, errs := range cache.GetErrors() {
		file = strings.Replace(strings.TrimPrefix(file, dir), "/var/run/", "/run/", 1)
		for _, err := range errs {
			v.errors[file] = append(v.errors[file], strings.ReplaceAll(err.Error(), dir, ""))
		}
	}
	v.devices = cache.ListDevices()
	if _, err := cache.InjectDevices(&v.changed, name); err != nil {
		v.err = err.Error()
	}
	return v
}

// TestSets compares our reading of good and malformed sets with the library's: which files it
// refuses, with which text, which devices it resolves, and what it changes in a container. The
// texts of both are in testdata/verdicts.txt.
func TestSets(t *testing.T) {
	var golden strings.Builder
	for _, s := range readSets(t) {
		root := hosttest.Lay(t, s.text)
		relink(t, root)
		folders := cdi.Read(root)
		theirs := ask(root, s.ask)
		ours := folders.Edits(s.ask)
		fmt.Fprintf(&golden, "== %s\n", s.name)
		for _, p := range folders.All() {
			fmt.Fprintf(&golden, "%s %s: %s\n", p.Status, p.Kind, p)
		}
		for file, errs := range sorted(theirs.errors) {
			for _, err := range errs {
				fmt.Fprintf(&golden, "library: %s: %s\n", file, err)
			}
		}
		fmt.Fprintf(&golden, "library: %s: %s\n", s.ask, cmp.Or(theirs.err, theirs.crash, "ok"))

		if (theirs.crash != "") != s.crashes {
			t.Errorf("%s: the library crashes: %q", s.name, theirs.crash)
		}
		if theirs.crash != "" {
			if all := folders.All(); ours != nil || !slices.ContainsFunc(all,
				func(p cdi.Problem) bool { return p.Skipped && strings.Contains(theirs.crash, p.Library) }) {
				t.Errorf("%s: the library crashes with %q: %v", s.name, theirs.crash, all)
			}
			continue
		}
		compareFiles(t, s.name, folders, theirs)
		var resolved []string
		for _, d := range folders.Devices() {
			if d.File != "" {
				resolved = append(resolved, d.Name)
			}
		}
		hosttest.EqualIn(t, s.name+": devices, the library's and ours", theirs.devices, resolved)
		text, atStart := strings.CutPrefix(theirs.err, "failed to inject devices: ")
		failing := slices.ContainsFunc(folders.All(), func(p cdi.Problem) bool {
			return p.Status == host.Fail && p.Library == text && (p.Device == "" || p.Device == s.ask)
		})
		if found := theirs.err == "" || atStart; found != (ours != nil) || atStart && !failing {
			t.Errorf("%s: the library: %s, ours: %v", s.name, theirs.err, folders.All())
		}
		if theirs.err == "" {
			compareChanges(t, s.name, *ours, theirs.changed)
		}
	}
	const file = "testdata/verdicts.txt"
	if *update {
		hosttest.NoError(t, os.WriteFile(file, []byte(golden.String()), 0o644))
	}
	want := hosttest.Read(t, file)
	hosttest.Equal(t, want, golden.String())
}

// relink makes /var/run a link to /run that stays in the tree, for the library, which reads
// /var/run/cdi.
func relink(t *testing.T, root host.Root) {
	t.Helper()
	hosttest.NoError(t, os.MkdirAll(root.Path("var"), 0o755))
	if err := os.Remove(root.Path("var/run")); err != nil && !host.IsAbsent(err) {
		t.Fatal(err)
	}
	hosttest.NoError(t, os.Symlink("../run", root.Path("var/run")))
}

func sorted[V any](m map[string]V) func(yield func(string, V) bool) {
	return func(yield func(string, V) bool) {
		var keys []string
		for k := range m {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// compareFiles compares the files that the library has errors of with those that we do, and the
// first text that we quote with the library's own.
func compareFiles(t *testing.T, name string, folders cdi.Folders, theirs verdict) {
	t.Helper()
	for _, f := range folders.Files {
		at := slices.IndexFunc(f.Problems, func(p cdi.Problem) bool { return p.Skipped || p.Kind == cdi.Conflict })
		all := strings.Join(theirs.errors[f.Path], "\n")
		switch {
		case (at >= 0) != (all != ""):
			t.Errorf("%s: %s: %v, the library: %s", name, f.Path, f.Problems, all)
		case at >= 0 && f.Problems[at].Kind != cdi.Unreadable && f.Problems[at].Library == "":
			t.Errorf("%s: %s: the library's text is not quoted: %v", name, f.Path, f.Problems)
		case at >= 0 && !strings.Contains(all, f.Problems[at].Library):
			t.Errorf("%s: %s: quoted is %q, the library says: %s", name, f.Path, f.Problems[at].Library, all)
		}
		for _, p := range f.Problems {
			if p.File != f.Path || p.Reason == "" || p.Status == "" {
				t.Errorf("%s: %s: incomplete: %+v", name, f.Path, p)
			}
		}
	}
}

// compareChanges compares the variables, nodes and mounts of edits with what the library made of
// them in an empty container.
func compareChanges(t *testing.T, name string, edits specs.ContainerEdits, changed oci.Spec) {
	t.Helper()
	var ours, theirs []string
	variables := func(env []string) map[string]string { // the last value of each counts
		values := map[string]string{}
		for _, v := range env {
			name, value, _ := strings.Cut(v, "=")
			values[name] = value
		}
		return values
	}
	for _, n := range edits.DeviceNodes {
		ours = append(ours, n.Path)
	}
	for _, m := range edits.Mounts {
		ours = append(ours, m.HostPath+":"+m.ContainerPath)
	}
	var env []string
	if changed.Process != nil {
		env = changed.Process.Env
	}
	if changed.Linux != nil {
		for _, n := range changed.Linux.Devices {
			theirs = append(theirs, n.Path)
		}
	}
	for _, m := range changed.Mounts {
		theirs = append(theirs, m.Source+":"+m.Destination)
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	if diff := gocmp.Diff([]any{slices.Compact(theirs), variables(env)}, []any{slices.Compact(ours), variables(edits.Env)}); diff != "" {
		t.Errorf("%s: what changes in a container, the library's and ours: %s", name, diff)
	}
}
