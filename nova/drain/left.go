package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Server is a server on a host.
type Server struct {
	cloud.Server
	// Running reports whether it runs, or may: false if it is off or crashed, if Nova has suspended
	// it, or if the hypervisor does not know it and its state is one in which none runs.
	Running bool `json:"running"`
	Devices
}

// Devices is what a server has of the host's devices by its flavor.
type Devices struct {
	// Request is what its flavor requests of the host's devices: the value of
	// pci_passthrough:alias, accel:device_profile, or resources of VGPU, PGPU or CUSTOM_ classes;
	// null for none, or if it cannot be read.
	Request string `json:"device_request" null:"zero"`
	// whether its flavor requests such devices; null if the flavor cannot be read
	GPUs host.Bool `json:"has_gpus"`
}

// HasGPUs reports whether the server has devices, or may have.
func (s Server) HasGPUs() bool { return s.GPUs != host.No }

// Task is what is in progress, so that servers may come to a host or leave it by themselves.
type Task struct {
	Server string `json:"server_id"` // the server
	// what is in progress, for people: "build (spawning)", "resize 12 (finished)"
	What string `json:"what"`
	// what ends it, for people; null if it ends by itself
	Remedy host.Text `json:"remedy" null:"zero"`
}

// Left is what is left on a host.
type Left struct {
	// Servers are the servers on the host, by name, at the last complete look: before the change,
	// if none after it was complete. Empty with --step and for nova enable.
	Servers []Server `json:"servers"`
	// Tasks are what is in progress there: builds, tasks of servers, migrations, and resizes
	// until they are confirmed or reverted. Empty for nova enable.
	Tasks []Task `json:"in_progress"`
	// Ignored is what may be in progress elsewhere and come to the host, but that nothing has changed
	// for long, a sentence each.
	Ignored []string
}

// RunningGPUs returns the servers that run with GPUs, or may.
func (l Left) RunningGPUs() []Server {
	return slices.DeleteFunc(slices.Clone(l.Servers), func(s Server) bool { return !s.Running || !s.HasGPUs() })
}

// Drained reports whether nothing is in progress and no server runs with GPUs.
func (l Left) Drained() bool { return len(l.Tasks) == 0 && len(l.RunningGPUs()) == 0 }

// The ages from which what has not changed elsewhere does not come here any more. What is on the host
// itself counts whatever its age: an image may take longer to arrive.
const (
	// stuck is that of what was left by a service that died: a request of the scheduler or of
	// conductor takes at most 30 minutes (long_rpc_timeout).
	stuck = time.Hour
	// hung is that of a build on a host whose nova-compute reports. Where it fails, conductor sends it to
	// a host that was chosen before this one was disabled (nova/conductor/manager.py, build_instances).
	hung = 24 * time.Hour
)

// Look reads what is left on a host. It knows what it has seen at its first look.
type Look struct {
	compute *cloud.Compute
	host    string
	want    State           // of the service; a look is of no use once it has another
	coming  map[string]bool // ids of what could come to the host at the first look; nil before it
	specs   map[string]Devices
}

// NewLook returns looks at a host whose service has a state.
func NewLook(c *cloud.Compute, name string, want State) *Look {
	return &Look{compute: c, host: name, want: want, specs: map[string]Devices{}}
}

// elsewhere is what one look has seen of what could come to the host.
type elsewhere struct {
	*Look
	now  time.Time       // by Nova's clock; zero: unknown
	up   map[string]bool // hosts whose nova-compute reports
	seen map[string]bool // ids of servers
	left *Left
}

// add adds a server that could come, unless it could not at the first look. It is not waited for once
// nothing has changed it for longer than limit.
func (e elsewhere) add(id, what string, changed time.Time, limit time.Duration) {
	if e.seen[id] {
		return
	}
	e.seen[id] = true
	switch {
	case e.coming != nil && !e.coming[id]:
	case !e.now.IsZero() && e.now.Sub(changed) > limit:
		e.left.Ignored = append(e.left.Ignored, fmt.Sprintf("server %s: %s: unchanged since %s, and not waited for", id, what, changed.UTC().Format(time.RFC3339)))
	default:
		e.left.Tasks = append(e.left.Tasks, Task{Server: id, What: what})
	}
}

