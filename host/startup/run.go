// Package startup carries out the steps of every boot, each with a deadline ([Run]), and what
// containers are offered while the machine runs ([Offer]). The unit gpustack-boot.service runs it
// by the hidden command gpustack boot.
//
// It does not decide which steps there are (host/steps), and takes no function that is in use
// (host/gate).
package startup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
)

// Kernel returns what makes the requests of one step, each with a deadline.
type Kernel func(deadline time.Duration) driver.Requester

// Machine is what steps are carried out on.
type Machine struct {
	Root    host.Root
	Kernel  Kernel
	Program func(ctx context.Context, argv []string) error // starts a program and waits for its end
	Settle  time.Duration                                  // maximum time until a request has its effect
	Appear  time.Duration                                  // maximum time until devices appear; 0 for a minute
	Version string                                         // of gpustack, for the result
	Allowed gate.Allowed                                   // by --allow, in addition to what is recorded
	Claim   gate.Claim                                     // opens the disks of functions that leave, exclusively
}

// Errors of runs.
var (
	// ErrRunning means that another run carries out steps now.
	ErrRunning = host.WithHint(host.WithCode(errors.New("another gpustack boot is running"), host.CodeLocked, ""),
		"wait until it has ended: systemctl status "+steps.Unit)
	// ErrSteps means that steps have failed. The result names them.
	ErrSteps = host.WithHint(errors.New("a step failed"), "repair the cause, then run: systemctl restart "+steps.Unit)
)

// offArgument is the kernel argument with which every function remains with the host for one boot,
// as the hooks of host prepare honour it.
const offArgument = "gpustack=off"

// run is a run under the lock.
type run struct {
	Machine
	result steps.Result
	appear time.Time
	// succeeded are the steps that an earlier run of this boot has completed.
	succeeded map[string]bool
}

// Run carries out all recorded steps, and writes the result before and after each. A step whose
// state is reached is unchanged; a step that fails fails only the steps that need it. When ctx
// ends, the current step is completed and the others stay pending. Without a record and without an
// earlier result it does nothing. The error is ErrSteps if a step failed, the cause of ctx if it
// was interrupted, or what prevents every step.
func Run(ctx context.Context, m Machine) (steps.Result, error) {
	wanted, err := steps.Recorded(m.Root)
	if err != nil {
		return steps.Result{}, err
	}
	r, unlock, err := m.begin(len(wanted) > 0)
	if err != nil || r == nil {
		return steps.Result{}, err
	}
	defer unlock()
	if err := withdraw(ctx, m.Root, wanted); err != nil {
		return r.result, err
	}
	err = r.carryOut(ctx, wanted, wanted)
	return r.result, err
}

// begin locks the machine against other runs and reads the result of this boot. Without a result
// and without steps it returns nil.
func (m Machine) begin(wanted bool) (*run, func(), error) {
	earlier, err := steps.ReadResult(m.Root)
	if err != nil {
		return nil, nil, err
	}
	if earlier == nil && !wanted {
		return nil, nil, nil
	}
	id, err := steps.BootID(m.Root)
	if err == nil && id == "" {
		err = fmt.Errorf("%s: %w", steps.BootFile, driver.ErrNotLive)
	}
	if err != nil {
		return nil, nil, err
	}
	if earlier == nil {
		// The folder that is locked comes with the file.
		empty := steps.Result{Schema: host.Schema, BootID: id, Version: m.Version, Started: time.Now().UTC(), Steps: []steps.StepResult{}}
		c, err := planned(m.Root, empty)
		if err == nil && c.Before == nil { // another run may have written its own meanwhile
			err = c.Apply(m.Root)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	unlock, err := lock(m.Root)
	if err != nil {
		return nil, nil, err
	}
	if earlier, err = steps.ReadResult(m.Root); err != nil {
		unlock()
		return nil, nil, err
	}
	r := &run{Machine: m, appear: time.Now().Add(cmp.Or(m.Appear, time.Minute)), succeeded: map[string]bool{}}
	before := host.Value(earlier).Steps
	for _, s := range before {
		r.succeeded[s.ID] = s.Status == steps.Done || s.Status == steps.Unchanged
	}
	r.result = steps.Result{Schema: host.Schema, BootID: id, Version: m.Version, Started: time.Now().UTC(), Steps: before}
	return r, unlock, nil
}

// lock locks the folder of the result until the returned function is called.
func lock(root host.Root) (func(), error) {
	dir := path.Dir(steps.ResultFile)
	place, err := root.Resolve(dir)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(place, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrRunning
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), unix.Close(fd))
	}
	return func() { unix.Close(fd) }, nil //nolint:errcheck // nothing was written
}

