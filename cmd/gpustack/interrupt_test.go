package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/integration/terminal"
	"gpustack/nova/cloud/cloudtest"
)

// question is a command that asks before it changes something, on a machine or a cloud that
// state describes.
type question struct {
	args  []string
	env   []string
	asks  string
	sums  string // the beginning of the summary above the question
	state func() map[string]string
}

func (q question) start(t *testing.T, typed string) *terminal.Session {
	t.Helper()
	cmd := exec.Command("gpustack", q.args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8", "TERM=dumb"}, q.env...)
	return terminal.Start(t, cmd, typed)
}

// unprivilegedEnv returns the environment of a user who records changes in a folder of the test.
func unprivilegedEnv(t *testing.T) []string {
	t.Helper()
	env, err := stateHome(t.TempDir())
	hosttest.NoError(t, err)
	return env
}

// questions are the commands whose question a test without privileges can reach; those of
// drivers and databases are in folder integration.
func questions() map[string]func(t *testing.T) question {
	onNode := func(sums, asks string, args ...string) func(t *testing.T) question {
		return func(t *testing.T) question {
			node := layTalk(t)
			return question{args: slices.Concat(args, []string{"--root", node}), asks: asks, sums: sums, state: func() map[string]string { return files(t, node) }}
		}
	}
	onCloud := func(sums, asks string, args ...string) func(t *testing.T) question {
		return func(t *testing.T) question {
			c := cloudtest.Start(t, 96)
			c.Add("2", "gpu.old", 4, 8192, 10, true, map[string]string{"pci_passthrough:alias": "A100:8"})
			c.Images = []map[string]any{{"id": "9", "name": "debian", "status": "active", "min_disk": 0, "min_ram": 0, "size": 1 << 20, "virtual_size": 3 << 30}}
			q := question{args: args, asks: asks, sums: sums, state: func() map[string]string {
				flavors := map[string]string{"image debian": fmt.Sprint(c.Images[0])}
				for _, f := range c.Flavors {
					flavors[f.Body["name"].(string)] = "there"
				}
				return flavors
			}}
			q.env = unprivilegedEnv(t)
			for name, value := range c.Env() {
				q.env = append(q.env, name+"="+value)
			}
			return q
		}
	}
	return map[string]func(t *testing.T) question{
		"host prepare":   onNode("4 functions → vfio-pci (2 GPUs, 2 audio functions); 6 new files;", "apply this plan?", "host", "prepare"),
		"nova configure": onNode("1 alias; 1 file changed;", "apply this plan?", "nova", "configure", "--role", "controller", "--release", "2026.1", "--alias", "K4200=10de:11b4"),
		"undo": func(t *testing.T) question {
			q := onNode("6 files removed;", "undo it?", "undo")(t)
			gpustack(t, "host", "prepare", "--root", q.args[2], "--yes")
			return q
		},
		"recovery": func(t *testing.T) question {
			q := onNode("entry 1 (host prepare) is rolled back;", "recover now?", "host", "prepare")(t)
			gpustack(t, slices.Concat(q.args, []string{"--yes"})...)
			entry := filepath.Join(q.args[3], "var/lib/gpustack/journal/0001.json")
			text := hosttest.Read(t, entry)
			hosttest.NoError(t, os.WriteFile(entry, []byte(strings.Replace(text, `"status": "done"`, `"status": "applying"`, 1)), 0o600))
			return q
		},
		"flavor create": onCloud("create flavor gpu.k4200.2; 2 requests", "make these requests?", "flavor", "create", "K4200:2"),
		"flavor delete": onCloud("delete flavor gpu.old; 1 request", "delete it?", "flavor", "delete", "gpu.old"),
		"image set":     onCloud("change image debian: 1 value; 1 request", "change the image?", "image", "set", "debian", "--profile", "gpu"),
	}
}

// TestRecoveryQuestion: above the question whether to recover an interrupted entry stands what that
// does, and with -o json there is no question.
func TestRecoveryQuestion(t *testing.T) {
	q := questions()["recovery"](t)
	s := q.start(t, "")
	s.Expect("/?] ")
	s.Type("n\n")
	status := s.Wait()
	want := "entry 1 (host prepare) is rolled back; at most 6 files restored\ngpustack: entry 1 (host prepare) was interrupted: recover now? [y/n/?] "
	if !strings.Contains(s.Output(), want) || status != 1 {
		t.Errorf("exit status %d, want %q:\n%s", status, want, s.Output())
	}
	before := q.state()
	q.args = append(q.args, "-o", "json")
	s = q.start(t, "")
	if status := s.Wait(); status != 1 || strings.Contains(s.Output(), "/?]") || !strings.Contains(s.Output(), `"code": "unconfirmed"`) {
		t.Errorf("exit status %d:\n%s", status, s.Output())
	}
	hosttest.EqualIn(t, "before and after", before, q.state())
}

// TestInterruptedQuestion: Ctrl-C, SIGTERM or SIGHUP at a question ends the run at once, and a y
// that follows changes nothing.
func TestInterruptedQuestion(t *testing.T) {
	for name, lay := range questions() {
		for what, interrupt := range map[string]func(*terminal.Session){
			"Ctrl-C":  func(s *terminal.Session) { s.Type(terminal.CtrlC) },
			"SIGTERM": func(s *terminal.Session) { s.Signal(syscall.SIGTERM) },
			"SIGHUP":  func(s *terminal.Session) { s.Signal(syscall.SIGHUP) },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				q := lay(t)
				before := q.state()
				s := q.start(t, "")
				s.Expect("/?] ")
				hosttest.ContainsIn(t, "no question", q.asks, s.Output())
				lines := strings.Split(strings.TrimSpace(s.Output()), "\n")
				if above := lines[max(0, len(lines)-2)]; !strings.HasPrefix(above, q.sums) {
					t.Errorf("above the question is %q instead of %q", above, q.sums)
				}
				interrupt(s)
				s.Type("y\n")
				status := s.Wait()
				if want := "\ngpustack: error: interrupted, nothing was changed\n"; status != 130 || !strings.Contains(s.Output(), want) {
					t.Errorf("exit status %d, want %q:\n%s", status, want, s.Output())
				}
				hosttest.EqualIn(t, "the terminal", s.FirstModes(), s.Modes())
				hosttest.EqualIn(t, "before and after", before, q.state())
			})
		}
	}
}

