package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/integration/terminal"
)

// The kernel arguments of the talk's node, and those of the node when it is prepared.
const (
	unprepared = "console=tty0 console=ttyS1,115200n8 quiet"
	prepared   = unprepared + " intel_iommu=on iommu=pt"
)

// TestInterruptedPrograms: Ctrl-C while a program runs, on a terminal whose SIGINT goes to the
// whole foreground process group. The program ends by itself; then the files are rolled back,
// and the programs that had begun run again over them. Of undo, the entry stays as it was.
func TestInterruptedPrograms(t *testing.T) {
	const initramfs, menuProgram = "update-initramfs -u -k all", "update-grub"
	for _, test := range []struct {
		name, slow string
		undo       bool
		want       string
	}{
		{"prepare in the first program", "update-initramfs", false, "interrupted, all files were rolled back, and these programs were run again: " + initramfs},
		{"prepare in the last program", "update-grub", false, "interrupted, all files were rolled back, and these programs were run again: " + initramfs + ", " + menuProgram},
		{"undo", "update-grub", true, "interrupted, entry 1 stays as it was, and these programs were run again: " + initramfs + ", " + menuProgram},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := layRebuild(t)
			args := []string{gpustack, "host", "prepare", "--root", root, "--rebuild", "--yes"}
			arguments := unprepared
			if test.undo {
				if _, talk, status := try(t, mounted(root, args...)); status != 0 {
					t.Fatalf("exit status %d: %s", status, talk)
				}
				args = []string{gpustack, "undo", "--root", root, "--yes"}
				arguments = prepared
			}
			before, recorded := configured(t, root), undated(run(t, gpustack, "history", "--root", root, "-o", "json"))
			mark(t, root, test.slow)
			s := terminal.Start(t, mounted(root, args...), "")
			await(t, filepath.Join(root, "etc/slow/begun"))
			s.Type(terminal.CtrlC)
			s.Expect("gpustack: interrupted: ending the running step; a second interrupt stops at once\n")
			mark(t, root, "go")
			if status := s.Wait(); status != 130 || !strings.Contains(s.Output(), "\ngpustack: error: "+test.want+"\n") {
				t.Errorf("exit status %d, want %q:\n%s", status, test.want, s.Output())
			}
			unmark(t, root)
			hosttest.EqualIn(t, "before and after", before, configured(t, root))
			hosttest.EqualIn(t, "history", recorded, undated(run(t, gpustack, "history", "--root", root, "-o", "json")))
			if menu(t, root) != arguments && test.slow == "update-grub" {
				t.Errorf("menu: %q", menu(t, root))
			}
			// Both ways are open as if nothing had been begun.
			if test.undo {
				arguments = unprepared
			} else {
				arguments = prepared
			}
			if _, talk, status := try(t, mounted(root, args...)); status != 0 || menu(t, root) != arguments {
				t.Errorf("exit status %d, menu %q: %s", status, menu(t, root), talk)
			}
		})
	}
}