// planned returns the change that writes a result, which every user may read.
func planned(root host.Root, r steps.Result) (edit.Change, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return edit.Change{}, err
	}
	return edit.Put(root, steps.ResultFile, append(text, '\n'), 0o644, false)
}

func (r *run) save() error {
	c, err := planned(r.Root, r.result)
	if err != nil {
		return err
	}
	return c.Apply(r.Root)
}

// at returns the result of a step, or nil.
func (r *run) at(id string) *steps.StepResult {
	i := slices.IndexFunc(r.result.Steps, func(s steps.StepResult) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &r.result.Steps[i]
}

// arrange lists the steps to carry out in the order of all that are recorded. What earlier runs of
// this boot have recorded for a revert is kept, also of steps that are recorded no more: they come
// first.
func (r *run) arrange(wanted, recorded []steps.Step) {
	list := host.Filter(r.result.Steps, func(s steps.StepResult) bool { return !has(recorded, s.ID) && s.HasBefore() })
	for _, s := range recorded {
		earlier := r.at(s.ID)
		if !has(wanted, s.ID) {
			if earlier != nil {
				list = append(list, *earlier)
			}
			continue
		}
		result := steps.StepResult{ID: s.ID, Kind: s.Kind, Address: s.Address, Needs: s.Needs, Status: steps.Pending}
		if earlier != nil {
			result.Before = earlier.Before
		}
		list = append(list, result)
	}
	r.result.Steps = append([]steps.StepResult{}, list...)
}

// carryOut carries out steps, which are all recorded ones or some of them.
func (r *run) carryOut(ctx context.Context, wanted, recorded []steps.Step) error {
	r.arrange(wanted, recorded)
	if err := r.save(); err != nil {
		return err
	}
	off, err := isOff(r.Root)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, steps.Total)
	defer cancel()
	failed := false
	for _, s := range wanted {
		result := r.at(s.ID)
		why := ""
		for _, need := range s.Needs {
			if n := r.at(need); n == nil || n.Status != steps.Done && n.Status != steps.Unchanged {
				why = "needs " + need
				break
			}
		}
		switch {
		case off:
			result.Status, result.Error = steps.Skipped, offArgument+" is on the kernel command line"
			continue
		case why != "":
			result.Status, result.Error = steps.Skipped, why
			continue
		case context.Cause(ctx) != nil:
			return errors.Join(context.Cause(ctx), r.save())
		}
		if err := r.step(ctx, s, result); err != nil {
			return err
		}
		failed = failed || result.Status == steps.Failed
	}
	for _, s := range wanted {
		result := r.at(s.ID)
		r.confirm(ctx, s, result)
		failed = failed || result.Status == steps.Failed
	}
	ended := time.Now().UTC()
	r.result.Ended = &ended
	if err := r.save(); err != nil {
		return err
	}
	if failed {
		return ErrSteps
	}
	return nil
}

// machine returns the machine for steps with a deadline.
func (r *run) machine(deadline time.Duration) machine {
	return machine{root: r.Root, kernel: r.Kernel(deadline), program: r.Program, settle: r.Settle, appear: r.appear, allowed: r.Allowed, claim: r.Claim}
}