// Read reads what is left.
//
// What is elsewhere comes first and what is on the host last, so that what moves meanwhile is seen
// twice rather than never. What is on its way to no named host could come here if it was at the
// first look: a build or a resize, also one that fails on its host, and is sent to another one
// without the scheduler (nova/conductor/manager.py, build_instances; tasks/migrate.py,
// _reschedule); a server that is unshelved; a migration whose destination is not chosen yet. What
// begins later does not come, because the service was disabled then.
//
// Errors: ErrChanged if the service has another state than expected; ErrUnknown; [cloud.ErrHidden].
func (l *Look) Read(ctx context.Context) (Left, error) {
	all, err := l.compute.ComputeServices(ctx)
	if err != nil {
		return Left{}, err
	}
	var left Left
	e := elsewhere{l, time.Time{}, map[string]bool{}, map[string]bool{}, &left}
	for _, s := range all {
		if e.up[s.Host] = s.Up; s.Up && s.Updated.After(e.now) { // they report every 10 s
			e.now = s.Updated
		}
	}
	if err := l.migrations(ctx, e); err != nil {
		return Left{}, err
	}
	builds, err := l.compute.Building(ctx)
	if err != nil {
		return Left{}, err
	}
	for _, s := range builds {
		switch s.Host {
		case l.host:
		case "": // a request, whose change is now at each look (nova/utils.py, isotime)
			e.add(s.ID, taskOf(s)+", not on this host yet", s.Created, stuck)
		default:
			limit := stuck
			if e.up[s.Host] {
				limit = hung
			}
			e.add(s.ID, taskOf(s)+" on "+s.Host+", not on this host yet", s.Updated, limit)
		}
	}
	shelved, err := l.compute.Unshelving(ctx)
	if err != nil {
		return Left{}, err
	}
	for _, s := range shelved {
		if s.Task != "" && s.Host == "" {
			e.add(s.ID, taskOf(s)+", not on this host yet", s.Updated, stuck)
		}
	}
	if err := l.servers(ctx, e.now, &left); err != nil {
		return Left{}, err
	}
	if l.coming == nil {
		l.coming = e.seen
	}
	is, err := Find(ctx, l.compute, l.host) // a list of servers leaves out a cell that does not answer
	if err == nil && !stateOf(is).same(l.want) {
		err = changedError(l.host, stateOf(is))
	}
	return left, err
}

// migrations adds the migrations that are in progress from or to the host, and those that could
// still come to it.
func (l *Look) migrations(ctx context.Context, e elsewhere) error {
	begun, err := l.compute.NewMigrations(ctx)
	if err != nil {
		return err
	}
	for _, m := range begun {
		// One that is rescheduled keeps the destination that has failed.
		reschedules := m.Status == "pre-migrating" && m.Type != "evacuation" && m.Type != "live-migration"
		if m.From != l.host && (m.To == "" || reschedules && m.To != l.host) {
			e.add(m.Server, moveOf(m), m.Updated, stuck)
		}
	}
	all, err := l.compute.Migrations(ctx, l.host)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b cloud.Migration) int { return a.ID - b.ID })
	for _, m := range all {
		t, left := Task{Server: m.Server, What: moveOf(m)}, host.NewCommand("repair-migration").Flag("instance", m.Server)
		switch evacuated := m.Type == "evacuation" && m.From == l.host; {
		case evacuated && m.Status == "done": // nova-compute destroys the server here when it starts
			t.Remedy = host.Plain("start nova-compute of " + l.host + ": it destroys what runs there of evacuated servers")
		case cloud.MigrationOver(m.Status), m.Status == "error": // what failed makes no progress
			continue
		case m.Status == "finished": // it holds devices on both hosts for as long as that takes
			t.Remedy = host.Textf("confirm or revert it: openstack server resize confirm %s; where Nova refuses that, '%s' shows what is left", m.Server, left)
		case !e.now.IsZero() && e.now.Sub(m.Updated) > stuck:
			t.Remedy = host.Textf("nothing has changed it since %s: '%s' says whether it was left by a failure",
				m.Updated.UTC().Format(time.RFC3339), left)
		}
		e.left.Tasks = append(e.left.Tasks, t)
	}
	return nil
}

// servers adds the servers on the host, and their tasks.
func (l *Look) servers(ctx context.Context, now time.Time, left *Left) error {
	servers, err := l.compute.ServersOn(ctx, l.host)
	if err != nil {
		return err
	}
	for _, s := range servers {
		devices, err := l.devicesOf(ctx, s.Flavor)
		if err != nil {
			return err
		}
		left.Servers = append(left.Servers, Server{s, running(s), devices})
		if s.Task == "" && s.Status != "BUILD" {
			continue
		}
		t := Task{Server: s.ID, What: taskOf(s)}
		if !now.IsZero() && now.Sub(s.Updated) > stuck {
			t.Remedy = host.Plain(fmt.Sprintf("nothing has changed it since %s: see the log of nova-compute on %s; openstack server set --state error "+
				"%s ends a task that was left",
				s.Updated.UTC().Format(time.RFC3339), l.host, s.ID))
		}
		left.Tasks = append(left.Tasks, t)
	}
	return nil
}

func taskOf(s cloud.Server) string {
	switch {
	case s.Status != "BUILD":
		return "task " + s.Task
	case s.Task == "":
		return "build"
	}
	return "build (" + s.Task + ")"
}

func moveOf(m cloud.Migration) string {
	return fmt.Sprintf("%s %d (%s)", cmp.Or(m.Type, "migration"), m.ID, m.Status)
}

// running reports whether a server may be running. Servers that are suspended by Nova are saved to
// disk; a guest that has suspended itself is in memory, with its devices
// (nova/virt/libvirt/guest.py, VIR_DOMAIN_PMSUSPENDED). Of a server that the hypervisor does not
// know, only states in which none runs count as off.
func running(s cloud.Server) bool {
	switch s.Power {
	case cloud.PowerShutdown, cloud.PowerCrashed:
		return false
	case cloud.PowerSuspended:
		return s.VMState != "suspended"
	case cloud.PowerNone:
		return !slices.Contains([]string{"building", "error", "stopped", "shelved", "shelved_offloaded", "suspended", "soft-delete", "deleted"}, s.VMState)
	case cloud.PowerRunning, cloud.PowerPaused:
	}
	return true
}