// TestUnheard: a run whose output cannot be written any more, because Ctrl-C has ended tee as well,
// because tee has died, or because the terminal is lost, rolls back or completes its change all the
// same. Its programs, which print more than a pipe holds, end by themselves.
func TestUnheard(t *testing.T) {
	for name, test := range map[string]struct {
		piped  bool
		signal os.Signal
		hangUp bool
		status int
	}{
		"Ctrl-C ends tee":      {piped: true, signal: os.Interrupt, status: 130},
		"tee dies":             {piped: true, status: 0},
		"the terminal is lost": {hangUp: true, status: 130},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := layRebuild(t)
			const talk = `i=0; while [ $i -lt 9000 ]; do echo "line $i"; echo "line $i of standard error" >&2; i=$((i+1)); done` + "\n"
			hosttest.NoError(t, os.WriteFile(filepath.Join(root, "usr/sbin/update-initramfs"), []byte(updateInitramfs+talk), 0o755))
			before := configured(t, root)
			mark(t, root, "update-initramfs")
			cmd := mounted(root, gpustack, "host", "prepare", "--root", root, "--rebuild", "--yes")
			var status int
			if test.hangUp {
				s := terminal.Start(t, cmd, "")
				await(t, filepath.Join(root, "etc/slow/begun"))
				s.HangUp()
				time.Sleep(300 * time.Millisecond) // the kernel sends SIGHUP meanwhile
				mark(t, root, "go")
				status = s.Wait()
			} else {
				r, w, err := os.Pipe()
				hosttest.NoError(t, err)
				cmd.Stdout, cmd.Stderr = w, w
				hosttest.NoError(t, errors.Join(cmd.Start(), w.Close()))
				go io.Copy(io.Discard, r)
				await(t, filepath.Join(root, "etc/slow/begun"))
				r.Close()
				if test.signal != nil {
					hosttest.NoError(t, cmd.Process.Signal(test.signal))
					time.Sleep(300 * time.Millisecond)
				}
				mark(t, root, "go")
				cmd.Wait()
				status = cmd.ProcessState.ExitCode()
			}
			unmark(t, root)
			hosttest.EqualIn(t, "exit status", test.status, status)
			history := undated(run(t, gpustack, "history", "--root", root, "-o", "json"))
			if test.status == 0 {
				if menu(t, root) != prepared || !strings.Contains(history, `"status":"done"`) {
					t.Errorf("menu %q, history: %s", menu(t, root), history)
				}
				return
			}
			if strings.Contains(history, `"status"`) {
				t.Errorf("history: %s", history)
			}
			hosttest.EqualIn(t, "before and after", before, configured(t, root))
		})
	}
}

// TestInterruptedTwice: a second Ctrl-C ends the program and the run at once. The entry stays,
// which the run says, and the next run recovers it.
func TestInterruptedTwice(t *testing.T) {
	root := layRebuild(t)
	before := configured(t, root)
	args := []string{gpustack, "host", "prepare", "--root", root, "--rebuild", "--yes"}
	mark(t, root, "update-initramfs")
	s := terminal.Start(t, mounted(root, args...), "")
	await(t, filepath.Join(root, "etc/slow/begun"))
	s.Type(terminal.CtrlC)
	s.Expect("a second interrupt stops at once\n")
	s.Type(terminal.CtrlC)
	begun := time.Now()
	if status := s.Wait(); status != 130 || !strings.Contains(s.Output(), "the next command that changes this machine recovers it first\n") {
		t.Errorf("exit status %d:\n%s", status, s.Output())
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	unmark(t, root)
	if _, talk, status := try(t, mounted(root, args...)); status != 0 || !strings.Contains(talk, "gpustack: entry 1 was ") || menu(t, root) != prepared {
		t.Errorf("exit status %d, menu %q: %s", status, menu(t, root), talk)
	}
	if _, talk, status := try(t, mounted(root, gpustack, "undo", "--root", root, "--yes")); status != 0 {
		t.Errorf("exit status %d: %s", status, talk)
	}
	hosttest.EqualIn(t, "before and after", before, configured(t, root))
}

// TestInterruptedDrivers: Ctrl-C and SIGTERM at the questions of the commands that change drivers
// of the running kernel. A y that follows changes nothing.
func TestInterruptedDrivers(t *testing.T) {
	const function = "sys/devices/pci0000:80/0000:80:02.0/0000:84:00."
	for name, test := range map[string]struct {
		bound bool
		args  []string
		asks  string
	}{
		"bind":    {false, []string{"host", "bind", "--device", "84:00.0", "--live"}, "bind them now?"},
		"release": {true, []string{"host", "release", "--device", "84:00.0"}, "release them now?"},
		"undo":    {true, []string{"undo"}, "undo it?"},
	} {
		for what, interrupt := range map[string]func(*terminal.Session){
			"Ctrl-C":  func(s *terminal.Session) { s.Type(terminal.CtrlC) },
			"SIGTERM": func(s *terminal.Session) { s.Signal(syscall.SIGTERM) },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				root := layRebuild(t)
				hosttest.NoError(t, os.Mkdir(filepath.Join(root, "sys/bus/pci/drivers/vfio-pci"), 0o755))
				if test.bound {
					bindByHand(t, root, function)
				}
				state := func() string {
					return run(t, "sh", "-c", `cd "$1"; find sys/bus sys/devices var -type f -exec sha256sum {} +; find sys -type l -exec ls -l --time-style=+ {} +`, "sh", root)
				}
				before := state()
				// Who uses a function is read from all processes of the machine: let those be our
				// own, in what looks like the first namespace (Linux, PROC_PID_INIT_INO).
				cmd := mounted(root, slices.Concat([]string{"sh", "-ec", `
					mkdir "$ROOT/../ns"
					ln -s "pid:[4026531836]" "$ROOT/../ns/pid"
					net=$(readlink /proc/self/ns/net)
					ln -s "$net" "$ROOT/../ns/net"
					touch "$ROOT/../ns/$net"
					mount --bind /proc/self/ns/net "$ROOT/../ns/$net"
					mount --rbind "$ROOT/../ns" "$ROOT/proc/1/ns"
					exec "$@"`, "sh", gpustack}, test.args, []string{"--root", root})...)
				cmd.Args = slices.Insert(cmd.Args, 1, "--pid", "--fork")
				s := terminal.Start(t, cmd, "")
				s.Expect("gpustack: " + test.asks + " [y/n/")
				interrupt(s)
				s.Type("y\n")
				if status := s.Wait(); status != 130 || !strings.Contains(s.Output(), "\ngpustack: error: interrupted, nothing was changed\n") {
					t.Errorf("exit status %d:\n%s", status, s.Output())
				}
				hosttest.EqualIn(t, "before and after", before, state())
			})
		}
	}
}

