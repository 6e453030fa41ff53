package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/container"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/steps"
	"gpustack/nova"
	"gpustack/nova/conf"
)

// settle is the maximum time until a write has its effect.
const settle = 2 * time.Second

// serviceTimeout is the default time until a service has stopped or started. systemd gives a
// service 90 s to stop (systemd-system.conf(5), DefaultTimeoutStopSec), and then kills it.
const serviceTimeout = 100 * time.Second

// newRunner returns what starts programs of the machine below root. A second signal ends them.
func newRunner(u *term.UI, root host.Root) host.Runner {
	r := host.Runner{Root: root, Talk: u.Talk, Stop: u.Run.Stop}
	if u.Quiet {
		r.Talk = nil
	}
	return r
}

// binder returns the kind of change for drivers of the machine below root. timeout is the maximum
// time for each write to sysfs, and for waiting for an earlier run's write. allow are the functions
// whose refusals --allow lifts.
func binder(u *term.UI, root host.Root, timeout time.Duration, allow ...pci.Address) driver.Binder {
	return driver.Binder{Root: root, Kernel: driver.Live{Runner: newRunner(u, root), Timeout: timeout}, Settle: settle, Service: serviceTimeout, Patience: timeout,
		Offering: newOffering(u, root), Gate: gate.Drivers(root, allow, claim)}
}

// claim opens a disk exclusively, in a process of its own, until it is released.
func claim(disk string) (release func() error, err error) {
	held, err := guard.Claim(driver.DefaultTimeout, disk)
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

// newEngine returns the engine for changes of files and drivers of the machine below root. A
// command that makes other kinds of changes appends them. allow are the functions whose refusals
// --allow lifts.
func newEngine(u *term.UI, root host.Root, timeout time.Duration, allow ...pci.Address) change.Engine {
	runner := newRunner(u, root)
	return change.Engine{
		Store:  change.Machine(root),
		Origin: newOrigin(),
		Kinds:  []change.Kind{permittedFiles(u, root, allow), binder(u, root, timeout, allow...)},
		Run: func(ctx context.Context, p host.Program) error {
			if p.Kind == host.RevertBoot {
				return revertBoot(ctx, u, root)
			}
			return prepare.Rebuild(ctx, runner, p)
		},
		Current: func(recorded []host.Program) ([]host.Program, error) {
			return prepare.CurrentPrograms(root, recorded)
		},
	}
}

// filesOf returns the kind of change for files of the machine below root.
func filesOf(root host.Root) change.Files {
	return change.Files{Root: root, Masked: conf.Masked, Keep: keepReporting, Reverts: map[string]change.Revert{nova.Grammar: nova.Revert},
		Older: prepare.Older(root), EachBoot: container.IsBootSpec}
}

// permittedFiles is filesOf for changes: they are refused while what runs on the machine prevents
// what follows from them. allow are the functions whose refusals --allow lifts.
func permittedFiles(u *term.UI, root host.Root, allow []pci.Address) change.Files {
	files := filesOf(root)
	files.Permit = func(plan edit.Plan) ([]host.Lift, error) {
		allowed := gate.Allowed{Functions: allow}
		lifted, err := gate.Permit(root, plan, allowed)
		if err = errors.Join(steps.PermitFiles(root, plan), err); err != nil || !isRunning(root) {
			return lifted, err
		}
		more, err := permitRevert(u, root, plan, allowed)
		return slices.Concat(lifted, slices.DeleteFunc(more, func(l host.Lift) bool { return slices.Contains(lifted, l) })), err
	}
	return files
}

// keepReporting is a [change.Keep]: undo of nova configure leaves report_in_placement set, which
// Nova cannot switch off.
func keepReporting(e change.Entry, now, before []byte) ([]byte, error) {
	if !strings.HasPrefix(e.Command, commandConfigure) {
		return before, nil
	}
	return nova.KeepReporting(now, before)
}

// userStore returns the store for changes that do not need root: the machine's own store for root,
// otherwise a folder of the user (XDG Base Directory Specification 0.8, XDG_STATE_HOME).
func userStore() (change.Store, error) {
	root, err := host.NewRoot("/")
	if err != nil || os.Geteuid() == 0 {
		return change.Machine(root), err
	}
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // such a value is invalid and is ignored
		home := os.Getenv("HOME")
		if !filepath.IsAbs(home) {
			return change.Store{}, errNoHome
		}
		dir = filepath.Join(home, ".local/state")
	}
	return change.Store{Root: root, Dir: filepath.Join(dir, "gpustack")}, nil
}

// errNoHome means that a user other than root has no folder to record changes in.
var errNoHome = host.WithHint(errors.New("cannot determine where to record changes: neither XDG_STATE_HOME nor HOME is set"),
	"set HOME or XDG_STATE_HOME to a folder of the user")

// stores returns the stores that history and undo read: the user's, and the machine's. With
// --root, that of the tree alone.
func stores(dir string) ([]change.Store, error) {
	root, err := host.NewRoot(dir)
	if err != nil {
		return nil, err
	}
	return storesOf(root)
}

