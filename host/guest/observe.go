package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/pci"
)

// NovaConf is the host's name as nova.conf sets it, for [Observe].
type NovaConf struct {
	Files []string // the files that were read; none without a nova.conf
	Host  *string  // the option "host"; nil if it is not set
	From  string   // the file that sets it
	Err   error    // why the option could not be read
}

// Observe makes the report of the machine below root. It never fails: the report lists the sources
// that could not be read. The caller sets Clock and Token, which are not below the root.
func Observe(root host.Root, nova NovaConf, now time.Time) Report {
	return observe(root, now, func(o *observer) {
		o.novaHost(nova)
		o.virtualFunctions()
	})
}

// ObserveUses makes a report of the processes and guests that use functions: its host in Nova and
// its virtual functions are unread.
func ObserveUses(root host.Root) Report {
	return observe(root, time.Now(), func(*observer) {})
}

// observe makes a report; rest reads what reports of uses do not have.
func observe(root host.Root, now time.Time, rest func(*observer)) Report {
	o := observer{
		root:     root,
		report:   Report{Schema: Schema, Collected: now.UTC()},
		accesses: map[string]*access{},
	}
	r := &o.report
	r.Hostname = checked(&o, sourceHostname, o.line(sourceHostname, "/proc/sys/kernel/hostname"), host.ParseName)
	r.MachineID = checked(&o, sourceMachineID, o.line(sourceMachineID, "/etc/machine-id"), host.ParseMachineID)
	r.BootID = o.line(sourceBootID, "/proc/sys/kernel/random/boot_id")
	r.Booted = o.booted()
	o.uptime = o.readUptime()
	rest(&o)
	o.nodes = o.readNodes()
	processes := o.processes()
	o.guests(processes)
	o.holders(processes)
	o.domains(processes)
	r.Complete = true
	for _, name := range sourceNames() {
		s := o.access(name).source(name)
		r.Sources = append(r.Sources, s)
		r.Complete = r.Complete && s.State == Read
	}
	o.markEmpty()
	return *r
}

// observer makes a report.
type observer struct {
	root   host.Root
	report Report
	uptime *time.Duration           // since boot; nil: unknown
	nodes  map[string][]pci.Address // functions of the nodes of vDPA devices

	accesses map[string]*access
}

// access is how reading a source went: the files that were read, and the failures.
type access struct {
	read, absent, failures []string
	denied                 bool // a failure is one of permission
}

func (o *observer) access(name string) *access {
	if o.accesses[name] == nil {
		o.accesses[name] = &access{}
	}
	return o.accesses[name]
}

// fail records that a file could not be read.
func (l *access) fail(name string, err error) {
	err = host.OfFile(name, err)
	if host.IsAbsent(err) {
		l.absent = append(l.absent, err.Error())
		return
	}
	l.failf("%w", err)
}

// failf records a failure, an error as [fmt.Errorf] returns it.
func (l *access) failf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	l.failures = append(l.failures, err.Error())
	l.denied = l.denied || errors.Is(err, fs.ErrPermission)
}

func (l *access) source(name string) Source {
	switch {
	case len(l.failures) > 0:
		return Source{Name: name, State: Unreadable, Detail: valid(summary(l.failures)), Denied: l.denied}
	case len(l.absent) > 0:
		return Source{Name: name, State: Absent, Detail: valid(summary(l.absent))}
	case len(l.read) == 0:
		return Source{Name: name, State: Unreadable, Detail: "was not read"}
	}
	return Source{Name: name, State: Read, Detail: strings.Join(l.read, ", ")}
}

func (o *observer) isRead(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return o.access(name).source(name).State != Read })
}

