package integration

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// A state is a machine as one run of an earlier commit left it: every folder and file that differs
// from before the run, by its name below the root.
//
// testdata/upgrade/COMMIT/MACHINE.txtar holds the states of a machine. In its comment are, for each
// state, a line "state NAME", a line "verdict VERDICT" if host check or container check of that
// commit was asked, and a line for each difference: "NAME/ MODE" for a folder, "NAME MODE CONTENT"
// for a file, where CONTENT is the name of the section with its content, and "NAME gone" for a file
// that was removed.
// A section whose name ends in "-" has a newline at its end that the file does not have.
type state struct {
	name    string // its status, and a number: applying-1
	verdict string // of host check or container check, by that commit, "" if it was not asked
	files   map[string]stateFile
}

// A stateFile is a file or folder; it has no mode if it is absent.
type stateFile struct {
	mode fs.FileMode
	text string
}

// status returns the status of the newest entry of the journal: applying, rebuilding, done,
// undoing, unbuilding or undone; begun if there is none yet.
func (s state) status() string {
	status, _, _ := strings.Cut(s.name, "-")
	return status
}

// stateTops are the folders in which gpustack changes files, as far as the machines here have them.
var stateTops = []string{"boot/loader", "boot/grub2", "etc", "usr/lib/dracut", "var"}

// readFiles returns the files and folders in stateTops below a root, without those that only the
// programs of a test use.
func readFiles(t *testing.T, root string) map[string]stateFile {
	t.Helper()
	files := map[string]stateFile{}
	for _, top := range stateTops {
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, d fs.DirEntry, err error) error {
			name, relErr := filepath.Rel(root, file)
			switch {
			case relErr != nil:
				return relErr
			case os.IsNotExist(err) && name == top:
				return nil
			case err != nil:
				return err
			case name == "etc/slow" || name == "var/tmp":
				return fs.SkipDir
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			f := stateFile{mode: info.Mode()}
			if info.Mode().IsRegular() {
				f.text = read(t, file)
			}
			files[name] = f
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// changes returns how files differ from those before.
func changes(before, after map[string]stateFile) map[string]stateFile {
	changed := map[string]stateFile{}
	for name, f := range after {
		if was, ok := before[name]; !ok || was != f {
			changed[name] = f
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			changed[name] = stateFile{}
		}
	}
	return changed
}

// lay lays a state over a machine as it was before.
func (s state) lay(t *testing.T, root string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(s.files)) { // a folder before what is in it
		f, file := s.files[name], filepath.Join(root, name)
		var err error
		switch {
		case f.mode == 0:
			err = os.RemoveAll(file)
		case f.mode.IsDir():
			err = os.MkdirAll(file, f.mode.Perm())
		default:
			err = os.WriteFile(file, []byte(f.text), 0o600)
		}
		if err == nil && f.mode != 0 {
			err = os.Chmod(file, f.mode.Perm())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// formatStates returns states in the form that readStates reads, below a heading.
func formatStates(heading string, states []state) []byte {
	var comment strings.Builder
	fmt.Fprintf(&comment, "%s\n", heading)
	archive := &txtar.Archive{}
	sections := map[string]string{} // by content
	for _, s := range states {
		fmt.Fprintf(&comment, "\nstate %s\n", s.name)
		if s.verdict != "" {
			fmt.Fprintf(&comment, "verdict %s\n", s.verdict)
		}
		for _, name := range slices.Sorted(maps.Keys(s.files)) {
			f := s.files[name]
			switch {
			case f.mode == 0:
				fmt.Fprintf(&comment, "%s gone\n", name)
				continue
			case f.mode.IsDir():
				fmt.Fprintf(&comment, "%s/ %04o\n", name, f.mode.Perm())
				continue
			}
			section := sections[f.text]
			if section == "" {
				section = strconv.Itoa(len(archive.Files) + 1)
				text := f.text
				if text != "" && !strings.HasSuffix(text, "\n") {
					section, text = section+"-", text+"\n"
				}
				sections[f.text] = section
				archive.Files = append(archive.Files, txtar.File{Name: section, Data: []byte(text)})
			}
			fmt.Fprintf(&comment, "%s %04o %s\n", name, f.mode.Perm(), section)
		}
	}
	archive.Comment = []byte(comment.String())
	return txtar.Format(archive)
}

// readStates reads the states of a file, in their order.
func readStates(t *testing.T, file string) []state {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, f := range archive.Files {
		if strings.HasSuffix(f.Name, "-") {
			f.Data = bytes.TrimSuffix(f.Data, []byte("\n"))
		}
		sections[f.Name] = string(f.Data)
	}
	var states []state
	_, comment, _ := strings.Cut(string(archive.Comment), "\n\n")
	for line := range strings.Lines(comment) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if fields[0] == "state" {
			states = append(states, state{name: fields[1], files: map[string]stateFile{}})
			continue
		}
		s := &states[len(states)-1]
		name, isDir := strings.CutSuffix(fields[0], "/")
		switch {
		case name == "verdict":
			s.verdict = strings.Join(fields[1:], " ")
			continue
		case fields[1] == "gone":
			s.files[name] = stateFile{}
			continue
		}
		mode, err := strconv.ParseUint(fields[1], 8, 12)
		if err != nil {
			t.Fatalf("%s: %s: %v", file, line, err)
		}
		f := stateFile{mode: fs.FileMode(mode)}
		if isDir {
			f.mode |= fs.ModeDir
		} else {
			text, ok := sections[fields[2]]
			if !ok {
				t.Fatalf("%s: %s: no such section", file, line)
			}
			f.text = text
		}
		s.files[name] = f
	}
	return states
}