// bindByHand makes vfio-pci hold two functions, as the journal then has it of this boot.
func bindByHand(t *testing.T, root, function string) {
	t.Helper()
	journal := filepath.Join(root, "var/lib/gpustack/journal")
	hosttest.NoError(t, os.MkdirAll(journal, 0o700))
	for _, number := range []string{"0", "1"} {
		link := filepath.Join(root, function+number, "driver")
		hosttest.NoError(t, os.Remove(link))
		hosttest.NoError(t, os.Symlink("../../../../bus/pci/drivers/vfio-pci", link))
		hosttest.NoError(t, os.WriteFile(filepath.Join(root, function+number, "driver_override"), []byte("vfio-pci\n"), 0o644))
	}
	change := func(number, driver string) string {
		return fmt.Sprintf(`{"address": "0000:84:00.%s", "iommu_group": 32, "any": false, "before": {"driver": %q, "driver_override": null}, "after": {"driver": "vfio-pci", "driver_override": "vfio-pci"}}`, number, driver)
	}
	entry := fmt.Sprintf(`{"schema": 1, "id": 1, "kind": "journal entry", "changes": "drivers", "command": "host bind", "status": "done", "origin":{"user":"","host":"","version":"","argv":null},"started": "2026-03-01T08:00:00Z", "ended": "2026-03-01T08:00:01Z",
		"files": [], "programs": null, "left": null, "restart": null, "rows": null, "drivers": {"boot_id": %q, "release": false, "services":{"stop":null,"persistence_off":null,"start":null,"persistence_on":null,"persistent":null}, "functions": [%s, %s]}}`,
		strings.TrimSpace(hosttest.Read(t, "/proc/sys/kernel/random/boot_id")), change("0", "nouveau"), change("1", "snd_hda_intel"))
	hosttest.NoError(t, os.WriteFile(filepath.Join(journal, "0001.json"), []byte(entry), 0o600))
}

// mark makes a program of the node slow, or lets a slow one go on.
func mark(t *testing.T, root, name string) {
	t.Helper()
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "etc/slow", name), nil, 0o644))
}

