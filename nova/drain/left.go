package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// stuck is the age from which what nothing has changed counts as left over by a service that died,
// not as in progress: a request of the scheduler or of conductor takes at most 30 minutes
// (long_rpc_timeout).
const stuck = time.Hour

// Server is a server on a host.
type Server struct {
	cloud.Server
	Running bool // it may be running: the hypervisor has not said that it is off
	Devices Devices
}

// Devices is whether a server has PCI devices by its flavor.
type Devices struct {
	Request string // pci_passthrough:alias; "" for none
	Unknown bool   // the flavor with which it was built cannot be read
}

// HasGPUs reports whether the server has devices, or may have.
func (s Server) HasGPUs() bool { return s.Devices.Unknown || s.Devices.Request != "" }

// Task is what is in progress on a host, so that servers may come to it or leave it by themselves.
type Task struct {
	Server string // its id
	What   string // such as "build (spawning)", "resize 12 (finished)"
	Remedy host.Text
}

// Left is what is on a host.
type Left struct {
	Servers []Server
	Tasks   []Task
	Stuck   []string // what looks like a task and nothing has changed for long, a sentence each
}

// RunningGPUs returns the servers that run with GPUs, or may.
func (l Left) RunningGPUs() []Server {
	return slices.DeleteFunc(slices.Clone(l.Servers), func(s Server) bool { return !s.Running || !s.HasGPUs() })
}

// Read reads what is on a host at a time. A build has no host until nova-compute begins it, so that
// those without one count for every host.
func Read(ctx context.Context, c *cloud.Compute, name string, now time.Time) (Left, error) {
	servers, err := c.ServersOn(ctx, name)
	builds, buildErr := c.Building(ctx)
	migrations, moveErr := c.Migrations(ctx, name)
	if err := errors.Join(err, buildErr, moveErr); err != nil {
		return Left{}, err
	}
	var left Left
	specs := map[string]Devices{} // by flavor
	for _, s := range servers {
		if s.Host != name { // a Nova without this filter
			continue
		}
		devices, err := devicesOf(ctx, c, s.Flavor, specs)
		if err != nil {
			return Left{}, err
		}
		left.Servers = append(left.Servers, Server{s, running(s), devices})
		if s.Task != "" || s.Status == "BUILD" {
			left.add(Task{Server: s.ID, What: taskOf(s)}, s.Updated, now)
		}
	}
	for _, s := range builds {
		if s.Host == "" {
			left.add(Task{Server: s.ID, What: taskOf(s) + ", without a host yet"}, s.Updated, now)
		}
	}
	for _, m := range migrations {
		t := Task{Server: m.Server, What: strings.TrimSpace(fmt.Sprintf("%s %d (%s)", cmpOr(m.Type, "migration"), m.ID, m.Status))}
		switch {
		case cloud.MigrationOver(m.Status) || m.Status == "error": // what failed makes no progress
		case m.Status == "finished": // it holds devices on both hosts for as long as that takes
			t.Remedy = host.Text(fmt.Sprintf("confirm or revert it: openstack server resize confirm %s", m.Server))
			left.Tasks = append(left.Tasks, t)
		default:
			left.add(t, m.Updated, now)
		}
	}
	return left, nil
}

func (l *Left) add(t Task, updated, now time.Time) {
	if now.Sub(updated) > stuck {
		l.Stuck = append(l.Stuck, fmt.Sprintf("server %s: %s: unchanged since %s", t.Server, t.What, updated.UTC().Format(time.RFC3339)))
		return
	}
	l.Tasks = append(l.Tasks, t)
}

func taskOf(s cloud.Server) string {
	if s.Status == "BUILD" {
		return "build (" + cmpOr(s.Task, "no task") + ")"
	}
	return "task " + s.Task
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// running reports whether a server may be running. Suspended ones are saved to disk. Of a server in
// error that the hypervisor does not know, nothing runs.
func running(s cloud.Server) bool {
	switch s.Power {
	case cloud.PowerShutdown, cloud.PowerCrashed, cloud.PowerSuspended:
		return false
	case cloud.PowerNone:
		return s.VMState == "active" || s.VMState == "paused" || s.VMState == ""
	case cloud.PowerRunning, cloud.PowerPaused:
	}
	return true
}

// devicesOf returns whether servers of a flavor have devices. Before microversion 2.47 a server
// names its flavor, which may have changed or been deleted since.
func devicesOf(ctx context.Context, c *cloud.Compute, f cloud.ServerFlavor, known map[string]Devices) (Devices, error) {
	if f.Specs != nil || f.ID == "" {
		return Devices{f.Specs[nova.RequestKey], f.Specs == nil}, nil
	}
	if d, ok := known[f.ID]; ok {
		return d, nil
	}
	specs, err := c.ExtraSpecs(ctx, cloud.Flavor{ID: f.ID, Name: f.ID})
	if err != nil && !errors.Is(err, cloud.ErrNotFound) {
		return Devices{}, err
	}
	known[f.ID] = Devices{specs[nova.RequestKey], err != nil}
	return known[f.ID], nil
}

// Every is the time between two looks.
const Every = 5 * time.Second

// Waiting is how long to wait, and for what.
type Waiting struct {
	Tasks time.Duration // until nothing is in progress
	Empty time.Duration // from then until no server runs with GPUs; 0: not at all
	Every time.Duration // between two looks
	// Progress is called with what is left at each look, if it has changed; nil for none.
	Progress func(Left)
}

// ErrInProgress says that something is still in progress at the end of a wait.
var ErrInProgress = host.WithHint(errors.New("is still in progress"), "--wait waits longer; 'openstack server show' says more")

// Wait waits until nothing is in progress on a host, and, if that is asked for, until no server
// runs there with GPUs, and returns what is left.
//
// Errors: ErrInProgress, one for each task; that of an interrupt.
func Wait(ctx context.Context, c *cloud.Compute, name string, w Waiting) (Left, error) {
	end, emptying, last := time.Now().Add(w.Tasks), false, ""
	for {
		left, err := Read(ctx, c, name, time.Now())
		if err != nil {
			return left, err
		}
		if now := fmt.Sprint(left); now != last && w.Progress != nil {
			w.Progress(left)
			last = now
		}
		late := time.Now().After(end)
		switch {
		case len(left.Tasks) > 0 && late:
			return left, inProgress(left.Tasks)
		case len(left.Tasks) > 0: // also of servers that are stopped or moved away meanwhile
		case w.Empty == 0, len(left.RunningGPUs()) == 0, emptying && late:
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

func inProgress(tasks []Task) error {
	var errs []error
	for _, t := range tasks {
		err := fmt.Errorf("server %s: %s %w", t.Server, t.What, ErrInProgress)
		if t.Remedy != "" {
			err = host.WithHint(err, t.Remedy)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
