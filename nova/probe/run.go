package probe

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/cuda"
)

// Run is what became of a command in a guest.
type Run struct {
	State RunState `json:"state"` // how the command ended
	// the exit status of a command that ended; 128 and the number of the signal that ended it
	ExitStatus *int `json:"exit_status"`
	// how long it ran, by the guest's clock since boot, to a tenth; null if unknown
	Seconds *float64 `json:"elapsed_seconds"`
	// results of the programs that gpustack recognizes in its output, in order
	Programs []cuda.Program `json:"gpu_programs"`
	// the first and last lines of its output, "..." for lines left out; null without --console
	Output []string `json:"output_lines" null:"zero"`

	Lines   []string `json:"-"` // the first and the last lines of its output
	Gap     *int     `json:"-"` // how many of Lines come before those that were left out; nil if none were
	Missing int      `json:"-"` // lines that the console does not have whole; they are "" in Lines
}

// RunState says how a command ended.
type RunState string

// The states of a command.
const (
	RunEnded    RunState = "ended"
	RunDeadline RunState = "deadline" // its time was over, and the guest has killed it
	RunUnread   RunState = "unread"   // it was not run: the guest has no folder for its output
)

// maxLines is how many lines the script prints.
const maxLines = 64

// runMark begins each record of a command, up to the nonce.
const runMark = "GPUSTACK-RUN v1 nonce="

// Records of the script, after the mark.
var (
	runLine = host.LazyRegexp(`^([0-9]{1,2})/([0-9]{1,2}):([0-9]{1,3}) `)
	runEnd  = host.LazyRegexp(`^([a-z]+) exit=([0-9]{0,3}) from=([0-9]*\.?[0-9]*) to=([0-9]*\.?[0-9]*) lines=([0-9]{1,2}) gap=(none|[0-9]{1,2}) END`)
)

// ParseRun returns what became of the command of the test with nonce, from the last record of its
// end and all whole records of lines in a console's text. It returns nil without an end. The report
// on devices need not be there: Nova returns only the end of a long console.
func ParseRun(console, nonce string) (r *Run) {
	lines := map[int]map[int]string{} // by their number, then by place
	for line := range strings.SplitSeq(Plain(console), "\n") {
		at := strings.LastIndex(line, runMark+nonce+" ")
		if at < 0 {
			continue
		}
		record := line[at+len(runMark+nonce+" "):]
		if m := runLine().FindStringSubmatch(record); m != nil {
			// All are numbers of at most three digits.
			place, _ := strconv.Atoi(m[1])
			count, _ := strconv.Atoi(m[2])
			length, _ := strconv.Atoi(m[3])
			said, ok := cutAt(record[len(m[0]):], length)
			if !ok || place < 1 || place > count {
				continue
			}
			if lines[count] == nil {
				lines[count] = map[int]string{}
			}
			lines[count][place] = said
		} else if end := parseRunEnd(record); end != nil {
			r = end
		}
	}
	if r == nil {
		return nil
	}
	whole := lines[len(r.Lines)]
	for i := range r.Lines {
		r.Lines[i] = whole[i+1]
	}
	r.Missing = len(r.Lines) - len(whole)
	r.Programs, r.Output = cuda.Programs(cuda.Output{Lines: r.Lines, Gap: r.Gap, Missing: r.Missing}), r.output()
	return r
}

// BeforeRun returns the text of a console before the first line with a record of a command or with
// a part of one, as Plain does. If there is such a line, the first line of the console is left out
// too: it may be the rest of a record, as Nova returns only the end of a long console.
func BeforeRun(console, nonce string) string {
	plain := Plain(console)
	at := 0
	for line := range strings.Lines(plain) {
		if ofRun(line, nonce) {
			_, before, _ := strings.Cut(plain[:at], "\n")
			return before
		}
		at += len(line)
	}
	return plain
}

// ofRun reports whether a line contains the mark of a command's record, or a part of it that a
// kernel message has left: of a mark in three parts, at least one is that long. Neither the report
// on devices nor the name of the server has such a part, unless the report is broken itself.
func ofRun(line, nonce string) bool {
	const part = 10
	line = strings.ReplaceAll(line, " v1 nonce="+nonce+" devices=", " ")
	mark := runMark + nonce
	for i := range len(mark) - part + 1 {
		if strings.Contains(line, mark[i:i+part]) {
			return true
		}
	}
	return false
}

// cutAt returns the text of a record, which has this length and is followed by END.
func cutAt(s string, length int) (text string, ok bool) {
	if len(s) < length || !strings.HasPrefix(s[length:], " END") {
		return "", false
	}
	return s[:length], true
}

