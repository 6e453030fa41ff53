package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/integration/terminal"
	"gpustack/nova/cloud/cloudtest"
)

// question is a command that asks before it changes something, on a machine or a cloud that
// state describes.
type question struct {
	args  []string
	env   []string
	asks  string
	state func() map[string]string
}

func (q question) start(t *testing.T, typed string) *terminal.Session {
	t.Helper()
	cmd := exec.Command("gpustack", q.args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8", "TERM=dumb"}, q.env...)
	return terminal.Start(t, cmd, typed)
}

// questions are the commands whose question a test without privileges can reach; those of
// drivers and databases are in folder integration.
func questions() map[string]func(t *testing.T) question {
	onNode := func(asks string, args ...string) func(t *testing.T) question {
		return func(t *testing.T) question {
			node := layTalk(t)
			return question{args: slices.Concat(args, []string{"--root", node}), asks: asks, state: func() map[string]string { return files(t, node) }}
		}
	}
	onCloud := func(asks string, args ...string) func(t *testing.T) question {
		return func(t *testing.T) question {
			c := cloudtest.Start(t, 96)
			c.Add("2", "gpu.old", 4, 8192, 10, true, map[string]string{"pci_passthrough:alias": "A100:8"})
			q := question{args: args, asks: asks, state: func() map[string]string {
				flavors := map[string]string{}
				for _, f := range c.Flavors {
					flavors[f.Body["name"].(string)] = "there"
				}
				return flavors
			}}
			for name, value := range c.Env() {
				q.env = append(q.env, name+"="+value)
			}
			return q
		}
	}
	return map[string]func(t *testing.T) question{
		"host prepare":   onNode("apply this plan?", "host", "prepare"),
		"nova configure": onNode("apply this plan?", "nova", "configure", "--role", "controller", "--release", "2026.1", "--alias", "K4200=10de:11b4"),
		"undo": func(t *testing.T) question {
			q := onNode("take it back?", "undo")(t)
			gpustack(t, "host", "prepare", "--root", q.args[2], "--yes")
			return q
		},
		"recovery": func(t *testing.T) question {
			q := onNode("was cut off", "host", "prepare")(t)
			gpustack(t, slices.Concat(q.args, []string{"--yes"})...)
			entry := filepath.Join(q.args[3], "var/lib/gpustack/journal/0001.json")
			text, err := os.ReadFile(entry)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(entry, []byte(strings.Replace(string(text), `"status": "done"`, `"status": "applying"`, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			return q
		},
		"flavor create": onCloud("make these requests?", "flavor", "create", "K4200:2"),
		"flavor delete": onCloud("delete it?", "flavor", "delete", "gpu.old"),
	}
}

// TestInterruptedQuestion: Ctrl-C or SIGTERM at a question ends the run at once, and a y that
// follows changes nothing.
func TestInterruptedQuestion(t *testing.T) {
	for name, lay := range questions() {
		for what, interrupt := range map[string]func(*terminal.Session){
			"Ctrl-C":  func(s *terminal.Session) { s.Type(terminal.CtrlC) },
			"SIGTERM": func(s *terminal.Session) { s.Signal(syscall.SIGTERM) },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				q := lay(t)
				before := q.state()
				s := q.start(t, "")
				modes := s.Modes()
				s.Expect("[y/N] ")
				if !strings.Contains(s.Output(), q.asks) {
					t.Errorf("no question %q:\n%s", q.asks, s.Output())
				}
				interrupt(s)
				s.Type("y\n")
				status := s.Wait()
				if want := "\ngpustack: error: interrupted, nothing was changed\n"; status != 130 || !strings.Contains(s.Output(), want) {
					t.Errorf("exit status %d, want %q:\n%s", status, want, s.Output())
				}
				if diff := cmp.Diff(modes, s.Modes()); diff != "" {
					t.Errorf("the terminal (-before +after):\n%s", diff)
				}
				if diff := cmp.Diff(before, q.state()); diff != "" {
					t.Errorf("(-before +after):\n%s", diff)
				}
			})
		}
	}
}

// TestAnswered: only an answer that was typed after the question counts; the end of input is
// a no.
func TestAnswered(t *testing.T) {
	for name, test := range map[string]struct {
		before, answer string
		status         int
		want           string
	}{
		"yes":                      {"", "y\n", 0, "done, recorded as entry 1"},
		"no":                       {"", "n\n", 1, "error: nothing was changed\n"},
		"end of input":             {"", terminal.CtrlD, 1, "\ngpustack: error: nothing was changed\n"},
		"type-ahead":               {"y\ny\n", "n\n", 1, "error: nothing was changed\n"},
		"type-ahead without a key": {"y", "\n", 1, "error: nothing was changed\n"},
		"yes, then Ctrl-C":         {"", "y\n" + terminal.CtrlC, 130, "error: interrupted, nothing was changed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := questions()["host prepare"](t)
			before := q.state()
			s := q.start(t, test.before)
			s.Expect("[y/N] ")
			s.Type(test.answer)
			if status := s.Wait(); status != test.status || !strings.Contains(s.Output(), test.want) {
				t.Errorf("exit status %d, want %d, %q:\n%s", status, test.status, test.want, s.Output())
			}
			if changed := !cmp.Equal(before, q.state()); changed != (test.status == 0) {
				t.Errorf("changed: %t", changed)
			}
		})
	}
}

// TestInterruptedReading: while it only reads, a run ends at once, whatever it waits for, with
// --yes too.
func TestInterruptedReading(t *testing.T) {
	for what, args := range map[string][]string{
		"interrupted":                      {"flavor", "list"},
		"interrupted, nothing was changed": {"flavor", "create", "K4200:2", "--yes"},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			c := cloudtest.Start(t, 96)
			reached := make(chan struct{}, 1)
			c.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/flavors/detail") {
					return false
				}
				reached <- struct{}{}
				<-r.Context().Done()
				return true
			}
			cmd := exec.Command("gpustack", args...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
			for name, value := range c.Env() {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			var talk strings.Builder
			cmd.Stderr = &talk
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-reached
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			if status := cmd.ProcessState.ExitCode(); status != 130 || talk.String() != "gpustack: error: "+what+"\n" {
				t.Errorf("%q: exit status %d: %s", args, status, talk.String())
			}
		})
	}
}

// layTalk lays out the talk's node with a nova.conf.
func layTalk(t *testing.T) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "node")
	gpustack(t, "host", "unpack", "../../examples/talk-2xk4200.txtar", root)
	if err := os.MkdirAll(filepath.Join(root, "etc/nova"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/nova/nova.conf"), []byte("[DEFAULT]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

// gpustack runs a command that must succeed.
func gpustack(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("gpustack", args...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
}

// files returns modes and contents below a root, by name.
func files(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := []byte(nil)
		if info.Mode().IsRegular() {
			text, err = os.ReadFile(name)
		}
		files[strings.TrimPrefix(name, root)] = info.Mode().String() + "\n" + string(text)
		if err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
