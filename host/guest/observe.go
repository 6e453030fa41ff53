package guest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"gpustack/host"
)

// NovaConf is what nova.conf says of the host's name, for [Observe].
type NovaConf struct {
	Files []string // that were read; none where there is no nova.conf
	Host  *string  // the option "host"; nil where it is not set
	From  string   // the file that sets it
	Err   error    // why it cannot be told
}

// Observe looks at the machine below root. It always returns what it could see, and
// what it could not.
func Observe(root host.Root, nova NovaConf, now time.Time) Report {
	o := observer{root: root, report: Report{Schema: Schema, Collected: now.UTC()}, looks: map[string]*look{}}
	r := &o.report
	r.Hostname = o.line(sourceHostname, "/proc/sys/kernel/hostname")
	r.MachineID = o.line(sourceMachineID, "/etc/machine-id") // machine-id(5)
	r.BootID = o.line(sourceBootID, "/proc/sys/kernel/random/boot_id")
	r.Booted = o.booted()
	o.novaHost(nova)
	processes := o.processes()
	o.guests(processes)
	o.holders(processes)
	o.domains(processes)
	r.Complete = true
	for _, name := range sourceNames() {
		s := o.look(name).source(name)
		r.Sources = append(r.Sources, s)
		r.Complete = r.Complete && s.State == Read
	}
	o.sayNone()
	return *r
}

// observer makes a report.
type observer struct {
	root   host.Root
	report Report
	looks  map[string]*look
}

// look is what became of looking at a source.
type look struct {
	read, absent, faults []string
}

func (o *observer) look(name string) *look {
	if o.looks[name] == nil {
		o.looks[name] = &look{}
	}
	return o.looks[name]
}

// fail notes that a file could not be read.
func (l *look) fail(name string, err error) {
	text := fmt.Sprintf("%s: %v", name, host.Cause(err))
	if host.IsAbsent(err) {
		l.absent = append(l.absent, text)
		return
	}
	l.faults = append(l.faults, text)
}

func (l *look) faultf(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

func (l *look) source(name string) Source {
	switch {
	case len(l.faults) > 0:
		return Source{name, Unreadable, valid(summary(l.faults))}
	case len(l.absent) > 0:
		return Source{name, Absent, valid(summary(l.absent))}
	case len(l.read) == 0:
		return Source{name, Unreadable, "was not looked at"}
	}
	return Source{name, Read, strings.Join(l.read, ", ")}
}

func (o *observer) isRead(names ...string) bool {
	for _, name := range names {
		if o.look(name).source(name).State != Read {
			return false
		}
	}
	return true
}

// summary names the first few of what may be thousands.
func summary(faults []string) string {
	const most = 8
	if len(faults) <= most {
		return strings.Join(faults, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(faults[:most], "; "), len(faults)-most)
}

// valid replaces what is not UTF-8: a report is text, which anybody's process has a
// part in.
func valid(text string) string {
	return strings.ToValidUTF8(text, "\ufffd")
}

// line returns the first line of a file that is a source by itself.
func (o *observer) line(source, name string) *string {
	l := o.look(source)
	data, err := o.root.ReadHead(name, 512)
	if err != nil {
		l.fail(name, err)
		return nil
	}
	line, _, _ := strings.Cut(string(data), "\n")
	line = valid(strings.TrimSpace(line))
	// The kernel's name until one has been set, and systemd's before first boot.
	if line == "" || line == "(none)" || line == "uninitialized" {
		l.faultf("%s: says %q", name, line)
		return nil
	}
	l.read = append(l.read, name)
	return &line
}

// booted reads when the machine was started (proc_stat(5), btime).
func (o *observer) booted() *time.Time {
	const name = "/proc/stat"
	l := o.look(sourceBootTime)
	data, err := o.root.ReadFile(name)
	if err != nil {
		l.fail(name, err)
		return nil
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "btime "); ok {
			seconds, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil || seconds <= 0 {
				l.faultf("%s: not a time: %q", name, strings.TrimSpace(value))
				return nil
			}
			l.read = append(l.read, name)
			booted := time.Unix(seconds, 0).UTC()
			return &booted
		}
	}
	l.faultf("%s: has no btime", name)
	return nil
}

// started is when a process was started that did so some ticks after boot. There are
// a hundred a second for every program (USER_HZ; proc_pid_stat(5), starttime).
func (o *observer) started(ticks uint64) *time.Time {
	if o.report.Booted == nil {
		return nil
	}
	const perSecond = 100
	t := o.report.Booted.Add(time.Duration(ticks) * (time.Second / perSecond))
	return &t
}

// novaHost names the host as Nova does: by its option, else by socket.gethostname()
// (nova/conf/netconf.py). Where nova.conf is absent the machine's name is a guess.
func (o *observer) novaHost(nova NovaConf) {
	l := o.look(sourceNovaConf)
	switch {
	case nova.Err != nil:
		l.faultf("%s", strings.ReplaceAll(nova.Err.Error(), "\n", "; "))
		return
	case len(nova.Files) == 0:
		l.absent = append(l.absent, "no nova.conf was found")
	default:
		l.read = nova.Files
	}
	from := "hostname"
	o.report.NovaHost = o.report.Hostname
	if nova.Host != nil {
		o.report.NovaHost, from = nova.Host, nova.From
	}
	if o.report.NovaHost != nil {
		o.report.NovaHostFrom = &from
	}
}

// sayNone makes lists empty instead of unknown where everything was looked at.
func (o *observer) sayNone() {
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
}