// parseRunEnd parses the record of a command's end. Lines of the result are empty.
func parseRunEnd(record string) *Run {
	m := runEnd().FindStringSubmatch(record)
	if m == nil {
		return nil
	}
	r := &Run{State: RunState(m[1])}
	exit, exitErr := strconv.Atoi(m[2])
	switch r.State {
	case RunEnded:
		if exitErr != nil || exit > 255 {
			return nil
		}
		r.ExitStatus = &exit
	case RunDeadline, RunUnread:
		if m[2] != "" {
			return nil
		}
	default:
		return nil
	}
	from, fromErr := strconv.ParseFloat(m[3], 64)
	to, toErr := strconv.ParseFloat(m[4], 64)
	const centuries = 1e10 // more seconds than a guest can run
	if fromErr == nil && toErr == nil && from <= to && to < centuries {
		r.Seconds = new(math.Round((to-from)*10) / 10)
	}
	count, _ := strconv.Atoi(m[5]) // two digits
	if m[6] != "none" {
		gap, _ := strconv.Atoi(m[6])
		r.Gap = &gap
	}
	if count > maxLines || r.Gap != nil && *r.Gap > count {
		return nil
	}
	r.Lines = make([]string, count)
	return r
}

// output returns the lines of the command's output with a note where lines are missing.
func (r *Run) output() []string {
	if r.Gap == nil {
		return r.Lines
	}
	return slices.Insert(slices.Clone(r.Lines), *r.Gap, "...")
}

// Signals are those that end processes for a reason outside of them, which helps to find it.
var signals = map[int]string{6: "abort", 9: "kill, as by the kernel without free memory", 11: "segmentation fault", 15: "termination"}

// failure returns why the end of a command is a failure, or "".
func (r *Run) failure(wait time.Duration) string {
	switch {
	case r.State == RunDeadline:
		return fmt.Sprintf("the command did not end within %s", wait)
	case r.ExitStatus == nil || *r.ExitStatus == 0:
		return ""
	}
	text := fmt.Sprintf("the command returned exit status %d", *r.ExitStatus)
	switch status := *r.ExitStatus; {
	case status == 126:
		text += ": a program in it cannot be executed"
	case status == 127:
		text += ": the image lacks a program in it"
	case status > 128 && signals[status-128] != "":
		text += fmt.Sprintf(": signal %d (%s)", status-128, signals[status-128])
	case status > 128 && status <= 128+64:
		text += fmt.Sprintf(": signal %d", status-128)
	}
	return text
}

// doubts returns why a command without a failure has not passed, in a guest that should have so
// many GPUs: its output is not known well enough.
func (r *Run) doubts(gpus int) (reasons []string) {
	if r.Missing > 0 {
		return []string{host.Numbered(r.Missing, "line") + " of the command's output did not arrive whole"}
	}
	return host.Map(host.Filter(r.Programs, func(p cuda.Program) bool { return p.ListsAll && p.Cut && p.Seen < gpus }),
		func(p cuda.Program) string {
			return "part of " + p.Name + "'s list may have been left out: run it alone"
		})
}

// Judge returns the verdict on a command that had so much time, in a guest that should have so many
// GPUs of NVIDIA, and why it is not pass. r is nil if the guest has not reported its end.
func Judge(r *Run, wait time.Duration, gpus int) (v Verdict, reasons []string) {
	switch {
	case r == nil:
		return Unknown, []string{"the guest has not reported the end of the command"}
	case r.State == RunUnread:
		return Unknown, []string{"the command was not run: the guest has no folder for its output in /run, /dev/shm or /tmp"}
	}
	v = Pass
	if failure := r.failure(wait); failure != "" {
		v, reasons = Fail, append(reasons, failure)
	}
	for _, p := range r.Programs {
		if p.ListsAll && p.GPUs != nil && *p.GPUs < gpus {
			v, reasons = Fail, append(reasons, fmt.Sprintf("%s lists %s, and the flavor has %d", p.Name, host.Numbered(*p.GPUs, "GPU"), gpus))
		}
	}
	if v == Fail {
		return v, reasons
	}
	if reasons = r.doubts(gpus); len(reasons) > 0 {
		v = Unknown
	}
	return v, reasons
}

// Worse returns the worse of two verdicts: fail before unknown before pass.
func Worse(a, b Verdict) Verdict {
	for _, v := range []Verdict{Fail, Unknown} {
		if a == v || b == v {
			return v
		}
	}
	return Pass
}