// summary joins the first eight of the failures, of which there may be thousands.
func summary(failures []string) string {
	const most = 8
	if len(failures) <= most {
		return strings.Join(failures, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(failures[:most], "; "), len(failures)-most)
}

// valid replaces invalid UTF-8. The names and arguments of any user's processes become part of the
// report.
func valid(text string) string {
	return strings.ToValidUTF8(text, "\ufffd")
}

// line returns the first line of a file that is a source of its own.
func (o *observer) line(source, name string) *string {
	l := o.access(source)
	data, err := o.root.ReadHead(name, 512)
	if err != nil {
		l.fail(name, err)
		return nil
	}
	line, _, _ := strings.Cut(string(data), "\n")
	line = valid(strings.TrimSpace(line))
	// The kernel's hostname before it is set, and systemd's machine ID before the first boot.
	if line == "" || line == "(none)" || line == "uninitialized" {
		l.failf("%s: not set: %q", name, line)
		return nil
	}
	l.read = append(l.read, name)
	return &line
}

// checked returns the text of a source, or nil if it cannot be parsed.
func checked[T any](o *observer, source string, text *string, parse func(string) (T, error)) *string {
	if text != nil {
		if _, err := parse(*text); err != nil {
			o.access(source).failf("%s", err)
			return nil
		}
	}
	return text
}

// booted returns when the machine was booted (proc_stat(5), btime).
func (o *observer) booted() *time.Time {
	const name = "/proc/stat"
	l := o.access(sourceBootTime)
	data, err := o.root.ReadFile(name)
	if err != nil {
		l.fail(name, err)
		return nil
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "btime "); ok {
			seconds, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil || seconds <= 0 {
				l.failf("%s: not a time: %q", name, strings.TrimSpace(value))
				return nil
			}
			l.read = append(l.read, name)
			booted := time.Unix(seconds, 0).UTC()
			return &booted
		}
	}
	l.failf("%s: no btime line", name)
	return nil
}

// tick is the unit of times since boot, for every program (USER_HZ; proc_pid_stat(5), starttime).
const tick = 10 * time.Millisecond

// started converts the start time of a process from ticks since boot.
func (o *observer) started(ticks uint64) *time.Time {
	if o.report.Booted == nil {
		return nil
	}
	t := o.report.Booted.Add(time.Duration(ticks) * tick)
	return &t
}

// age returns for how many whole seconds a process has been running that was started some ticks
// after boot. Unlike the time of boot, the uptime does not change when the clock is set.
func (o *observer) age(ticks uint64) *int {
	if o.uptime == nil {
		return nil
	}
	seconds := int(max(0, *o.uptime-time.Duration(ticks)*tick) / time.Second)
	return &seconds
}

// readUptime returns the time since boot with the time that the machine was suspended
// (CLOCK_BOOTTIME; proc_uptime(5)), as the start times of processes count it. It is no source: ages
// that need it are then unknown.
func (o *observer) readUptime() *time.Duration {
	data, err := o.root.ReadHead("/proc/uptime", 64)
	if err != nil {
		return nil
	}
	first, _, _ := strings.Cut(string(data), " ")
	uptime, err := time.ParseDuration(first + "s")
	if err != nil || uptime < 0 {
		return nil
	}
	return &uptime
}

// novaHost sets the name that Nova has for the host: its option "host", by default
// socket.gethostname() (nova/conf/netconf.py). Without a nova.conf the hostname is only a guess,
// and the source is absent.
func (o *observer) novaHost(nova NovaConf) {
	l := o.access(sourceNovaConf)
	switch {
	case nova.Err != nil:
		l.failf("%s", strings.ReplaceAll(nova.Err.Error(), "\n", "; "))
		return
	case len(nova.Files) == 0:
		l.absent = append(l.absent, "no nova.conf found")
	default:
		l.read = nova.Files
	}
	from := "hostname"
	o.report.NovaHost = o.report.Hostname
	if nova.Host != nil {
		o.report.NovaHost, from = checked(o, sourceNovaConf, nova.Host, host.ParseName), nova.From
	}
	if o.report.NovaHost != nil {
		o.report.NovaHostFrom = &from
	}
}

// markEmpty makes nil lists empty if all their sources were read.
func (o *observer) markEmpty() {
	r := &o.report
	if o.isRead(sourceProcesses) {
		r.NovaCompute = append([]NovaCompute{}, r.NovaCompute...)
		r.Guests = append([]Guest{}, r.Guests...)
	}
	if o.isRead(sourceProcesses, sourceVFIO) {
		r.Holders = append([]Holder{}, r.Holders...)
	}
	if o.isRead(sourceDomains) {
		r.Domains = append([]Domain{}, r.Domains...)
	}
	if o.isRead(sourceSRIOV) {
		r.VirtualFunctions = append([]PhysicalFunction{}, r.VirtualFunctions...)
	}
}
