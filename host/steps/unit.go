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
		"VFs on such a machine need a script of its own; host prepare works without systemd, and so does container prepare --static")
	ErrNoProgram = host.WithHint(errors.New("gpustack is in no folder that a unit can start it from at every boot"),
		"install it: install -m 755 gpustack /usr/local/sbin/gpustack")
	ErrNeeded = host.WithHint(errors.New("the steps that another command has recorded need it"),
		"keep it: 'rdma prepare --none' and 'container prepare --none' leave it to each other, and the newest entry is undone first")
	ErrMasked = host.WithHint(errors.New("is masked, so no boot would carry out what is recorded"), "systemctl unmask "+Unit)
)

// Files returns the plan that the unit and its drop-in exist with their contents. They start the
// program that runs now if it lies in a folder of programs below the root, else the one that is
// installed there.
func Files(root host.Root) (edit.Plan, error) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("/proc/self/exe: %w", host.Cause(err))
	}
	return FilesFor(root, self)
}

// FilesFor returns the plan of [Files] for the program at a path of the running machine.
func FilesFor(root host.Root, self string) (edit.Plan, error) {
	found := false
	for _, name := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd"} {
		ok, err := root.Exists(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, host.Cause(err))
		}
		found = found || ok
	}
	program, err := programFor(root, self)
	if !found {
		err = errors.Join(ErrNoSystemd, err)
	}
	if err != nil {
		return nil, err
	}
	var plan edit.Plan
	if isMasked(root, UnitFile) {
		return nil, fmt.Errorf("%s: %w", UnitFile, ErrMasked)
	}
	units, err := containerUnits(root)
	if err != nil {
		return nil, err
	}
	files := []struct{ name, text string }{
		{UnitFile, strings.NewReplacer("{{.}}", program, "{{before}}", before(units)).Replace(templates.BootUnit)}, {WantsFile, templates.BootWants},
	}
	for _, f := range files {
		c, err := edit.Put(root, f.name, []byte(f.text), 0o644, false)
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
	}
	return plan, nil
}

// FilesOf returns the plan of [Files] if a record needs the unit, else that of [NoFiles].
func FilesOf(root host.Root, record *rdma.Record, containers *observed.Containers) (edit.Plan, error) {
	if !unitWanted(record, containers) {
		return NoFiles(root)
	}
	return Files(root)
}

// unitWanted reports whether a record needs the unit. An adapter of rdma prepare always has it.
func unitWanted(record *rdma.Record, containers *observed.Containers) bool {
	return record != nil && len(record.Adapters) > 0 || len(containerSteps(containers, nil)) > 0
}

// PermitFiles returns an error if a plan, such as that of an undo, takes the unit away while what
// it leaves recorded needs the unit. Where only static specs want it, a plan that changes no record
// may take it away: it undoes the entry that added the unit to a record without one.
func PermitFiles(root host.Root, plan edit.Plan) error {
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
	record, err := rdma.ReadRecord(root)
	if c := at(rdma.RecordFile); c != nil {
		record, err = nil, nil
		if c.After != nil {
			record, err = rdma.ParseRecord(c.After.Content)
		}
	}
	containers, containersErr := observed.ReadContainers(root)
	if c := at(observed.ContractFile); c != nil {
		containers, containersErr = nil, nil
		if c.After != nil {
			containers, containersErr = observed.ParseContainers(c.After.Content)
		}
	}
	if err := errors.Join(err, containersErr); err != nil || !unitWanted(record, containers) {
		return err
	}
	if at(rdma.RecordFile) == nil && at(observed.ContractFile) == nil && !unitWanted(record, nil) && containers.Options.Static {
		return nil
	}
	return fmt.Errorf("%s: %w", UnitFile, ErrNeeded)
}

// NoFiles returns the plan that the unit and its drop-in do not exist. A unit that is masked stays
// so.
func NoFiles(root host.Root) (edit.Plan, error) {
	var plan edit.Plan
	for _, name := range []string{UnitFile, WantsFile} {
		if isMasked(root, name) {
			continue
		}
		c, err := edit.Remove(root, name)
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
	}
	return plan, nil
}

// programFor returns the path of gpustack below the root for the unit.
func programFor(root host.Root, self string) (string, error) {
	folders := []string{"/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"}
	var candidates []string
	if rel, ok := strings.CutPrefix(self, strings.TrimSuffix(root.Path("/"), "/")); ok && isPlain(rel) &&
		(slices.Contains(folders, path.Dir(rel)) || strings.HasPrefix(rel, "/opt/")) {
		candidates = append(candidates, rel)
	}
	for _, dir := range folders {
		candidates = append(candidates, path.Join(dir, "gpustack"))
	}
	for _, name := range candidates {
		ok, err := root.Exists(name)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, host.Cause(err))
		}
		if ok {
			return name, nil
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