// unmark makes all programs fast again.
func unmark(t *testing.T, root string) {
	t.Helper()
	marks, err := filepath.Glob(filepath.Join(root, "etc/slow/*"))
	hosttest.NoError(t, err)
	for _, name := range marks {
		hosttest.NoError(t, os.Remove(name))
	}
}

// await waits until a file is there.
func await(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is not made", name)
		}
	}
}

// onTerminal runs a command on a terminal, where answer is typed once it asks.
func onTerminal(t *testing.T, answer string, args ...string) (output string, status int) {
	t.Helper()
	s := terminal.Start(t, exec.Command(gpustack, args...), "")
	s.Expect("/?] ")
	s.Type(answer)
	status = s.Wait()
	return s.Output(), status
}

// TestInterruptedAnywhere sends SIGINT at every third of the system calls by which prepare and
// undo change files. Either the run was done before the signal counted, or it ends with 130 and
// all is as it was, the journal too.
func TestInterruptedAnywhere(t *testing.T) {
	first := inPlace(t)
	history := func(root string) string { return undated(run(t, gpustack, "history", "--root", root, "-o", "json")) }
	prepareIt := func(root string) []string {
		return []string{gpustack, "host", "prepare", "--root", root, "--yes"}
	}
	undoIt := func(root string) []string { return []string{gpustack, "undo", "--root", root, "--yes"} }
	before := configured(t, first)
	run(t, gpustack, prepareIt(first)[1:]...)
	after := configured(t, first)
	for _, stage := range []struct {
		name          string
		lay           func(t testing.TB) string
		argv          func(root string) []string
		before, after map[string]string
	}{
		{"prepare", inPlace, prepareIt, before, after},
		{"undo", func(t testing.TB) string {
			root := inPlace(t)
			run(t, gpustack, prepareIt(root)[1:]...)
			return root
		}, undoIt, after, before},
	} {
		done, rolledBack := 0, 0
		t.Run(stage.name, func(t *testing.T) {
			places := trace(t, stage.argv, stage.lay(t))
			if len(places) < 40 {
				t.Errorf("%d places", len(places))
			}
			for i, place := range places {
				if i%3 != 0 {
					continue
				}
				root := stage.lay(t)
				recorded := history(root)
				argv := append([]string{"-f", "-qq", "-o", "/dev/null", "-e", "trace=" + place.call,
					"-e", fmt.Sprintf("inject=%s:signal=INT:when=%d", place.call, place.nth)}, stage.argv(root)...)
				_, talk, status := try(t, exec.Command("strace", argv...))
				switch status {
				case 0:
					done++
					if strings.Contains(talk, "ending the running step") && !strings.Contains(talk, "gpustack: the running step was the last: everything is done\n") {
						t.Errorf("%s %d: %s", place.call, place.nth, talk)
					}
					hosttest.EqualIn(t, fmt.Sprintf("%s %d, done", place.call, place.nth), stage.after, configured(t, root))
				case 130:
					rolledBack++
					if diff := cmp.Diff(stage.before, configured(t, root)); diff != "" {
						t.Errorf("%s %d, interrupted (-before +after):\n%s\n%s", place.call, place.nth, diff, talk)
					}
					if diff := cmp.Diff(recorded, history(root)); diff != "" {
						t.Errorf("%s %d, history (-before +after):\n%s", place.call, place.nth, diff)
					}
					hosttest.ContainsIn(t, fmt.Sprintf("%s %d", place.call, place.nth), "gpustack: error: interrupted, ", talk)
				default:
					t.Errorf("%s %d: exit status %d: %s", place.call, place.nth, status, talk)
				}
			}
			t.Logf("%d times done, %d times rolled back", done, rolledBack)
			if done == 0 || rolledBack < 10 {
				t.Errorf("%d times done, %d times rolled back", done, rolledBack)
			}
		})
	}
}
