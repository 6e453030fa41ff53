package probe_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/nova/probe"
)

// said returns the end of a command and its output.
func said(r *probe.Run) string {
	if r == nil {
		return "none"
	}
	exit := "-"
	if r.ExitStatus != nil {
		exit = fmt.Sprint(*r.ExitStatus)
	}
	text := fmt.Sprintf("%s %s %q", r.State, exit, r.Output)
	if r.Missing > 0 {
		text += fmt.Sprintf(" missing %d", r.Missing)
	}
	return text
}

// A runTest is a command in a guest, and what became of it.
type runTest struct{ name, command, want string }

// runTests are run by the script in the shell of the machine, and by TestProbeShells in others.
var runTests = []runTest{
	{"a line", "echo hello", `ended 0 ["hello"]`},
	{"nothing", "true", "ended 0 []"},
	{"no end of line", "printf hello", `ended 0 ["hello"]`},
	{"empty lines", `printf '\n\na\n\n'`, `ended 0 ["" "" "a" ""]`},
	{"spaces", "echo '  a  b  '", `ended 0 ["  a  b  "]`},
	{"standard error", "echo a; echo b >&2; exit 3", `ended 3 ["a" "b"]`},
	{"exit status 124", "exit 124", "ended 124 []"},
	{"exit status 255", "exit 255", "ended 255 []"},
	{"killed", "kill -9 $$", "ended 137 []"},
	{"no such program", "gpustack-no-such-program 2>/dev/null", "ended 127 []"},
	{"single quotes", `echo 'it'"'"'s'`, `ended 0 ["it's"]`},
	{"double quotes", `echo "a b"`, `ended 0 ["a b"]`},
	{"backslashes", `printf '%s\n' 'a\b\c\0101\\'`, `ended 0 ["a\\b\\c\\0101\\\\"]`},
	{"a percent sign", `printf '%s\n' '100% %s %d'`, `ended 0 ["100% %s %d"]`},
	{"substitution in the guest", `x=7; echo "$x $(echo 8) ` + "`echo 9`" + `"`, `ended 0 ["7 8 9"]`},
	{"no substitution before", `echo '$HOME $(id) ` + "`id`" + `'`, `ended 0 ["$HOME $(id) ` + "`id`" + `"]`},
	{"lines", "echo a\necho b\n", `ended 0 ["a" "b"]`},
	{"a here document", "cat <<'E'\n$a `b` \\c\nE\n", "ended 0 [\"$a `b` \\\\c\"]"},
	{"placeholders", "echo '{{nonce}} {{command}} {{run}}'", `ended 0 ["{{nonce}} {{command}} {{run}}"]`},
	{"a comment at the end", "echo a # b", `ended 0 ["a"]`},
	{"an interpreter", "#!/bin/cat\nhello", `ended 0 ["#!/bin/cat" "hello"]`},
	{"an interpreter with an argument", "#! /bin/sh  -e \nfalse\necho a", "ended 1 []"},
	{"no such interpreter", "#!/no/such\nhello", "ended 127"},
	{"it reads nothing", "cat", "ended 0 []"},
	{"tabs, ESC and UTF-8", `printf 'a\tb\033[31mc\007\r\n\302\265s\n'`, `ended 0 ["a b[31mc" "??s"]`},
	{"a literal tab and UTF-8", "echo 'a\tb µ'", `ended 0 ["a b ??"]`},
	{"not UTF-8", "printf '\xff\\n'", `ended 0 ["?"]`},
	{"NUL in the output", `printf 'a\000b\n'`, `ended 0 ["ab"]`},
	{"a report of its own", "echo '" + two + "'", `ended 0 ["` + strings.ReplaceAll(two, "GPUSTACK-", "GPUSTACK_") + `"]`},
	{"a report behind a control character", "printf 'GPU\\001STACK-RUN v1 GPUSTACK-GPUSTACK-\\n'", `ended 0 ["GPUSTACK_RUN v1 GPUSTACK_GPUSTACK_"]`},
	{"a process that stays", "sleep 60 & echo a", `ended 0 ["a"]`},
	{"a process of another session that stays", "echo one; echo two; setsid sleep 20 & echo three", `ended 0 ["one" "two" "three"]`},
	{"a locale", "echo $LC_ALL", `ended 0 ["C"]`},
}