// TestLostTerminal: a run whose terminal is lost at a question ends, and changes nothing.
func TestLostTerminal(t *testing.T) {
	for name, lay := range questions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := lay(t)
			before := q.state()
			s := q.start(t, "")
			s.Expect("/?] ")
			s.HangUp()
			hosttest.EqualIn(t, "exit status", 130, s.Wait())
			hosttest.EqualIn(t, "before and after", before, q.state())
		})
	}
}

// TestNohup: SIGHUP does not end a run that was started with SIGHUP ignored (nohup(1)).
func TestNohup(t *testing.T) {
	q := questions()["host prepare"](t)
	s := terminal.Start(t, exec.Command("sh", slices.Concat([]string{"-c", `trap "" HUP; exec gpustack "$@"`, "sh"}, q.args)...), "")
	s.Expect("/?] ")
	s.Signal(syscall.SIGHUP)
	time.Sleep(300 * time.Millisecond) // it would have ended by then
	s.Type("y\n")
	if status := s.Wait(); status != 0 || !strings.Contains(s.Output(), "done, recorded as entry 1") {
		t.Errorf("exit status %d:\n%s", status, s.Output())
	}
}

// closed is a pipe that nothing reads.
func closed(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	hosttest.NoError(t, err)
	t.Cleanup(func() { w.Close() })
	hosttest.NoError(t, r.Close())
	return w
}

