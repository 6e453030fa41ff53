package steps

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/gate"
	observed "gpustack/host/machine"
	"gpustack/host/rdma"
	"gpustack/templates"
)

// Unit is the name of the one unit that runs gpustack boot. Later kinds of steps add no units.
const Unit = "gpustack-boot.service"

// UnitFile is the unit, and WantsFile is the drop-in that has each boot start it. A drop-in is a
// file, which the link of systemctl enable is not; 'systemctl mask' still disables the unit.
//
// The unit is before all that uses VFs, and before nothing else: network, sshd and logins must not
// wait for an adapter whose firmware hangs. It has no default dependencies, which put it after
// sysinit.target: cloud-init delays that until the network is up. TimeoutStartSec exceeds [Total],
// after which gpustack ends by itself (systemd.special(7), systemd.service(5)).
const (
	UnitFile  = "/etc/systemd/system/" + Unit
	WantsFile = "/etc/systemd/system/multi-user.target.d/gpustack-boot.conf"
)

// Errors of the unit.
var (
	ErrNoSystemd = host.WithHint(errors.New("the machine has no systemd, whose unit "+Unit+" repeats these steps at every boot"),
		"without systemd, host prepare works for GPUs, and container prepare with --static; VFs and other functions need a script of their own")
	ErrNoProgram = host.WithHint(errors.New("gpustack is in no folder that a unit can start it from at every boot"),
		"install it: install -m 755 gpustack /usr/local/sbin/gpustack")
	ErrNeeded = host.WithHint(errors.New("the steps that another command has recorded need it"),
		host.Textf("keep it: '%s', '%s' and '%s' leave it to each other, and the newest entry is undone first", host.NewCommand("host prepare").Flag("none"),
			host.NewCommand("rdma prepare").Flag("none"), host.NewCommand("container prepare").Flag("none")))
	ErrMasked = host.WithHint(errors.New("is masked, so no boot would carry out what is recorded"), "systemctl unmask "+Unit)
)

// UnitFiles are the files of the unit as they were observed, and what their contents depend on.
type UnitFiles struct {
	files   edit.Files
	masked  map[string]bool // links to /dev/null
	program string          // that the unit starts
	after   []string        // units of containers that the unit precedes
	err     error           // why the unit cannot be written
}

// ObserveUnit reads the files of the unit. They start the program that runs now if it lies in a
// folder of programs below the root, else the one that is installed there. What cannot be read is
// an error of the plan that needs it.
func ObserveUnit(root host.Root) UnitFiles {
	self, err := os.Readlink("/proc/self/exe")
	u := ObserveUnitOf(root, self)
	if err != nil {
		u.err = errors.Join(u.err, fmt.Errorf("/proc/self/exe: %w", host.Cause(err)))
	}
	return u
}

// ObserveUnitOf is [ObserveUnit] for the program at a path of the running machine.
func ObserveUnitOf(root host.Root, self string) UnitFiles {
	u := UnitFiles{files: edit.Observe(root, UnitFile, WantsFile), masked: map[string]bool{}}
	for _, name := range []string{UnitFile, WantsFile} {
		u.masked[name] = root.IsMask(name)
	}
	systemd, err := HasSystemd(root)
	if err == nil && !systemd {
		err = ErrNoSystemd
	}
	var programErr, afterErr error
	u.program, programErr = programFor(root, self)
	u.after, afterErr = containerUnits(root)
	u.err = errors.Join(err, programErr, afterErr)
	return u
}

// HasSystemd reports whether a machine has systemd.
func HasSystemd(root host.Root) (has bool, failed error) {
	for _, name := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd"} {
		ok, err := root.Exists(name)
		has, failed = has || ok, errors.Join(failed, err)
	}
	return has, failed
}

// Plan returns the plan that the unit and its drop-in exist with their contents if a record needs
// them, and else that they do not exist. A unit that is masked is not removed.
func (u UnitFiles) Plan(r gate.Records) (edit.Changes, error) {
	if unitWanted(r) {
		return u.Put()
	}
	return u.Remove()
}

// Put returns the plan that the unit and its drop-in exist with their contents.
func (u UnitFiles) Put() (edit.Changes, error) {
	switch {
	case u.err != nil:
		return nil, u.err
	case u.masked[UnitFile]:
		return nil, fmt.Errorf("%s: %w", UnitFile, ErrMasked)
	}
	unit := strings.NewReplacer("{{.}}", u.program, "{{before}}", before(u.after)).Replace(templates.BootUnit)
	c, err := u.files.Put(UnitFile, []byte(unit), 0o644, false)
	if err != nil {
		return nil, err
	}
	wants, err := u.files.Put(WantsFile, []byte(templates.BootWants), 0o644, false)
	c.Purpose, wants.Purpose = "runs the steps of each boot", "starts that unit"
	return edit.Changes{c, wants}, err
}

// Remove returns the plan that the unit and its drop-in do not exist. A unit that is masked stays
// so.
func (u UnitFiles) Remove() (edit.Changes, error) {
	return u.files.RemoveAll(host.Filter([]string{UnitFile, WantsFile}, func(name string) bool { return !u.masked[name] })...)
}

// unitWanted reports whether a record needs the unit. An adapter of rdma prepare always has it.
func unitWanted(r gate.Records) bool {
	return r.RDMA != nil && len(r.RDMA.Adapters) > 0 || len(guestSteps(r.Guests)) > 0 || len(containerSteps(r.Containers, nil)) > 0
}

// PermitFiles returns an error if a plan, such as that of an undo, takes the unit away while what
// it leaves recorded needs the unit. Where only static specs want it, a plan that changes no record
// may take it away: it undoes the entry that added the unit to a record without one.
func PermitFiles(root host.Root, plan edit.Changes) error {
	at := func(name string) *edit.Change {
		i := slices.IndexFunc(plan, func(c edit.Change) bool { return c.Name == name })
		if i < 0 {
			return nil
		}
		return &plan[i]
	}
	if c := at(UnitFile); c == nil || c.Before == nil || c.After != nil {
		return nil
	}
	r, err := gate.ReadRecords(root)
	for _, c := range plan {
		if err == nil {
			r, err = r.Parse(c.Name, c.After)
		}
	}
	if err != nil || !unitWanted(r) {
		return err
	}
	others := gate.Records{Guests: r.Guests, RDMA: r.RDMA}
	if at(rdma.RecordFile) == nil && at(observed.ContractFile) == nil && !unitWanted(others) && r.Containers.Options.Static {
		return nil
	}
	return fmt.Errorf("%s: %w", UnitFile, ErrNeeded)
}

// programFor returns the path of gpustack below the root for the unit.
func programFor(root host.Root, self string) (string, error) {
	folders := []string{"/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"}
	var candidates []string
	if rel, ok := strings.CutPrefix(self, strings.TrimSuffix(root.Path("/"), "/")); ok && isPlain(rel) &&
		(slices.Contains(folders, path.Dir(rel)) || strings.HasPrefix(rel, "/opt/")) {
		candidates = append(candidates, rel)
	}
	candidates = append(candidates, host.Map(folders, func(dir string) string { return path.Join(dir, "gpustack") })...)
	for _, name := range candidates {
		if exists, err := root.Exists(name); exists || err != nil {
			return name, err
		}
	}
	return "", ErrNoProgram
}

// isPlain reports whether systemd reads a path as it is: %, $, quotes and spaces have a meaning
// there.
func isPlain(name string) bool {
	const plain = "/._+-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return !strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(plain, r) })
}
