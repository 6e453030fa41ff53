package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/integration/terminal"
)

// guestThatRan returns a guest with both devices whose command has ended so, with these lines of
// output. The script must contain the command.
func guestThatRan(command, end string, lines ...string) func(nonce, data string) string {
	counted := guestWith("0000:00:05.0=10de:11b4:ok:0300", "0000:00:06.0=10de:11b4:ok:0300")
	return func(nonce, data string) string {
		text := counted(nonce, data)
		if !strings.Contains(data, command) {
			return text + "the script has another command\n"
		}
		for i, line := range lines {
			text += fmt.Sprintf("GPUSTACK-RUN v1 nonce=%s %d/%d:%d %s END\n", nonce, i+1, len(lines), len(line), line)
		}
		return text + fmt.Sprintf("GPUSTACK-RUN v1 nonce=%s %s lines=%d gap=none END\n[   99.0] login\n", nonce, end, len(lines))
	}
}

// TestFlavorTestRun: what is printed of a command that a guest has run. Its output is printed with
// --console only.
func TestFlavorTestRun(t *testing.T) {
	t.Parallel()
	nbody := []string{"> Windowed mode", "> 2 Devices used for simulation", "> Compute 3.0 CUDA device: [Quadro K4200]",
		"> Compute 3.0 CUDA device: [Quadro K4200]",
		"= 1995.263 single-precision GFLOP/s at 20 flops per interaction", "output-secret"}
	gpus := []string{"GPU 0: Quadro K4200 (UUID: GPU-1)", "output-secret"}
	const exit0 = "ended exit=0 from=20.00 to=32.34"
	for name, test := range map[string]struct {
		end    string
		lines  []string
		args   []string
		status int
		want   []string
		shown  bool // the output
	}{
		"pass": {end: exit0, lines: nbody, want: []string{"  runs      the command sha256:", ", for at most 5m0s\n",
			"\n  the command returned 0 after 12.3 s\n" +
				"    nbody: 2 of 2 GPUs (Quadro K4200); single precision 1995.3 GFLOP/s\n", "verdict: pass"}},
		"its output": {end: exit0, lines: nbody, args: []string{"--console"},
			want: []string{"  its output:\n    > Windowed mode\n", "    output-secret\n"}, shown: true},
		"unknown output": {end: exit0, lines: []string{"output-secret"}, want: []string{"the command returned 0 after 12.3 s\n  active", "verdict: pass"}},
		"exit 3": {end: "ended exit=3 from=20.00 to=32.34", lines: gpus, status: 2,
			want: []string{": fail\n", "the command returned exit status 3\n", "hint: --console prints the output of the command", "verdict: fail"}},
		"deadline": {end: "deadline exit= from=20.00 to=25.00", lines: gpus, status: 2,
			want: []string{"the command did not end within 5m0s\n", "the command was killed after 5.0 s\n"}},
		"not run": {end: "unread exit= from= to=", status: 2,
			want: []string{"the command was not run: the guest has no folder", "  the command was not run\n", "verdict: unknown"}},
		"fewer GPUs listed": {end: exit0, lines: gpus, status: 2,
			want: []string{"nvidia-smi lists 1 GPU, and the flavor has 2\n", "    nvidia-smi: 1 of 2 GPUs (Quadro K4200)\n", "verdict: fail"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, state := trialCloud(t, 96), unprivilegedEnv(t)
			c.Boot.Console = guestThatRan("nvidia-smi; command-secret", test.end, test.lines...)
			stdout, stderr, status := runTrial(t, c, state, trialArgs(append(test.args, "--run", "nvidia-smi; command-secret", "-v")...)...)
			if status != test.status || len(c.Left()) != 0 {
				t.Errorf("exit status %d, left %q:\n%s%s", status, c.Left(), stdout, stderr)
			}
			for _, want := range test.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q:\n%s%s", want, stdout, stderr)
				}
			}
			if strings.Contains(stdout+stderr, "output-secret") != test.shown || strings.Contains(stdout+stderr, "command-secret") {
				t.Errorf("a secret is printed:\n%s%s", stdout, stderr)
			}
		})
	}
}

// readable returns a folder that every user can read.
func readable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{dir, filepath.Dir(dir)} {
		hosttest.NoError(t, os.Chmod(folder, 0o755))
	}
	return dir
}

// stateContains reports whether a file below the folder of a user's journal contains a text.
func stateContains(t *testing.T, state []string, text string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(strings.TrimPrefix(state[1], "XDG_STATE_HOME="), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte(text))
		return err
	})
	hosttest.NoError(t, err)
	return found
}