// reported is what a guest with a command has reported.
type reported struct {
	probe.Report
	Run *probe.Run
}

// runCommand runs the script with a command and returns its report. The command's records are
// printed three times as well.
func (g guest) runCommand(o probe.Options, options ...string) reported {
	g.t.Helper()
	out, err := g.start(o, options...).CombinedOutput()
	r, whole := probe.Parse(string(out), nonce)
	if err != nil || !whole || strings.Count(string(out), mark+" ") != 3 || strings.Count(string(out), " gap=") != 3 {
		g.t.Fatalf("%v, %+v:\n%s", err, r, out)
	}
	if left, err := os.ReadDir(g.path("run")); err != nil || len(left) > 0 {
		g.t.Errorf("left behind: %v, %v", left, err)
	}
	return reported{r, probe.ParseRun(string(out), nonce)}
}

func TestScriptRun(t *testing.T) {
	t.Parallel()
	for _, test := range runTests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newGuest(t)
			g.function("0000:00:05.0", "030200", "10de", "11b4", memory, header(0xfe800000))
			begin := time.Now()
			r := g.runCommand(running(t, test.command), "-euf")
			got := said(r.Run)
			if test.name == "no such interpreter" { // each shell says it in its own words
				got, _, _ = strings.Cut(got, " [")
			}
			hosttest.Equal(t, test.want, got)
			if words(r.Report) != "0000:00:05.0=10de:11b4:ok" || probe.GPUs(probe.Wanted{k4200: 1}, r.Report) != 1 {
				t.Errorf("%+v", r)
			}
			if took := time.Since(begin); r.Run.Seconds == nil || *r.Run.Seconds < 0 || *r.Run.Seconds > took.Seconds()+0.05 {
				t.Errorf("it took %v, and at most %s", r.Run.Seconds, took)
			}
		})
	}
}

// TestScriptRunDuration: the time is that of the command, not of the script.
func TestScriptRunDuration(t *testing.T) {
	t.Parallel()
	g := newGuest(t)
	r := g.runCommand(running(t, "sleep 1.2"))
	if r.Run.Seconds == nil || *r.Run.Seconds < 1.2 || *r.Run.Seconds > 10 {
		t.Errorf("it took %v", r.Run.Seconds)
	}
}

// TestScriptRunDeadline: the command is killed with the processes that it has started, whatever
// signals they ignore. What it has printed is reported.
func TestScriptRunDeadline(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, command string }{
		{"it waits", "echo begun; sleep 60"},
		{"it ignores signals", "trap '' TERM INT HUP; echo begun; while :; do sleep 1; done"},
		{"its child keeps the output", "echo begun; (trap '' TERM HUP; sleep 60; :) & wait"},
		{"it prints", "echo begun; while :; do sleep 0.01; done"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newGuest(t)
			c, err := probe.NewCommand("echo $$ >"+g.path("pid")+"; "+test.command, 15*time.Second)
			hosttest.NoError(t, err)
			begin := time.Now()
			r := g.runCommand(probe.Options{Command: c})
			if got := said(r.Run); got != `deadline - ["begun"]` || r.Run.Seconds == nil {
				t.Errorf("%s after %v", got, r.Run.Seconds)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("%s", took)
			}
			pid := hosttest.Read(t, g.path("pid"))
			out, err := exec.Command("ps", "--no-headers", "-o", "stat,pid,args", "-s", strings.TrimSpace(pid)).Output()
			for line := range strings.Lines(string(out)) {
				if !strings.HasPrefix(line, "Z") { // nothing may wait for them here
					t.Errorf("a process is left: %s, %v", line, err)
				}
			}
		})
	}
}