// TestClosedOutput: a closed standard output or standard error, as after "| head" and "| tee",
// ends no run. It is no error, and does not count in the exit status.
func TestClosedOutput(t *testing.T) {
	node := layTalk(t)
	for _, test := range []struct {
		args   []string
		status int
	}{
		{[]string{"host", "scan"}, 0},
		{[]string{"host", "scan", "-o", "json"}, 0},
		{[]string{"host", "scan", "-o", "yaml"}, 0},
		{[]string{"host", "check"}, 2},
		{[]string{"host", "prepare", "--dry-run"}, 2},
		{[]string{"completion", "bash"}, 0},
		{[]string{"host", "scan", "--help"}, 0},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			cmd := exec.Command("gpustack", test.args...)
			if test.args[0] == "host" {
				cmd.Args = append(cmd.Args, "--root", node)
			}
			var talk strings.Builder
			cmd.Stdout, cmd.Stderr = closed(t), &talk
			cmd.Run()
			if status := cmd.ProcessState.ExitCode(); status != test.status || strings.Contains(talk.String(), "error") {
				t.Errorf("%s, want exit status %d: %s", cmd.ProcessState, test.status, talk.String())
			}
		})
	}
	t.Run("a change", func(t *testing.T) {
		cmd := exec.Command("gpustack", "host", "prepare", "--root", node, "--yes")
		cmd.Stdout, cmd.Stderr = closed(t), closed(t)
		cmd.Run()
		if status := cmd.ProcessState.ExitCode(); status != 0 {
			t.Errorf("%s", cmd.ProcessState)
		}
		if o := runProgram(t, ".", nil, "history", "--root", node, "-o", "json"); !strings.Contains(o.stdout, `"status":"done"`) {
			t.Errorf("%+v", o)
		}
	})
	t.Run("a question", func(t *testing.T) {
		node := layTalk(t)
		before := files(t, node)
		s := terminal.Start(t, exec.Command("sh", "-c", `(sleep 0.3; exec gpustack host prepare --root "$1") | true`, "sh", node), "")
		s.Wait()
		if want := "gpustack: error: nothing was changed: the plan cannot be shown: standard output is closed\n"; !strings.HasPrefix(s.Output(), want) {
			t.Errorf("want %q:\n%s", want, s.Output())
		}
		hosttest.EqualIn(t, "before and after", before, files(t, node))
	})
}

// TestInterruptedRequest: an interrupt while the last step runs leaves nothing to roll back:
// the run says that all is done, and ends with 0. A second one ends it at once.
func TestInterruptedRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		signals []os.Signal
		again   bool // the last one ends it
		status  int
		want    string
	}{
		"once": {[]os.Signal{syscall.SIGINT}, false, 0, "gpustack: done, recorded as entry 1: 'gpustack undo 1' undoes it\ngpustack: deleted flavor gpu.old\n" +
			"gpustack: the running step was the last: everything is done\n"},
		"hangups are no second interrupt": {[]os.Signal{syscall.SIGHUP, syscall.SIGHUP}, false, 0,
			"gpustack: done, recorded as entry 1: 'gpustack undo 1' undoes it\ngpustack: deleted flavor gpu.old\n" +
				"gpustack: the running step was the last: everything is done\n"},
		"twice": {[]os.Signal{syscall.SIGTERM, syscall.SIGINT}, true, 130, "gpustack: error: interrupted again, stopped at once\n" +
			"gpustack: hint: if 'gpustack history' shows an interrupted entry, the next gpustack command that changes objects of that cloud, such as flavor create, determines what it has done, 'gpustack undo' undoes it\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := cloudtest.Start(t, 96)
			c.Add("2", "gpu.old", 4, 8192, 10, true, map[string]string{"pci_passthrough:alias": "A100:8"})
			reached, goOn := make(chan struct{}), make(chan struct{})
			c.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodDelete {
					close(reached)
					<-goOn
				}
				return false
			}
			cmd := exec.Command("gpustack", "flavor", "delete", "gpu.old", "--yes")
			cmd.Env = append(unprivilegedEnv(t), "PATH="+os.Getenv("PATH"))
			for name, value := range c.Env() {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			talk := filepath.Join(t.TempDir(), "talk")
			file, err := os.Create(talk)
			hosttest.NoError(t, err)
			defer file.Close()
			cmd.Stderr = file
			// Below nohup(1) it would ignore SIGHUP too; a handled signal is not inherited.
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP)
			defer signal.Stop(hangups)
			hosttest.NoError(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-reached:
			case err := <-ended:
				close(goOn)
				text, readErr := os.ReadFile(talk)
				t.Fatalf("it ended before the request: %v: %s, %v", err, text, readErr)
			}
			for _, s := range test.signals {
				hosttest.NoError(t, cmd.Process.Signal(s))
				time.Sleep(300 * time.Millisecond) // they are not to be merged into one
			}
			if !test.again {
				close(goOn)
			}
			<-ended
			if test.again {
				close(goOn)
			}
			text := hosttest.Read(t, talk)
			want := "gpustack: interrupted: ending the running step; a second interrupt stops at once\n" + test.want
			if status := cmd.ProcessState.ExitCode(); status != test.status || !strings.HasSuffix(text, want) {
				t.Errorf("%s, want exit status %d, %q:\n%s", cmd.ProcessState, test.status, want, text)
			}
		})
	}
}