// TestFlavorTestRunDocument: the document has numbers, and no line of the output without --console.
// The journal has the hash of the command, however the command was given, and undo deletes a server
// that was kept.
func TestFlavorTestRunDocument(t *testing.T) {
	t.Parallel()
	file := filepath.Join(readable(t), "run.sh")
	hosttest.NoError(t, os.WriteFile(file, []byte("command-secret"), 0o644))
	const hash = "sha256:2927f331393c8c97291cbe7327cdff5c480b80d98d1956bb85e3587fd68cbbc6" // by sha256sum
	for name, given := range map[string][]string{"a word": {"--run", "command-secret"}, "assigned": {"--run=command-secret"},
		"one dash": {"-run", "command-secret"}, "a file": {"--run-file", file}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, state := trialCloud(t, 96), unprivilegedEnv(t)
			c.Boot.Console = guestThatRan("command-secret", "ended exit=0 from=20.00 to=32.34", "[CUDA Bandwidth Test] - Starting...", " Device 0: Tesla K80",
				" Host to Device Bandwidth, 1 Device(s)", " PINNED Memory Transfers", "   Transfer Size (Bytes) Bandwidth(GB/s)", "   32000000   9.9",
				"output-secret")
			stdout, stderr, status := runTrial(t, c, state, trialArgs(append(given, "--keep-server", "-o", "json")...)...)
			var d struct {
				Verdict string
				Hash    string `json:"run_hash"`
				Servers []struct {
					Run struct {
						State    string
						Exit     int      `json:"exit_status"`
						Seconds  float64  `json:"elapsed_seconds"`
						Lines    []string `json:"output_lines"`
						Programs []struct {
							Program      string
							GPUs         int      `json:"gpu_count"`
							Models       []string `json:"gpu_models"`
							Measurements []struct {
								Name   string
								MBps   *float64 `json:"mb_per_second"`
								GFLOPs *float64 `json:"gflop_per_second"`
							}
						} `json:"gpu_programs"`
					}
				}
			}
			if err := json.Unmarshal([]byte(stdout), &d); err != nil || status != 0 || len(d.Servers) != 1 {
				t.Fatalf("exit status %d, %v:\n%s%s", status, err, stdout, stderr)
			}
			r := d.Servers[0].Run
			if d.Hash != hash || r.State != "ended" || r.Exit != 0 || r.Seconds != 12.3 || r.Lines != nil || len(r.Programs) != 1 ||
				len(r.Programs[0].Measurements) != 1 {
				t.Fatalf("%s\n%+v", stdout, r)
			}
			p, m := r.Programs[0], r.Programs[0].Measurements[0]
			if p.Program != "bandwidthTest" || p.GPUs != 1 || fmt.Sprint(p.Models) != "[Tesla K80]" || m.Name != "host to device, pinned" || *m.MBps != 9900 ||
				m.GFLOPs != nil {
				t.Errorf("%+v", p)
			}
			for _, secret := range []string{"command-secret", "output-secret", "IyEv"} {
				if strings.Contains(stdout+stderr, secret) {
					t.Errorf("%s is printed:\n%s%s", secret, stdout, stderr)
				}
				if stateContains(t, state, secret) {
					t.Errorf("the journal has %s", secret)
				}
			}
			if !stateContains(t, state, d.Hash) {
				t.Error("the journal does not have the hash")
			}
			stdout, _, status = runTrial(t, c, state, "history", "1")
			if status != 0 || !strings.Contains(stdout, d.Hash) {
				t.Errorf("exit status %d:\n%s", status, stdout)
			}
			if stdout, stderr, status = runTrial(t, c, state, "undo", "--yes"); status != 0 || len(c.Left()) != 0 {
				t.Errorf("exit status %d, left %q:\n%s%s", status, c.Left(), stdout, stderr)
			}
		})
	}
}

