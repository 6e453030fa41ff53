package servertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
	"gpustack/nova/cloud"
	"gpustack/nova/probe"
)

// errWrongHost says that the scheduler has not used the requested host.
var errWrongHost = host.WithHint(errors.New("is not on the requested host"), "requesting a host needs an administrator; 'openstack server show' names the host")

// Outcome is the result of the test of one server.
type Outcome struct {
	Server
	Project string        `json:"-"`                   // the id of the project that has the server
	Host    string        `json:"host" null:"zero"`    // the server's host; null if the user may not see it
	Verdict probe.Verdict `json:"verdict" null:"zero"` // the result; null before the test
	Reasons []string      `json:"reasons"`             // why the verdict is not "pass", for people
	Hints   []host.Text   `json:"hints"`               // what to do about these reasons, for people
	// the number of wanted devices in the guest, by product; null if it has not reported
	Seen map[probe.ID]int `json:"seen" null:"zero"`
	// the number of the guest's other functions without bridges, by product; null if it has not
	// reported
	Others map[probe.ID]int `json:"others" null:"zero"`
	// wanted devices with a memory region that has no address in the guest, by their addresses
	// there
	Unassigned []pci.Address `json:"unassigned"`
	// the result of the command; null without one, and until its guest has reported the end
	Run  *probe.Run `json:"run"`
	GPUs int        `json:"-"` // of NVIDIA that the guest should have, by the classes of its functions
	// the last lines of its console; null without --console
	Console []string `json:"console_lines" null:"zero"`
	Seconds Seconds  `json:"seconds"` // how long the parts of the test took
	Deleted bool     `json:"deleted"` // whether the server is deleted
	Freed            // after the server was deleted
	Err     error    `json:"-"` // the test could not be made; Verdict is unknown
}

// Seconds are how long the parts of a test took, to a tenth.
type Seconds struct {
	// from the request until the server was active; null if it was not
	Build  *float64 `json:"build"`
	Guest  *float64 `json:"guest"`  // from then until the guest has reported; null if it has not
	Delete *float64 `json:"delete"` // from the request until Nova no longer had the server
}

// secondsSince returns the seconds since a time, to a tenth.
func secondsSince(t time.Time) *float64 {
	return new(math.Round(time.Since(t).Seconds()*10) / 10)
}

// settle adds whether the devices of the server are free after it was deleted. Devices that are not
// free make the verdict fail; if that is not verified, the verdict stays.
func (o *Outcome) settle(f Freed) {
	if o.Freed = f; f.Free != host.No {
		return
	}
	o.Verdict = probe.Fail
	o.Reasons = append(o.Reasons, "the devices are not free again: "+f.Why)
	o.Hints = append(o.Hints, host.Textf("%s", host.NewCommand("repair-migration").Flag("instance", o.ID)))
}

// leave adds that the server could not be deleted, so that it still has its devices. A test that
// has passed until then is unknown.
func (o *Outcome) leave() {
	if o.Verdict == probe.Pass {
		o.Verdict = probe.Unknown
	}
	o.Reasons = append(o.Reasons, "the server could not be deleted, and still has its devices")
}

// Progress is what is known of a server while it is tested, for the operator.
type Progress struct {
	Server Server
	Status string // such as BUILD or ACTIVE
	Since  time.Duration
	Line   string // the last line of the console
}

// Test carries a plan out: Create, Watch and End, in this order.
type Test struct {
	Kind
	Plan     Plan
	Evidence Evidence
	Engine   change.Engine  // that records the servers
	Progress func(Progress) // called with each answer, from several goroutines; nil for none
	Warn     func(string)   // called with what does not prevent the test; nil for none
}

// Watch waits until each server has reported or the time of the plan is over, all at the same time.
// The time of a command begins when the guest has reported its devices.
func (t Test) Watch(ctx context.Context, servers []Server) []Outcome {
	outcomes := make([]Outcome, len(servers))
	var wait sync.WaitGroup
	for i, s := range servers {
		wait.Go(func() { outcomes[i] = t.watch(ctx, s) })
	}
	wait.Wait()
	return outcomes
}

// errSilent is the cause of a context whose time is over.
var errSilent = errors.New("the time of the test is over")

// watched is a server that is being watched.
type watched struct {
	Test
	Outcome
	started time.Time
	phase   string // what the operator sees while the console is read
	unread  error  // why the console log was not read at last
	errored bool   // Nova has given the server up
}

func (t Test) watch(ctx context.Context, s Server) Outcome {
	w := &watched{Test: t, Outcome: Outcome{Server: s, Verdict: probe.Unknown}, started: time.Now(), phase: "ACTIVE"}
	limited, cancel := context.WithTimeoutCause(ctx, t.Plan.Timeout, errSilent)
	defer cancel()
	if w.build(limited) && w.guest(limited) && !t.Plan.Command.IsNone() {
		w.command(ctx)
	}
	return w.Outcome
}