// TestStoppedRecovery: the hint of a recovery that a second interrupt has stopped is that of the
// changes that it recovers.
func TestStoppedRecovery(t *testing.T) {
	t.Parallel()
	c := cloudtest.Start(t, 96)
	env := append(unprivilegedEnv(t), "PATH="+os.Getenv("PATH"))
	for name, value := range c.Env() {
		env = append(env, name+"="+value)
	}
	run := func() (*exec.Cmd, *strings.Builder) {
		cmd, talk := exec.Command("gpustack", "flavor", "create", "A100:1", "--yes"), new(strings.Builder)
		cmd.Env, cmd.Stderr = env, talk
		hosttest.NoError(t, cmd.Start())
		return cmd, talk
	}
	c.Fault = func(w http.ResponseWriter, r *http.Request) bool { // no answer about the flavor
		if !strings.Contains(r.URL.Path, "/flavors") || strings.HasSuffix(r.URL.Path, "/detail") {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	cmd, _ := run()
	if err := cmd.Wait(); err == nil {
		t.Fatal("no error")
	}
	reached, goOn := make(chan struct{}, 1), make(chan struct{})
	defer close(goOn)
	c.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/flavors/") && !strings.HasSuffix(r.URL.Path, "/detail") {
			reached <- struct{}{}
			<-goOn
		}
		return false
	}
	cmd, talk := run()
	<-reached
	for range 2 {
		hosttest.NoError(t, cmd.Process.Signal(os.Interrupt))
		time.Sleep(300 * time.Millisecond) // they are not to be merged into one
	}
	cmd.Wait()
	const want = "gpustack: hint: if 'gpustack history' shows an interrupted entry, the next gpustack command that changes objects of that cloud, such as flavor create, determines what it has done, 'gpustack undo' undoes it\n"
	if !strings.HasSuffix(talk.String(), want) {
		t.Errorf("%s, want %q:\n%s", cmd.ProcessState, want, talk)
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
		"no":                       {"", "n\n", 1, "gpustack: nothing was changed\n"},
		"end of input":             {"", terminal.CtrlD, 1, "\ngpustack: nothing was changed\n"},
		"type-ahead":               {"y\ny\n", "n\n", 1, "gpustack: nothing was changed\n"},
		"type-ahead without a key": {"y", "\n", 1, "gpustack: nothing was changed\n"},
		"what each key means":      {"", "?\n", 1, "gpustack: n, Ctrl-D: change nothing\ngpustack: d: show the plan in full"},
		"the diff":                 {"", "d\n", 1, "\n+++ /etc/modprobe.d/zz-gpustack.conf\n"},
		"yes, then Ctrl-C":         {"", "y\n" + terminal.CtrlC, 130, "error: interrupted, nothing was changed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := questions()["host prepare"](t)
			before := q.state()
			s := q.start(t, test.before)
			s.Expect("/?] ")
			s.Type(test.answer)
			// What is typed before the question is asked again is no answer.
			again := map[string]string{"?\n": "each file as a diff\n", "d\n": "unless booted with gpustack=off\n"}[test.answer]
			if again != "" {
				s.Expect(again + "gpustack: apply this plan? [y/n/d/?] ")
				s.Type("n\n")
			}
			if status := s.Wait(); status != test.status || !strings.Contains(s.Output(), test.want) {
				t.Errorf("exit status %d, want %d, %q:\n%s", status, test.status, test.want, s.Output())
			}
			hosttest.EqualIn(t, "changed", test.status == 0, !cmp.Equal(before, q.state()))
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
			cmd.Env = append(unprivilegedEnv(t), "PATH="+os.Getenv("PATH"))
			for name, value := range c.Env() {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			var talk strings.Builder
			cmd.Stderr = &talk
			hosttest.NoError(t, cmd.Start())
			<-reached
			hosttest.NoError(t, cmd.Process.Signal(os.Interrupt))
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
	hosttest.NoError(t, os.MkdirAll(filepath.Join(root, "etc/nova"), 0o755))
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "etc/nova/nova.conf"), []byte("[DEFAULT]\n"), 0o644))
	return root
}

// gpustack runs a command that must succeed.
func gpustack(t *testing.T, args ...string) {
	t.Helper()
	if o := runProgram(t, ".", nil, args...); o.status != 0 {
		t.Fatalf("%q: %+v", args, o)
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
	hosttest.NoError(t, err)
	return files
}