// TestFlavorTestRunRefused: a command that no guest could run is refused before any request.
func TestFlavorTestRunRefused(t *testing.T) {
	t.Parallel()
	dir := readable(t)
	for name, text := range map[string]string{"large": strings.Repeat("x", 60000), "nul": "a\x00b", "empty": " \n", "windows": "#!/bin/sh\r\nx\r\n"} {
		hosttest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"too large":      {[]string{"--run-file", file("large")}, "the command is too large for user data: a script of 6"},
		"NUL":            {[]string{"--run-file", file("nul")}, "the command contains a NUL byte\n"},
		"an empty file":  {[]string{"--run-file", file("empty")}, "the command is empty\n"},
		"an interpreter": {[]string{"--run-file", file("windows")}, `its first line does not name an interpreter: "#!/bin/sh\r"`},
		"no file":        {[]string{"--run-file", file("none")}, "none: no such file or directory\n"},
		"a folder":       {[]string{"--run-file", dir}, "is a directory\n"},
		"empty":          {[]string{"--run", ""}, "--run: the value is missing\n"},
		"white space":    {[]string{"--run", " "}, "--run: the command is empty\n"},
		"both":           {[]string{"--run", "a", "--run-file", file("nul")}, "--run and --run-file cannot be combined\n"},
		"no command":     {[]string{"--run-wait", "1m"}, "--run-wait needs --run or --run-file\n"},
		"no time":        {[]string{"--run", "a", "--run-wait", "500ms"}, "--run-wait: not a time to wait: 500ms\n"},
		"with --clean":   {[]string{"--clean", "--run", "a"}, "--clean and --run cannot be combined\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := trialCloud(t, 96)
			_, stderr, status := runTrial(t, c, unprivilegedEnv(t), trialArgs(test.args...)...)
			if lines, _ := c.Requests(); status != 1 || !strings.Contains(stderr, test.want) || len(lines) != 0 {
				t.Errorf("exit status %d, %d requests, no %q:\n%s", status, len(lines), test.want, stderr)
			}
		})
	}
}

// TestCommandsAreSecret: no error about a command line prints a command for a guest, also if the
// name of its flag is not right.
func TestCommandsAreSecret(t *testing.T) {
	t.Parallel()
	const secret = "echo hunter2"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"another flag is unknown":        {trialArgs("--run", secret, "--keeep-server"), "did you mean --keep-server? see gpustack flavor test --help"},
		"another flag is unknown, first": {trialArgs("--keeep-server", "--run="+secret), "did you mean --keep-server? see gpustack flavor test --help"},
		"the command is unknown":         {[]string{"flavor", "tset", "gpu", "--image", "x", "--run", secret}, "unknown command \"flavor tset\""},
		"the group is unknown":           {[]string{"flavour", "test", "gpu", "--run", secret, "--image", "x"}, "unknown command \"flavour\""},
		"after the flag":                 {[]string{"flavor", "--runn", secret, "tset", "gpu"}, "unknown command \"flavor tset\""},
		"capital letters":                {[]string{"FLAVOR", "TEST", "gpu", "--run", secret, "--image", "x"}, "unknown command \"FLAVOR\""},
		"no command":                     {[]string{"--run", secret, "--root", "/"}, "unknown flag --run\n"},
		"a time without a unit":          {trialArgs("--run", secret, "--run-wait", "5"), "hint: a TIME has a unit, as in 30s or 5m\n"},
		"a similar flag":                 {trialArgs("--runn", secret), "did you mean --run? see gpustack flavor test --help"},
		"a similar flag, assigned":       {trialArgs("--runn=" + secret), "unknown flag --runn\n"},
		"capital letters of a flag":      {trialArgs("--RUN", secret), "unknown flag --RUN\n"},
		"another name":                   {trialArgs("--exec", secret), "unknown flag --exec\n"},
		"another name, assigned":         {trialArgs("--exec=" + secret), "unknown flag --exec\n"},
		"another name, one dash":         {trialArgs("-exec", secret), "unknown flag -exec\n"},
		"similar to another name":        {trialArgs("--comand", secret), "unknown flag --comand\n"},
		"an unexpected argument":         {trialArgs("10de:11b4", "--run", secret), "unexpected argument"},
		"of another command":             {[]string{"host", "scan", "--run", secret}, "unknown flag --run\n"},
		"of another command, a name":     {[]string{"host", "scan", "--command", secret}, "unknown flag --command\n"},
		"no command of a guest":          {trialArgs("--keeep-server"), "did you mean --keep-server? see gpustack flavor test --help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, state := trialCloud(t, 96), unprivilegedEnv(t)
			_, stderr, status := runTrial(t, c, state, test.args...)
			document, more, also := runTrial(t, c, state, append(slices.Clone(test.args), "-o", "json")...)
			if lines, _ := c.Requests(); status != 1 || also != 1 || len(lines) != 0 || !strings.Contains(stderr, test.want) {
				t.Errorf("exit status %d and %d, %d requests, no %q:\n%s", status, also, len(lines), test.want, stderr)
			}
			if text := stderr + document + more; strings.Contains(text, "hunter2") {
				t.Errorf("the command is printed:\n%s", text)
			}
		})
	}
}