// ended completes the outcome of a server that could not be watched to the end. Its caller then
// returns.
func (w *watched) ended(ctx context.Context, err error, silent ...string) {
	switch cause := context.Cause(ctx); {
	case cause != nil && errors.Is(cause, errSilent):
		w.Reasons = append(w.Reasons, silent...)
	case cause != nil:
		w.Err = cause
	case errors.Is(err, cloud.ErrNotFound):
		w.Reasons = append(w.Reasons, "another client has deleted the server")
	default:
		w.Err = err
	}
}

func (w *watched) say(status, line string) {
	if w.Progress != nil {
		w.Progress(Progress{w.Server, status, time.Since(w.started), line})
	}
}

// build waits until the server is active. It returns false if it is not.
func (w *watched) build(ctx context.Context) bool {
	pace, status := w.Pace.withDefaults(), "BUILD"
	for {
		is, err := w.Compute.GetServer(ctx, w.ID)
		switch {
		case err != nil && !passes(err) || context.Cause(ctx) != nil:
			w.ended(ctx, err, w.stillBuilding(status))
			return false
		case err != nil: // asked again
		case is.Status == "ERROR":
			w.failed(is)
			return false
		case is.Status != "BUILD":
			w.Host, w.Project = is.Host, is.Project
			w.Seconds.Build = secondsSince(w.started)
			if w.Plan.Host != "" && is.Host != "" && is.Host != w.Plan.Host {
				w.Err = fmt.Errorf("server %s %w: it is on %s instead of %s", w.ID, errWrongHost, is.Host, w.Plan.Host)
				return false
			}
			w.say(is.Status, "")
			return true
		default:
			status = is.Status
			if is.Task != "" {
				status += " (" + is.Task + ")"
			}
			w.say(status, "")
		}
		if !pace.pause(ctx, w.started) {
			w.ended(ctx, err, w.stillBuilding(status))
			return false
		}
	}
}

func (w *watched) stillBuilding(status string) string {
	return fmt.Sprintf("the server is not active after %s: %s", w.Plan.Timeout, status)
}

// failed completes the outcome of a server that Nova could not build, or that fails later.
func (w *watched) failed(is cloud.Server) {
	w.errored, w.Verdict, w.Host, w.Project = true, probe.Fail, is.Host, is.Project
	w.Reasons = append(w.Reasons, "nova: "+strings.TrimSuffix(strings.Join(strings.Fields(is.Fault), " "), "."))
	if strings.Contains(is.Fault, "No valid host") {
		w.Hints = append(w.Hints, host.Plain(w.Plan.byHand()),
			host.Textf("%s", host.NewCommand("nova explain").Flag("flavor", w.Plan.Flavor.Name)))
	}
}

// byHand says what to look at if the scheduler finds no host.
func (p *Plan) byHand() string {
	text := "check, in this order: free devices (" + strings.Join(p.Wanted.From, "; ") +
		") in Placement or nova.pci_devices; device_spec of the compute nodes with these ids; " +
		"PciPassthroughFilter in enabled_filters of the scheduler; vCPUs, RAM and disk"
	if p.Zone != "" {
		text += "; hosts in availability zone " + p.Zone
	}
	if p.Host != "" {
		text += "; whether nova-compute on " + p.Host + " is up and enabled"
	}
	if policy := p.Flavor.ExtraSpecs["hw:pci_numa_affinity_policy"]; policy != "" {
		text += "; NUMA policy " + policy
	}
	return text
}

// guest waits until the guest has reported its devices. It returns false if it has not.
func (w *watched) guest(ctx context.Context) bool {
	if w.Plan.windows() {
		w.Reasons = append(w.Reasons, "the devices were not counted: a guest with os_type=windows does not run the script")
		w.Hints = append(w.Hints, host.Plain(windowsHint))
		return false
	}
	begun := time.Now()
	if !w.listen(ctx, w.report, w.silent) {
		return false
	}
	w.Seconds.Guest = secondsSince(begun)
	return true
}

// command waits until the guest has reported what became of the command, for as long as it may
// take, and completes the verdict.
func (w *watched) command(ctx context.Context) {
	limited, cancel := context.WithTimeoutCause(ctx, w.Plan.Command.Wait()+w.Pace.withDefaults().Report, errSilent)
	defer cancel()
	w.phase = "ACTIVE (command)"
	silent := func(ctx context.Context, err error) { w.ended(ctx, err, w.unreadable()...) }
	if !w.listen(limited, w.ran, silent) && w.Err != nil {
		w.Verdict = probe.Worse(w.Verdict, probe.Unknown)
		return
	}
	verdict, reasons := probe.Judge(w.Run, w.Plan.Command.Wait(), w.GPUs)
	w.Verdict, w.Reasons = probe.Worse(w.Verdict, verdict), append(w.Reasons, reasons...)
	switch {
	case w.Run == nil && (w.errored || w.unread != nil): // the reason says it
	case w.Run == nil:
		w.Hints = append(w.Hints, host.Plain("the command may have stopped or rebooted the guest: --keep-server keeps the server for a look at it"))
	case verdict != probe.Pass:
		w.Hints = append(w.Hints, host.Plain("--console prints the output of the command, and --keep-server keeps the server for a look at it"))
	}
}