// step carries out one step. Its error is that of writing the result.
func (r *run) step(ctx context.Context, s steps.Step, result *steps.StepResult) error {
	began := time.Now()
	result.Status = steps.Running
	// A signal does not end a step in the middle: its deadline does.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Deadline)
	defer cancel()
	m := r.machine(s.Deadline)
	m.done = r.succeeded[s.ID] && !slices.ContainsFunc(s.Needs, func(id string) bool { return r.at(id).Status != steps.Unchanged })
	m.fresh = slices.ContainsFunc(s.Needs, func(id string) bool { return r.at(id).Status == steps.Done })
	w := workOf(s)
	before, reached, err := w.look(ctx, m)
	switch {
	case err != nil:
	case reached:
		result.Status = steps.Unchanged
	default:
		// What the first run of this boot has found is what a revert restores.
		if w, ok := w.(remade); ok && result.HasBefore() {
			if before, err = w.again(result.Before); err != nil {
				return fmt.Errorf("%s: step %q: before: %w", steps.ResultFile, s.ID, err)
			}
			result.Before = nil
		}
		if !result.HasBefore() {
			if result.Before, err = json.Marshal(before); err != nil {
				return err
			}
		}
		if err := r.save(); err != nil {
			return err // nothing is changed that could not be reverted
		}
		if err = w.carryOut(ctx, m); err == nil {
			result.Status = steps.Done
		}
	}
	if err != nil {
		result.Status, result.Error = steps.Failed, err.Error()
	}
	result.Seconds = time.Since(began).Seconds()
	return r.save()
}

// confirm reads back what a step of an adapter has reached. Another program that has made VFs of the
// adapter since has removed those of this run, with their identities and drivers.
func (r *run) confirm(ctx context.Context, s steps.Step, result *steps.StepResult) {
	ofAdapter := slices.Contains([]string{steps.KindVFs, steps.KindIdentity, steps.KindDriver}, s.Kind)
	if !ofAdapter || result.Status != steps.Done && result.Status != steps.Unchanged {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Deadline)
	defer cancel()
	m := r.machine(s.Deadline)
	m.done = true
	_, reached, err := workOf(s).look(ctx, m)
	if err == nil && !reached {
		err = fmt.Errorf("%s: %w", s.Address, ErrChangedSince)
	}
	if err != nil {
		result.Status, result.Error = steps.Failed, err.Error()
	}
}

// isOff reports whether the running kernel has gpustack=off.
func isOff(root host.Root) (bool, error) {
	const file = "/proc/cmdline"
	data, err := root.ReadFile(file)
	return slices.Contains(boot.ParseArgs(string(data)), offArgument), err
}

// Revert restores what this boot's steps have found before they changed it, of steps that the
// record wants no more, and carries out the steps of adapters again of whose VFs it wants others
// than this boot has made. It changes nothing if a function that would go is in use, or if another
// program has changed the number of VFs. Without a result of this boot it does nothing.
func Revert(ctx context.Context, m Machine) error {
	records, err := gate.ReadRecords(m.Root)
	if err != nil {
		return err
	}
	record, recorded := records.RDMA, steps.Of(records)
	r, unlock, err := m.begin(false)
	if err != nil || r == nil {
		return err
	}
	defer unlock()
	p, err := r.reversal(record, recorded)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range slices.Backward(p.left) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if s.Kind == steps.KindVFs || s.Address == nil || !p.gone[*s.Address] {
			err := r.revert(ctx, s, r.machine(steps.Long))
			// While containers have network namespaces, the mode stays until the next boot.
			if err != nil && !errors.Is(err, driver.ErrNamespaces) {
				errs = append(errs, fmt.Errorf("step %q: %w", s.ID, err))
				continue
			}
		}
		r.result.Steps = slices.DeleteFunc(r.result.Steps, func(x steps.StepResult) bool { return x.ID == s.ID })
		errs = append(errs, r.save())
	}
	// Steps that changed nothing are forgotten with their record.
	r.result.Steps = slices.DeleteFunc(r.result.Steps, func(x steps.StepResult) bool { return !x.HasBefore() && !has(recorded, x.ID) })
	err = errors.Join(errs...)
	if err == nil {
		ended := time.Now().UTC()
		r.result.Ended = &ended
	}
	if err := errors.Join(err, r.save()); err != nil || len(p.again) == 0 {
		return err
	}
	// Other steps wait for the next boot.
	again := steps.OfAdapters(&rdma.Record{Adapters: p.again})
	return r.carryOut(ctx, slices.DeleteFunc(slices.Clone(recorded), func(s steps.Step) bool { return !has(again, s.ID) }), recorded)
}