// TestFlavorTestRunProgress: while the command runs, the line on a terminal says so. A guest that
// is powered off by it has not passed, and no line of its output is shown.
func TestFlavorTestRunProgress(t *testing.T) {
	t.Parallel()
	c := trialCloud(t, 96)
	ended := guestThatRan("poweroff", "ended exit=0 from=20.00 to=32.34", "output-secret")
	looks := 0
	c.Boot.Console = func(nonce, data string) string {
		text := ended(nonce, data)
		if looks++; looks > 3 {
			c.Instances[0].More = map[string]any{"status": "SHUTOFF"}
		}
		return text[:strings.LastIndex(text, " END")] // without that of the end
	}
	s := terminal.Start(t, trialCommand(t, c, unprivilegedEnv(t), trialArgs("--run", "poweroff")...), "")
	hosttest.EqualIn(t, "exit status", 2, s.Wait())
	for _, want := range []string{" ACTIVE (command) ", "the guest was powered off before it reported",
		"the guest has not reported the end of the command", "verdict: unknown"} {
		hosttest.Contains(t, want, s.Output())
	}
	if strings.Contains(s.Output(), "output-secret") {
		t.Errorf("output of the command is shown:\n%q", s.Output())
	}
}

// A Windows guest does not run the script. What its console shows is not waited for: the server is
// built and deleted, and the verdict is unknown.
func TestTrialWindows(t *testing.T) {
	c := trialCloud(t, 96)
	c.Images = append(c.Images, map[string]any{"id": "12", "name": "windows-2022", "status": "active", "size": 1, "os_type": "windows"})
	c.Boot.Console = func(string, string) string { return "" }
	stdout, stderr, status := runTrial(t, c, unprivilegedEnv(t), "flavor", "test", "gpu.k4200.2", "--image", "windows-2022", "--yes", "-o", "json")
	var r struct {
		Verdict  string
		Warnings []string
		Servers  []struct {
			Verdict string
			Reasons []string
			Deleted bool
		}
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	if status != 2 || r.Verdict != "unknown" || len(r.Servers) != 1 || !r.Servers[0].Deleted {
		t.Fatalf("exit status %d\n%s%s", status, stdout, stderr)
	}
	if got := strings.Join(r.Servers[0].Reasons, "\n"); got != "the devices were not counted: a guest with os_type=windows does not run the script" {
		t.Errorf("reasons: %s", got)
	}
	hosttest.ContainsIn(t, "warnings", "image windows-2022 has os_type=windows", strings.Join(r.Warnings, "\n"))
	if lines, _ := c.Requests(); strings.Contains(strings.Join(lines, "\n"), "/action") {
		t.Errorf("the console was read:\n%s", strings.Join(lines, "\n"))
	}
}

// Only wanted products count. Others are in the document, and a verdict of fail names those of the
// same vendor.
func TestTrialOtherFunctions(t *testing.T) {
	for _, test := range []struct{ gpus, verdict, seen, others, reasons string }{
		{"0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:11b4:ok", "pass", "map[10de:11b4:2]", "map[10de:0e0a:1 1a03:2000:1]", ""},
		{"0000:00:05.0=10de:1eb8:ok 0000:00:06.0=10de:11b4:ok", "fail", "map[10de:11b4:1]", "map[10de:0e0a:1 10de:1eb8:1 1a03:2000:1]",
			"10de:11b4: 2 wanted, 1 seen; other functions of the same vendor: 1 × 10de:0e0a, 1 × 10de:1eb8"},
	} {
		c := trialCloud(t, 96)
		c.Boot.Console = guestWith(append(strings.Fields(test.gpus), "0000:00:07.0=10de:0e0a:ok", "0000:00:08.0=1a03:2000:ok")...)
		stdout, stderr, _ := runTrial(t, c, unprivilegedEnv(t), "flavor", "test", "gpu.k4200.2", "--image", "debian-12", "--yes", "-o", "json")
		var r struct {
			Servers []struct {
				Verdict      string
				Reasons      []string
				Seen, Others map[string]int
			}
		}
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || len(r.Servers) != 1 {
			t.Fatalf("%v\n%s%s", err, stdout, stderr)
		}
		s := r.Servers[0]
		if s.Verdict != test.verdict || fmt.Sprint(s.Seen) != test.seen || fmt.Sprint(s.Others) != test.others || strings.Join(s.Reasons, "; ") != test.reasons {
			t.Errorf("%+v, want %+v", s, test)
		}
	}
}