// devicesOf returns what servers of a flavor have of the host's devices. Before microversion 2.47 a
// server names its flavor, which may have changed or been deleted since.
func (l *Look) devicesOf(ctx context.Context, f cloud.ServerFlavor) (Devices, error) {
	if f.Specs != nil || f.ID == "" {
		return devices(f.Specs), nil
	}
	if d, ok := l.specs[f.ID]; ok {
		return d, nil
	}
	specs, err := l.compute.ExtraSpecs(ctx, cloud.Flavor{ID: f.ID, Name: f.ID})
	if err != nil && !errors.Is(err, cloud.ErrNotFound) {
		return Devices{}, err
	}
	l.specs[f.ID] = devices(specs)
	return l.specs[f.ID], nil
}

// devices returns what a server has by the properties of its flavor; nil: they cannot be read.
func devices(specs map[string]string) Devices {
	d := Devices{Request: requested(specs)}
	if specs != nil {
		d.GPUs = host.BoolOf(d.Request != "")
	}
	return d
}

// requested returns what a flavor requests of a host's devices: by aliases, by a device profile of
// Cyborg, or as a resource.
func requested(specs map[string]string) string {
	var requests []string
	for _, key := range slices.Sorted(maps.Keys(specs)) {
		_, class, _ := strings.Cut(key, ":")
		switch {
		case key == nova.RequestKey:
			requests = append(requests, specs[key])
		case key == "accel:device_profile", strings.HasPrefix(key, "resources") && isOfDevices(class):
			requests = append(requests, key+"="+specs[key])
		}
	}
	return strings.Join(requests, ", ")
}

// isOfDevices reports whether a resource class may be one of devices: VGPU, PGPU, and those that an
// operator names (nova/conf/devices.py, mdev_class).
func isOfDevices(class string) bool {
	return class == "VGPU" || class == "PGPU" || strings.HasPrefix(class, "CUSTOM_") && !strings.HasPrefix(class, "CUSTOM_BAREMETAL")
}

// Every is the time between two looks.
const Every = 10 * time.Second

// Waiting is how long to wait, and for what.
type Waiting struct {
	Tasks time.Duration // until nothing is in progress; 0: not at all
	Empty time.Duration // from then until no server runs with GPUs; 0: not at all
	Every time.Duration // between two looks
	// Progress is called with what is left at each look, if it has changed; nil for none.
	Progress func(Left)
}

// Errors of waits.
var (
	// ErrInProgress says that something is still in progress at the end of a wait.
	ErrInProgress = host.WithHint(errors.New("is still in progress"), "--wait waits longer; 'openstack server show' says more")
	// errLate is the same while the host is waited to be empty.
	errLate = host.WithHint(fmt.Errorf("%w", ErrInProgress), "--wait-empty waits longer; 'openstack server show' says more")
)

// failures is how many looks in a row may fail in a wait.
const failures = 3

// Wait waits until nothing is in progress, and, if that is asked for, until no server runs with
// GPUs. It returns what is left, as the last complete look has shown it; nil if none was complete.
//
// Errors: those of [Look.Read]; ErrInProgress, one for each task; that of an interrupt.
func (l *Look) Wait(ctx context.Context, w Waiting) (*Left, error) {
	end, failed, last := time.Now().Add(w.Tasks), 0, ""
	emptying := false
	var left *Left
	for {
		is, err := l.Read(ctx)
		late := time.Now().After(end)
		switch {
		case err != nil:
			// Nothing but another look tells more: one that is refused stays so.
			if failed++; failed >= failures || late || cloud.IsRefused(err) || errors.Is(err, ErrChanged) || errors.Is(err, ErrUnknown) || errors.Is(err, ErrNoService) {
				return left, err
			}
		default:
			failed, left = 0, &is
			if now := fmt.Sprint(is); now != last && w.Progress != nil {
				w.Progress(is)
				last = now
			}
		}
		switch {
		case err != nil:
		case w.Tasks == 0 && w.Empty == 0:
			return left, nil
		case len(is.Tasks) > 0 && late:
			return left, inProgress(is.Tasks, emptying)
		case len(is.Tasks) > 0: // also of servers that are stopped or moved away meanwhile
		case w.Empty == 0, is.Drained(), emptying && late:
			return left, nil
		case !emptying:
			end, emptying = time.Now().Add(w.Empty), true
		}
		select {
		case <-ctx.Done():
			return left, context.Cause(ctx)
		case <-time.After(w.Every):
		}
	}
}

func inProgress(tasks []Task, emptying bool) error {
	kind := ErrInProgress
	if emptying {
		kind = errLate
	}
	var errs []error
	for _, t := range tasks {
		err := fmt.Errorf("server %s: %s %w", t.Server, t.What, kind)
		if len(t.Remedy) > 0 {
			err = host.WithHint(err, t.Remedy)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