// TestScriptRunOutput: of a long output the first and the last lines are reported, of an endless
// one too, and long lines are shortened.
func TestScriptRunOutput(t *testing.T) {
	t.Parallel()
	numbers := func(from, to int, format string) (lines []string) {
		for i := from; i <= to; i++ {
			lines = append(lines, fmt.Sprintf(format, i))
		}
		return lines
	}
	count := func(n int, format string) string {
		return fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); printf '%s\n' $i; done`, n, format)
	}
	const long = "%0100d"
	for _, test := range []struct {
		name, command string
		first, last   []string // nil for any
		lines         int      // at most
		gap           bool
	}{
		{"64 lines", count(64, "%d"), numbers(1, 64, "%d"), nil, 64, false},
		{"65 lines", count(65, "%d"), numbers(1, 24, "%d"), numbers(26, 65, "%d"), 64, true},
		{"500 lines", count(500, "%d"), numbers(1, 24, "%d"), numbers(461, 500, "%d"), 64, true},
		{"many long lines", count(300, long), numbers(1, 24, long), numbers(261, 300, long), 64, true},
		{"a line of 300 bytes", "printf '%0300d\n' 7; echo a", []string{strings.Repeat("0", 240), "a"}, nil, 2, false},
		{"a line of 20000 bytes", "printf '%020000d\n' 7; echo a", nil, []string{"a"}, 1, true},
		{"two megabytes", `dd if=/dev/zero bs=1048576 count=2 2>/dev/null | tr '\000' x; echo; echo a`, nil, []string{"a"}, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newGuest(t).runCommand(running(t, test.command)).Run
			if *r.ExitStatus != 0 || r.Missing != 0 || len(r.Lines) > test.lines || (r.Gap != nil) != test.gap {
				t.Fatalf("%s, gap %v", said(r), r.Gap)
			}
			if first := r.Lines[:min(len(test.first), len(r.Lines))]; !slices.Equal(first, test.first) {
				t.Errorf("first %q", first)
			}
			if last := r.Lines[max(0, len(r.Lines)-len(test.last)):]; !slices.Equal(last, test.last) {
				t.Errorf("last %q", last)
			}
			if r.Gap != nil && *r.Gap != len(r.Lines)-len(test.last) {
				t.Errorf("gap after %d of %d", *r.Gap, len(r.Lines))
			}
		})
	}
}

// TestScriptRunWithout: a guest that lacks a program or a folder reports what it can.
func TestScriptRunWithout(t *testing.T) {
	t.Parallel()
	t.Run("setsid", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t)
		g.program("setsid", "exit 127")
		c, err := probe.NewCommand("echo begun; exec sleep 60", 15*time.Second)
		hosttest.NoError(t, err)
		o := probe.Options{Command: c}
		script := g.script(o)
		if !strings.Contains(script, "setsid true") {
			t.Fatalf("nothing to replace:\n%s", script)
		}
		g.write("user_data", strings.ReplaceAll(script, "setsid true", g.path("bin/setsid")+" true"))
		out, err := exec.Command("sh", g.path("user_data")).CombinedOutput()
		if got := said(probe.ParseRun(string(out), nonce)); err != nil || got != `deadline - ["begun"]` {
			t.Errorf("%v, %s:\n%s", err, got, out)
		}
	})
	t.Run("a folder", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t)
		hosttest.NoError(t, os.RemoveAll(g.path("run")))
		cmd := g.start(running(t, "echo a >"+g.path("ran")))
		out, err := cmd.CombinedOutput()
		if got := said(probe.ParseRun(string(out), nonce)); err != nil || got != "unread - []" {
			t.Errorf("%v, %s:\n%s", err, got, out)
		}
		if _, err := os.Stat(g.path("ran")); err == nil {
			t.Error("the command was run")
		}
	})
}

// TestScriptRunInTheBackground: neither the boot nor the report on the devices waits for the
// command.
func TestScriptRunInTheBackground(t *testing.T) {
	t.Parallel()
	g := newGuest(t)
	g.write("dev/ttyS0", "")
	begin := time.Now()
	cmd := g.start(running(t, "while [ ! -e "+g.path("go")+" ]; do sleep 0.1; done; echo gone"))
	if err := cmd.Run(); err != nil || time.Since(begin) > 5*time.Second {
		t.Fatalf("%v after %s", err, time.Since(begin))
	}
	reported := "\n" + mark + " devices=0 END\n"
	g.await("dev/ttyS0", strings.Repeat(reported, 3))
	g.write("go", "")
	for deadline := time.Now().Add(20 * time.Second); ; {
		text, err := os.ReadFile(g.path("dev/ttyS0"))
		if got := said(probe.ParseRun(string(text), nonce)); err == nil && got == `ended 0 ["gone"]` && strings.Count(string(text), " gap=") == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v:\n%s", err, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// records returns the records of a command as the script prints them.
func records(end string, lines ...string) string {
	var b strings.Builder
	for i, line := range lines {
		fmt.Fprintf(&b, "GPUSTACK-RUN v1 nonce=%s %d/%d:%d %s END\n", nonce, i+1, len(lines), len(line), line)
	}
	fmt.Fprintf(&b, "GPUSTACK-RUN v1 nonce=%s %s lines=%d gap=none END\n", nonce, end, len(lines))
	return b.String()
}

func TestParseRun(t *testing.T) {
	const exit0, without = "ended exit=0 from=10.00 to=12.50", "none"
	whole := records(exit0, "first", "second END", "")
	const want = `ended 0 ["first" "second END" ""]`
	broken := func(from, to string) string {
		t.Helper()
		if !strings.Contains(whole, from) {
			t.Fatalf("no %q", from)
		}
		return strings.ReplaceAll(whole, from, to)
	}
	for _, test := range []struct{ name, console, want string }{
		{"whole", whole, want},
		{"CR LF", strings.ReplaceAll(whole, "\n", "\r\n"), want},
		{"a prefix of cloud-init", strings.ReplaceAll(whole, "GPUSTACK", "[   12.3] cloud-init[512]: GPUSTACK"), want},
		{"kernel messages between", strings.ReplaceAll(whole, "\n", "\n[   12.3] random: crng init done\n"), want},
		{"a kernel message in a line", broken("first", "fi[   12.3] usb 1-1: x\r\nrst"), `ended 0 ["" "second END" ""] missing 1`},
		{"and a whole copy before", whole + broken("first", "fi[   12.3] usb 1-1: x\r\nrst"), want},
		{"and a whole copy after", broken("first", "fi[   12.3] usb 1-1: x\r\nrst") + whole, want},
		{"a lost byte", broken("first", "firt"), `ended 0 ["" "second END" ""] missing 1`},
		{"a lost line feed", broken("first END\n", "first END"), `ended 0 ["" "second END" ""] missing 1`},
		{"no END", strings.TrimSuffix(whole, " END\n"), without},
		{"a cut END", strings.TrimSuffix(whole, "D\n"), without},
		{"no record of the end", whole[:strings.LastIndex(whole, "GPUSTACK")], without},
		{"the begin is missing", whole[strings.Index(whole, "GPUSTACK-RUN v1 nonce="+nonce+" 2"):], `ended 0 ["" "second END" ""] missing 1`},
		{"another nonce", strings.ReplaceAll(whole, nonce, "7f3a00c2"), without},
		{"another version", strings.ReplaceAll(whole, "RUN v1", "RUN v2"), without},
		{"lines of another number", broken("1/3", "1/4"), `ended 0 ["" "second END" ""] missing 1`},
		{"a place beyond", broken("3/3", "4/3"), `ended 0 ["first" "second END" ""] missing 1`},
		{"a place of none", broken("1/3", "0/3"), `ended 0 ["" "second END" ""] missing 1`},
		{"a deadline", records("deadline exit= from=1.00 to=301.20", "a"), `deadline - ["a"]`},
		{"not run", records("unread exit= from= to="), "unread - []"},
		{"a deadline with a status", records("deadline exit=0 from=1.00 to=301.20"), without},
		{"an end without a status", records("ended exit= from=1.00 to=301.20"), without},
		{"a status of 256", records("ended exit=256 from=1.00 to=301.20"), without},
		{"another state", records("done exit=0 from=1.00 to=2.00"), without},
		{"too many lines", records(exit0, strings.Split(strings.Repeat("a\n", 65), "\n")...), without},
	} {
		t.Run(test.name, func(t *testing.T) {
			hosttest.Equal(t, test.want, said(probe.ParseRun(test.console, nonce)))
		})
	}
	// The command's end is no report on devices.
	if r, ok := probe.Parse(whole, nonce); ok {
		t.Errorf("%+v", r)
	}
	for end, want := range map[string]string{exit0: "2.5", "ended exit=0 from= to=": "-", "ended exit=0 from=5 to=4": "-", "ended exit=0 from=. to=.": "-"} {
		r, got := probe.ParseRun(records(end), nonce), "-"
		if r != nil && r.Seconds != nil {
			got = fmt.Sprint(*r.Seconds)
		}
		if got != want || r == nil {
			t.Errorf("%s: %s, want %s", end, got, want)
		}
	}
}

// TestJudge is the table of verdicts on commands.
func TestJudge(t *testing.T) {
	const exit0 = "ended exit=0 from=1.00 to=2.00"
	one := "GPU 0: Quadro K4200 (UUID: GPU-1)"
	two := "GPU 1: Quadro K4200 (UUID: GPU-2)"
	of := []string{"[CUDA Bandwidth Test] - Starting...", "Running on...", "", " Device 0: Tesla K80", " Quick Mode", " Host to Device Bandwidth, 1 Device(s)"}
	all := slices.Insert(slices.Clone(of), 1, "!!!!!Cumulative Bandwidth to be computed from all the devices !!!!!!")
	cutAfter := func(n int, lines ...string) string {
		return strings.Replace(records(exit0, lines...), "gap=none", fmt.Sprintf("gap=%d", n), 1)
	}
	table := func(gpus int) []string { // of nvidia-smi without options
		begin := []string{"| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |"}
		gpu := []string{
			"|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    0 |",
			"| N/A   31C    P0             76W /  700W |       0MiB / 143771MiB |      0%      Default |",
			"|                                         |                        |             Disabled |",
			"+-----------------------------------------+------------------------+----------------------+",
		}
		for i := range gpus {
			begin = append(slices.Clip(begin), strings.Replace(gpu[0], "|   0 ", fmt.Sprintf("|   %d ", i), 1))
			begin = append(begin, gpu[1:]...)
		}
		return begin
	}
	const cutReason = "part of nvidia-smi's list may have been left out: run it alone"
	for _, test := range []struct {
		name    string
		console string
		gpus    int
		want    probe.Verdict
		reasons string
	}{
		{"exit 0, unknown output", records(exit0, "hello"), 2, probe.Pass, ""},
		{"exit 0, no output", records(exit0), 2, probe.Pass, ""},
		{"exit 1", records("ended exit=1 from=1.00 to=2.00", "hello"), 2, probe.Fail, "the command returned exit status 1"},
		{"exit 124 is not the deadline", records("ended exit=124 from=1.00 to=2.00"), 2, probe.Fail, "the command returned exit status 124"},
		{"exit 126", records("ended exit=126 from=1.00 to=2.00"), 2, probe.Fail, "the command returned exit status 126: a program in it cannot be executed"},
		{"exit 127", records("ended exit=127 from=1.00 to=2.00"), 2, probe.Fail, "the command returned exit status 127: the image lacks a program in it"},
		{"killed", records("ended exit=137 from=1.00 to=2.00"), 2, probe.Fail,
			"the command returned exit status 137: signal 9 (kill, as by the kernel without free memory)"},
		{"another signal", records("ended exit=159 from=1.00 to=2.00"), 2, probe.Fail, "the command returned exit status 159: signal 31"},
		{"no signal", records("ended exit=255 from=1.00 to=2.00"), 2, probe.Fail, "the command returned exit status 255"},
		{"deadline", records("deadline exit= from=1.00 to=2.00", one, two), 2, probe.Fail, "the command did not end within 5m0s"},
		{"no END", "", 2, probe.Unknown, "the guest has not reported the end of the command"},
		{"a truncated END", strings.TrimSuffix(records(exit0, one, two), "ND\n"), 2, probe.Unknown, "the guest has not reported the end of the command"},
		{"not run", records("unread exit= from= to="), 2, probe.Unknown,
			"the command was not run: the guest has no folder for its output in /run, /dev/shm or /tmp"},
		{"as many GPUs", records(exit0, one, two), 2, probe.Pass, ""},
		{"fewer GPUs", records(exit0, one), 2, probe.Fail, "nvidia-smi lists 1 GPU, and the flavor has 2"},
		{"no GPUs", records(exit0, "No devices were found"), 2, probe.Fail, "nvidia-smi lists 0 GPUs, and the flavor has 2"},
		{"more GPUs", records(exit0, one, two, "GPU 2: Tesla T4 (UUID: GPU-3)"), 2, probe.Pass, ""},
		{"fewer GPUs, exit 9", records("ended exit=9 from=1.00 to=2.00", one), 2, probe.Fail,
			"the command returned exit status 9; nvidia-smi lists 1 GPU, and the flavor has 2"},
		{"a line is missing", strings.Replace(records(exit0, one, two), "Quadro", "Quad", 1), 2, probe.Unknown,
			"1 line of the command's output did not arrive whole"},
		{"a line is missing, exit 1", strings.Replace(records("ended exit=1 from=1.00 to=2.00", one, two), "Quadro", "Quad", 1), 2, probe.Fail,
			"the command returned exit status 1"},
		{"a line is missing, and others were left out", strings.Replace(cutAfter(1, one, two, "x"), "Quadro", "Quad", 1), 2, probe.Unknown,
			"1 line of the command's output did not arrive whole"},
		{"a list that is cut", cutAfter(1, one, "x"), 2, probe.Unknown, cutReason},
		{"a list that is cut at the end", cutAfter(1, one), 2, probe.Unknown, cutReason},
		{"a list that is cut, exit 1", strings.Replace(cutAfter(1, one, "x"), "exit=0", "exit=1", 1), 2, probe.Fail, "the command returned exit status 1"},
		{"a list that is cut, with all GPUs", cutAfter(2, one, two, "x"), 2, probe.Pass, ""},
		{"a list that is cut in its middle, with all GPUs", cutAfter(1, one, two), 2, probe.Pass, ""},
		{"the end of a list", cutAfter(1, "x", two), 2, probe.Unknown, cutReason},
		{"the second list is cut", cutAfter(3, one, two, one, "x"), 2, probe.Unknown, cutReason},
		{"the end of a second list", cutAfter(2, one, two, two), 2, probe.Unknown, cutReason},
		{"a list after lines that were left out", cutAfter(1, "x", one), 2, probe.Fail, "nvidia-smi lists 1 GPU, and the flavor has 2"},
		{"nvidia-smi with 7 GPUs, and 40 lines", cutAfter(24, slices.Concat(table(7)[:24], slices.Repeat([]string{"x"}, 40))...), 8, probe.Unknown, cutReason},
		{"nvidia-smi with 8 GPUs, and 40 lines", cutAfter(24, slices.Concat(table(8)[:24], slices.Repeat([]string{"x"}, 40))...), 8, probe.Unknown, cutReason},
		{"a title alone", cutAfter(1, " CUDA Device Query (Runtime API) version (CUDART static linking)", "x"), 2, probe.Unknown,
			strings.Replace(cutReason, "nvidia-smi", "deviceQuery", 1)},
		{"a number after lines that were left out", cutAfter(1, " CUDA Device Query (Runtime API) version (CUDART static linking)",
			"Detected 1 CUDA Capable device(s)"), 2, probe.Fail, "deviceQuery lists 1 GPU, and the flavor has 2"},
		{"a list that is cut, of a flavor without GPUs of NVIDIA", cutAfter(1, one, "x"), 0, probe.Pass, ""},
		{"two programs, the second lists fewer", records(exit0, one, two, " CUDA Device Query (Runtime API) version (CUDART static linking)", "",
			"Detected 1 CUDA Capable device(s)"), 2, probe.Fail, "deviceQuery lists 1 GPU, and the flavor has 2"},
		{"twice the same, the second lists fewer", records(exit0, one, two, one), 2, probe.Fail, "nvidia-smi lists 1 GPU, and the flavor has 2"},
		{"a program that uses fewer than there are", records(exit0, of...), 2, probe.Pass, ""},
		{"a program that uses all, and finds fewer", records(exit0, all...), 2, probe.Fail, "bandwidthTest lists 1 GPU, and the flavor has 2"},
		{"a flavor without GPUs of NVIDIA", records(exit0, "No devices were found"), 0, probe.Pass, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, reasons := probe.Judge(probe.ParseRun(test.console, nonce), 5*time.Minute, test.gpus)
			if text := strings.Join(reasons, "; "); got != test.want || text != test.reasons {
				t.Errorf("%s, %q, want %s, %q", got, text, test.want, test.reasons)
			}
		})
	}
}

// TestBeforeRun: the output of a command is not among the lines of a console that are shown.
func TestBeforeRun(t *testing.T) {
	run := records("ended exit=0 from=1.00 to=2.00", "secret", "secret too")
	for console, want := range map[string]string{
		"":                                   "",
		"one\r\ntwo\r\n":                     "one\ntwo\n",
		"one\ntwo\n" + run + "login: ":       "two\n",
		"ret 1/2 END\ntwo\n[    1.0] " + run: "two\n",
		"ret END":                            "ret END",
		run:                                  "",
		run[30:]:                             "",
		"one\ntwo\n" + run[:40]:              "two\n",
		"one\ngpustack-test-" + nonce + " login:\n" + two + "\n" + run: "gpustack-test-" + nonce + " login:\n" + two + "\n",
	} {
		hosttest.EqualIn(t, console, want, probe.BeforeRun(console, nonce))
	}
	// Kernel messages that break a record leave no text of it, wherever they do, also if another
	// one breaks the rest of its mark.
	for first := range len(run) {
		for second := first + 1; second <= min(len(run), len("GPUSTACK-RUN v1 nonce="+nonce)); second++ {
			const message = "[   12.3] usb 1-1: x\r\n"
			console := "one\n" + two + "\n" + run[:first] + message + run[first:second] + message + run[second:]
			if got := probe.BeforeRun(console, nonce); strings.Contains(got, "secret") || !strings.HasPrefix(got, two+"\n") {
				t.Errorf("%q: %q", console, got)
			}
		}
		console := "one\n" + two + "\n" + run[:first] + "[   12.3] usb 1-1: x\r\n" + run[first:]
		if got := probe.BeforeRun(console, nonce); strings.Contains(got, "secret") || !strings.HasPrefix(got, two+"\n") {
			t.Errorf("%q: %q", console, got)
		}
	}
}

// TestScriptRunBegin: a record without text comes before those with the output, so that a kernel
// message in the first mark shows none.
func TestScriptRunBegin(t *testing.T) {
	t.Parallel()
	out, err := newGuest(t).start(running(t, "echo secret")).CombinedOutput()
	begin := "GPUSTACK-RUN v1 nonce=" + nonce + " begin END\n"
	if text := string(out); err != nil || strings.Count(text, begin+"GPUSTACK-RUN v1 nonce="+nonce+" 1/1:6 secret END\n") != 3 {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestWorse(t *testing.T) {
	order := []probe.Verdict{probe.Pass, probe.Unknown, probe.Fail}
	for i, a := range order {
		for j, b := range order {
			hosttest.EqualIn(t, fmt.Sprintf("%s and %s", a, b), order[max(i, j)], probe.Worse(a, b))
		}
	}
}

// TestGPUs: only GPUs of NVIDIA count, by the class that they have in the guest.
func TestGPUs(t *testing.T) {
	r, ok := probe.Parse(mark+" devices=6 0000:00:05.0=10de:2330:ok:0302 0000:00:06.0=10de:2330:ok:0302 0000:00:07.0=10de:22a3:ok:0680 "+
		"0000:00:08.0=10de:0e0a:ok:0403 0000:00:09.0=15b3:101e:ok:0207 0000:00:0a.0=1002:74a1:ok:1200 END", nonce)
	if !ok {
		t.Fatal("no report")
	}
	for _, test := range []struct {
		wanted string
		want   int
	}{
		{"10de:2330=2", 2}, {"10de:2330=8 10de:22a3=4", 8}, {"10de:0e0a=1", 0}, {"15b3:101e=1", 0}, {"1002:74a1=1", 0}, {"10de:2331=1", 0},
	} {
		hosttest.EqualIn(t, test.wanted, test.want, probe.GPUs(counts(t, test.wanted), r))
	}
}

// FuzzParseRun: records that are not disturbed are read whatever the console shows before them, and
// no console makes a command that ended without a status.
func FuzzParseRun(f *testing.F) {
	whole := records("ended exit=0 from=1.00 to=2.00", "a", "b")
	for _, seed := range []string{whole, whole[:40], "", "\x1b["} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, console string) {
		r := probe.ParseRun(console, nonce)
		if r != nil && (r.State == probe.RunEnded) != (r.ExitStatus != nil) {
			t.Fatalf("%+v", r)
		}
		if r != nil && (len(r.Lines) > 64 || r.Missing < 0 || r.Missing > len(r.Lines)) {
			t.Fatalf("%+v", r)
		}
		if got := said(probe.ParseRun(console+"\n"+whole, nonce)); got != `ended 0 ["a" "b"]` {
			t.Fatalf("%s", got)
		}
	})
}