// ran reads what became of the command. It returns false while the text of the console does not
// have all of it.
func (w *watched) ran(text string) bool {
	w.Console, w.unread = w.lastLines(text), nil
	r := probe.ParseRun(text, w.Nonce)
	if r == nil {
		return false
	}
	w.Run = r
	return r.Missing == 0
}

// listen reads the console of the server until heard accepts its text. It returns false, with the
// outcome complete, if it does not: silent is called if the time is over.
func (w *watched) listen(ctx context.Context, heard func(text string) bool, silent func(context.Context, error)) bool {
	pace, begun, last := w.Pace.withDefaults(), time.Now(), time.Now()
	for {
		text, err := w.Compute.Console(ctx, w.ID)
		switch {
		case context.Cause(ctx) != nil:
			silent(ctx, err)
			return false
		case errors.Is(err, cloud.ErrNoConsole):
			w.Reasons = append(w.Reasons, "the hypervisor has no console log")
			return false
		case err == nil:
			if heard(text) {
				return true
			}
		case errors.Is(err, cloud.ErrUnauthorized):
			w.Err = err
			return false
		case !passes(err) && !errors.Is(err, cloud.ErrConsoleNotReady):
			w.unread = err
			if errors.Is(err, cloud.ErrForbidden) {
				w.Reasons = append(w.Reasons, err.Error())
				return false
			}
		}
		w.say(w.phase, w.lastLine())
		// The server may fail, end or be deleted meanwhile: one look for several at its console.
		if time.Since(last) > pace.Look {
			last = time.Now()
			if !w.lives(ctx) {
				return false
			}
		}
		if !pace.pause(ctx, begun) {
			silent(ctx, err)
			return false
		}
	}
}

// lives reports whether a server without a report may still report.
func (w *watched) lives(ctx context.Context) bool {
	is, err := w.Compute.GetServer(ctx, w.ID)
	switch {
	case err != nil && passes(err) || context.Cause(ctx) != nil:
		return true
	case err != nil:
		w.ended(ctx, err)
	case is.Status == "ERROR":
		w.failed(is)
	case is.Status == "SHUTOFF":
		w.Reasons = append(w.Reasons, "the guest was powered off before it reported")
	default:
		return true
	}
	return false
}

// report reads a report on devices. It returns false if the text of the console has none.
func (w *watched) report(text string) bool {
	w.Console, w.unread = w.lastLines(text), nil
	r, ok := probe.Parse(text, w.Nonce)
	if !ok {
		return false
	}
	result := probe.Compare(w.Plan.Wanted.IDs, r)
	w.Verdict, w.Seen, w.Others, w.Unassigned, w.Reasons = result.Verdict, result.Seen, result.Others, result.Unassigned, result.Reasons
	w.GPUs = probe.GPUs(w.Plan.Wanted.IDs, r)
	if result.Remedy != "" {
		w.Hints = append(w.Hints, host.Plain(result.Remedy))
	}
	return true
}

// shownLines is how many lines of a console are shown.
const shownLines = 20

// lastLines returns the last lines of a console, without control characters. With a command, they
// are those before its output, which may contain secrets: the text is cut there.
func (w *watched) lastLines(text string) []string {
	lines, plain := []string{}, probe.Plain(text)
	if !w.Plan.Command.IsNone() {
		plain = probe.BeforeRun(text, w.Nonce)
	}
	for line := range strings.Lines(plain) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-shownLines):]
}

func (w *watched) lastLine() string {
	if len(w.Console) == 0 {
		return ""
	}
	return w.Console[len(w.Console)-1]
}

// unreadable returns the reason that the console log was not read at last, or nil if it was.
func (w *watched) unreadable() []string {
	if w.unread == nil {
		return nil
	}
	return []string{fmt.Sprintf("the console log cannot be read: %v", w.unread)}
}

// silent completes the outcome of a guest that has not reported in time.
func (w *watched) silent(ctx context.Context, err error) {
	why := fmt.Sprintf("the guest has not reported within %s: its console has no output", w.Plan.Timeout)
	hints := "the image may lack cloud-init, its guest may hang (console=ttyS0 among its kernel arguments would show where), or have no first " +
		"serial port; --wait waits longer"
	switch unreadable := w.unreadable(); {
	case unreadable != nil:
		why, hints = unreadable[0], ""
	case len(w.Console) > 0:
		why = fmt.Sprintf("the guest has not reported within %s: its console has other output", w.Plan.Timeout)
		hints = "the image may lack cloud-init, not write to its serial console, or hang; --wait waits longer"
	}
	if w.ended(ctx, err, why); w.Err == nil && hints != "" {
		w.Hints = append(w.Hints, host.Plain(hints))
	}
}
