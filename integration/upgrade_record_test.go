package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var record = flag.String("record", "", "TestUpgrade: first write testdata/upgrade/COMMIT again, with the binary of that commit (`COMMIT=BINARY`)")

// recordUpgrade writes the states in which a binary leaves the machines of TestUpgrade:
//
//	git worktree add /tmp/gpustack-aa95e30 aa95e30
//	(cd /tmp/gpustack-aa95e30 && make build)
//	go test ./integration -run TestUpgrade -record aa95e30=/tmp/gpustack-aa95e30/build/gpustack
//
// Of a run that was killed, there are up to three states for each status of the entry, from the
// first place at which something changes to the last. Times of the journal are set to one value, so
// that two recordings are the same, and the copy of an initramfs is a line of text. It needs
// strace.
func recordUpgrade(t *testing.T, commit, binary string) {
	t.Helper()
	for _, m := range upgradeMachines {
		if upgradeMoves[commit][m.name] == nil {
			continue
		}
		if command := m.earlier[commit]; command != nil {
			m.command = command
		}
		r := recorder{m, binary, readFiles(t, m.lay(t))}
		states := r.killed(t, m.lay, m.command)
		if m.rebuilds {
			states = append(states, r.killedBy(t, m.layPrograms, []string{"update-initramfs", "update-grub"}, append(m.command, "--rebuild"))...)
		}
		states = append(states, r.done(t, "done", m.prepared(binary)))
		states = append(states, r.killed(t, m.prepared(binary), []string{"undo"})...)
		if m.rebuilds {
			states = append(states, r.killedBy(t, func(t testing.TB) string {
				root := m.layPrograms(t)
				if _, talk, status := try(t, mounted(root, r.argv(root, append(m.command, "--rebuild"))...)); status != 0 {
					t.Fatalf("exit status %d: %s", status, talk)
				}
				return root
			}, []string{"update-initramfs", "update-grub"}, []string{"undo"})...)
		}
		states = append(states, r.done(t, "undone", func(t testing.TB) string {
			root := m.prepared(binary)(t)
			argv := r.argv(root, []string{"undo"})
			run(t, argv[0], argv[1:]...)
			return root
		}))
		heading := fmt.Sprintf("States of %s, as the binary of %s left it after gpustack %s. TestUpgrade -record writes this file.",
			m.name, commit, strings.Join(m.command, " "))
		file := upgradeFile(commit, m.name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, formatStates(heading, states), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d states", file, len(states))
	}
}

// A recorder records the states of one machine with a binary.
type recorder struct {
	upgradeMachine
	binary string
	before map[string]stateFile
}

func (r recorder) argv(root string, command []string) []string {
	return slices.Concat([]string{r.binary}, command, []string{"--root", root, "--yes"})
}

// done is the state of a machine on which a run has ended.
func (r recorder) done(t *testing.T, name string, lay func(testing.TB) string) state {
	t.Helper()
	s := r.state(t, lay(t))
	if s.status() != name {
		t.Fatalf("%s: status %s, want %s", r.name, s.status(), name)
	}
	s.name = name
	return s
}

// killed runs a command as often as there are places at which it changes something, kills it at
// each, and returns some of the states that are left.
func (r recorder) killed(t *testing.T, lay func(testing.TB) string, command []string) []state {
	t.Helper()
	places := trace(t, func(root string) []string { return r.argv(root, command) }, lay(t))
	var states []state
	for _, place := range places {
		root := lay(t)
		argv := append([]string{"-f", "-qq", "-o", "/dev/null", "-e", "trace=" + place.call,
			"-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", place.call, place.nth)}, r.argv(root, command)...)
		if out, err := exec.Command("strace", argv...).CombinedOutput(); err == nil {
			t.Fatalf("gpustack was not killed: %s", out)
		}
		s := r.state(t, root)
		if s.status() == "done" || s.status() == "undone" {
			continue // the entry was complete, or the undo had not begun
		}
		states = append(states, s)
	}
	return some(states)
}

// killedBy runs a command once for each program of the machine, which kills gpustack, and returns
// the states that are left.
func (r recorder) killedBy(t *testing.T, lay func(testing.TB) string, programs, command []string) []state {
	t.Helper()
	var states []state
	for _, program := range programs {
		root := lay(t)
		script := filepath.Join(root, "usr/sbin", program)
		text := strings.Replace(read(t, script), "\n", "\nkill -9 $PPID\nexit 1\n", 1)
		if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, talk, status := try(t, mounted(root, r.argv(root, command)...)); status >= 0 {
			t.Fatalf("gpustack was not killed: exit status %d: %s", status, talk)
		}
		states = append(states, r.state(t, root))
	}
	return some(states)
}

// state reads the state of a machine.
func (r recorder) state(t *testing.T, root string) state {
	t.Helper()
	s := state{name: "begun", files: changes(r.before, readFiles(t, root))}
	if r.command[0] != "nova" {
		var report struct{ Verdict string }
		out, talk, _ := try(t, exec.Command(r.binary, r.command[0], "check", "--root", root, "-o", "json"))
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v: %s%s", err, out, talk)
		}
		s.verdict = report.Verdict
	}
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[name]
		if strings.HasPrefix(name, "var/lib/gpustack/kept/") && strings.Contains(f.text, "\x00") {
			s.files[name] = stateFile{f.mode, "what the program made before\n"}
		}
		if !strings.HasPrefix(name, "var/lib/gpustack/journal/") {
			continue
		}
		f.text = regexp.MustCompile(`"(started|ended)": "[^"]*"`).ReplaceAllString(f.text, `"$1": "2026-11-22T07:30:04Z"`)
		s.files[name] = f
		if filepath.Ext(name) == ".json" && filepath.Base(name)[0] != '.' {
			var entry struct{ Status string }
			if err := json.Unmarshal([]byte(f.text), &entry); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			s.name = entry.Status
		}
	}
	return s
}

// some returns, of the states with each status, the first, the middle one and the last of those
// that are different.
func some(states []state) []state {
	var order []string
	by := map[string][]state{}
	for _, s := range states {
		status := s.status()
		if by[status] == nil {
			order = append(order, status)
		}
		if !slices.ContainsFunc(by[status], func(other state) bool { return maps.Equal(other.files, s.files) }) {
			by[status] = append(by[status], s)
		}
	}
	var kept []state
	for _, status := range order {
		n := len(by[status])
		for i, at := range slices.Compact([]int{0, n / 2, n - 1}) {
			s := by[status][at]
			s.name = fmt.Sprintf("%s-%d", status, i+1)
			kept = append(kept, s)
		}
	}
	return kept
}