// storesOf is stores for the machine below root.
func storesOf(root host.Root) ([]change.Store, error) {
	machine := change.Machine(root)
	if root.Path("/") != "/" || os.Geteuid() == 0 {
		return []change.Store{machine}, nil
	}
	own, err := userStore()
	if errors.Is(err, errNoHome) {
		return []change.Store{machine}, nil // such a user has recorded nothing
	}
	if err != nil {
		return nil, err
	}
	// The machine's journal belongs to root; a user who cannot read it sees their own.
	if _, err := machine.List(); errors.Is(err, fs.ErrPermission) {
		if entries, ownErr := own.List(); ownErr != nil || len(entries) > 0 {
			return []change.Store{own}, nil
		}
	}
	return []change.Store{own, machine}, nil
}

// recoverEntries determines whether earlier runs were interrupted, and recovers their changes.
// Every command that changes something calls it first. except is an entry that is not recovered, or
// 0.
func recoverEntries(ctx context.Context, u *term.UI, e change.Engine, d decision, except int) error {
	purpose := change.ToRecover
	if d.dryRun {
		purpose = change.ToLook
	}
	left, err := e.Interrupted(ctx, purpose)
	if err != nil {
		return err
	}
	var ids []int
	var names, summaries, warnings []string
	var obstacles []error
	kind := change.KindFiles
	for _, l := range left {
		if !l.Here || l.Entry.ID == except {
			continue // warnInterrupted has named it
		}
		obstacles = append(obstacles, l.Obstacle)
		kind, ids = l.Entry.Kind, append(ids, l.Entry.ID)
		names, summaries = append(names, views.EntryName(l.Entry.ID, l.Entry.Command)), append(summaries, recoverySummary(l.Entry))
		if !recoveredBySome(l.Entry) { // warnInterrupted has named the others
			warnings = append(warnings, l.Text())
		}
	}
	if err := errors.Join(obstacles...); err != nil || len(ids) == 0 {
		return err
	}
	if d.dryRun {
		u.Warn(warnings...)
		return nil
	}
	if !d.yes {
		was := map[bool]string{false: "was", true: "were"}[len(names) > 1]
		if err := confirmRecovery(u, d, fmt.Sprintf("%s %s interrupted: recover now?", term.Listed(names, "and"), was), summaries); err != nil {
			return err
		}
	}
	if err := u.Run.BeginRecorded(remedyOf(kind)); err != nil {
		return err
	}
	defer u.Run.End()
	recovered, err := e.Recover(ctx, ids)
	for _, r := range recovered {
		if r.Text != "" {
			u.Note("entry %d %s", r.Entry.ID, r.Text)
		}
	}
	return err
}

// confirmRecovery asks whether to recover interrupted entries, below the summary of each.
func confirmRecovery(u *term.UI, d decision, question string, summaries []string) error {
	if d.format == term.FormatTable {
		for _, summary := range summaries {
			u.Printf("%s\n", u.Paint(term.Bold, term.Printable(summary)))
		}
	}
	return u.Confirm(question, d.format)
}

// warnInterrupted warns, whatever the command is, of entries that only some commands recover:
// those of databases and APIs. A journal that cannot be read because it belongs to root gives no
// warning, and neither does an entry that a run may be working on.
func warnInterrupted(ctx context.Context, u *term.UI, dir string) {
	if dir == "" {
		dir = "/" // of commands that read no machine
	}
	all, err := stores(dir)
	if err != nil {
		return // the command itself reports it
	}
	for _, store := range all {
		warnInterruptedIn(ctx, u, store.Observe())
	}
}

// warnInterruptedIn is warnInterrupted for a journal that the caller has read.
func warnInterruptedIn(ctx context.Context, u *term.UI, journal change.Seen) {
	left, err := change.Engine{}.InterruptedIn(ctx, journal, change.ToLook)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return
	case err != nil:
		u.Warn(fmt.Sprintf("cannot determine whether earlier changes were interrupted: %v", err))
	}
	for _, l := range left {
		if recoveredBySome(l.Entry) && !l.Running {
			u.Warn(l.Text())
		}
	}
}

// recoveredBySome reports whether only some commands can recover an entry: those that access its
// database or API.
func recoveredBySome(e change.Entry) bool {
	return e.Kind != change.KindFiles && e.Kind != change.KindDrivers
}

// applyWork makes a change, records it and completes its report.
func applyWork(ctx context.Context, u *term.UI, e change.Engine, format string, work change.Work, r reporter) error {
	if err := u.Run.BeginRecorded(remedyOf(work.Change.Kind())); err != nil {
		return err
	}
	entry, err := e.Apply(ctx, work)
	completeReport(ctx, u, r, err)
	if entry.ID != 0 {
		r.Common().Entry = &entry.ID
	}
	if err == nil && format == term.FormatTable {
		noteRecorded(u, entry.ID)
	}
	return err
}