// Permit returns the error with which Revert would refuse a record, which is not written yet, and
// what m.Allowed lifts of it. Revert honours that once an open entry of the journal has it.
func Permit(m Machine, record *rdma.Record) ([]pci.Identity, error) {
	result, resultErr := steps.ReadResult(m.Root)
	records, err := gate.ReadRecords(m.Root)
	if err = errors.Join(resultErr, err); err != nil || result == nil {
		return nil, err
	}
	records.RDMA = record
	p, err := (&run{Machine: m, result: *result}).reversal(record, steps.Of(records))
	return p.lifted, err
}

// reversal is what a revert does.
type reversal struct {
	left   []steps.StepResult   // that are reverted
	gone   map[pci.Address]bool // VFs that go with a step, and need no revert of their own
	again  []rdma.Prepared      // whose steps are carried out again
	lifted []pci.Identity       // functions that leave by --allow
}

// reversal returns what a revert does for a record, with the steps of all records, or why it must
// change nothing.
func (r *run) reversal(record *rdma.Record, recorded []steps.Step) (reversal, error) {
	p := reversal{gone: map[pci.Address]bool{}}
	m := r.machine(steps.Quick)
	var going []pci.Address
	var errs []error
	goes := func(functions []pci.Address, destroyed bool) {
		for _, a := range functions {
			if !p.gone[a] {
				going = append(going, a)
			}
			p.gone[a] = p.gone[a] || destroyed
		}
	}
	if record != nil {
		for _, a := range record.Adapters {
			again := false
			for _, s := range steps.OfAdapters(&rdma.Record{Adapters: []rdma.Prepared{a}}) {
				w, ok := workOf(s).(remade)
				earlier := r.at(s.ID)
				if !ok || earlier == nil || !earlier.HasBefore() {
					continue
				}
				functions, differs, err := w.differs(m, earlier.Before)
				errs = append(errs, err)
				again = again || differs
				goes(functions, s.Kind == steps.KindVFs)
			}
			if again {
				p.again = append(p.again, a)
			}
		}
	}
	for _, s := range r.result.Steps {
		if has(recorded, s.ID) || !s.HasBefore() {
			continue
		}
		w := pastWork(s)
		if w == nil {
			errs = append(errs, fmt.Errorf("step %q: was recorded by a later release of gpustack", s.ID))
			continue
		}
		p.left = append(p.left, s)
		functions, err := w.goes(m, s.Before)
		errs = append(errs, err)
		goes(functions, s.Kind == steps.KindVFs)
	}
	if len(going) > 0 {
		lifted, err := m.leave(gate.Leaving{Kind: gate.Removed}, pci.Unique(going)...)
		p.lifted, errs = lifted, append(errs, err)
	}
	return p, errors.Join(errs...)
}

// has reports whether a list of steps has one with an id.
func has(list []steps.Step, id string) bool {
	return slices.ContainsFunc(list, func(s steps.Step) bool { return s.ID == id })
}

// revert restores what a step has found.
func (r *run) revert(ctx context.Context, s steps.StepResult, m machine) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), steps.Long)
	defer cancel()
	return pastWork(s).revert(ctx, m, s.Before)
}
