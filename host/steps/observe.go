package steps

import (
	"errors"
	"strings"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/rdma"
)

// State is what a check needs to know of the steps of every boot.
type State struct {
	Wanted  []Step
	Result  *Result  // of this boot; nil if no step was carried out
	Missing []string // files of the unit that do not exist
	Program string   // of the unit, if it does not exist: "" otherwise
	Masked  bool     // the unit is a link to /dev/null (systemctl(1), mask)
	// Unordered are units of containers that may start before the steps are done.
	Unordered []string
	Err       error // what cannot be read
}

// Observe reads the state of the steps for what is recorded on an observed machine. It asks no
// kernel interface but files.
func Observe(root host.Root, m machine.Machine) State {
	var s State
	adapters, recordErr := rdma.ReadRecord(root)
	s.Wanted = Of(gate.Records{Guests: m.Contract.Value, Containers: m.Containers, RDMA: adapters})
	result, resultErr := ReadResult(root)
	s.Result, s.Err = result, errors.Join(m.Contract.Err, recordErr, resultErr)
	if len(s.Wanted) == 0 {
		return s
	}
	unordered, orderErr := Unordered(root)
	s.Unordered, s.Err = unordered, errors.Join(s.Err, orderErr)
	for _, name := range []string{UnitFile, WantsFile} {
		exists, err := root.Exists(name)
		switch {
		case root.IsMask(name):
			s.Masked = true
		case err == nil && !exists:
			s.Missing = append(s.Missing, name)
		case err == nil && name == UnitFile:
			s.Program, err = lacking(root)
		}
		s.Err = errors.Join(s.Err, err)
	}
	return s
}

// lacking returns the program without which systemd skips the unit without an error, if it does not
// exist (systemd.unit(5), ConditionFileIsExecutable).
func lacking(root host.Root) (string, error) {
	unit, err := root.ReadFile(UnitFile)
	_, line, _ := strings.Cut(string(unit), "\nConditionFileIsExecutable=")
	program, _, conditional := strings.Cut(line, "\n")
	if err != nil || !conditional {
		return "", err
	}
	exists, err := root.Exists(program)
	if exists || err != nil {
		return "", err
	}
	return program, nil
}

// Unstarted returns the finding of a unit that no boot starts, although steps are recorded, or nil.
// What cannot be read is not in it.
func (s State) Unstarted() *host.Finding {
	f := host.Finding{Status: host.Fail, File: UnitFile, Effect: "the next boot carries out no steps"}
	switch {
	case len(s.Wanted) == 0:
		return nil
	case s.Masked:
		f.Seen, f.Remedy = Unit+" is masked", host.Plain("systemctl unmask "+Unit)
	case len(s.Missing) > 0:
		f.File, f.Seen = s.Missing[0], strings.Join(s.Missing, " and ")+" missing, although steps are recorded"
		f.Remedy = s.Rewrite()
	case s.Program != "":
		f.File, f.Seen = s.Program, s.Program+", which "+Unit+" starts, does not exist"
		f.Remedy = host.Plain("install gpustack again, or copy it: install -m 755 FILE " + s.Program)
	default:
		return nil
	}
	return &f
}

// Rewrite returns how the unit is written again: by the command of a record that exists, as the
// others would be refused.
func (s State) Rewrite() host.Text {
	command := "rdma prepare"
	for _, w := range s.Wanted {
		if w.Kind == KindNodes || w.Kind == KindCDI {
			command = "container prepare"
		} else if w.Goal.Function != nil {
			command = "host prepare"
		}
	}
	return host.Textf("run %s: it writes the unit again", host.NewCommand(command))
}

// Recorded returns the steps for what is recorded on a machine.
func Recorded(root host.Root) ([]Step, error) {
	r, err := gate.ReadRecords(root)
	return Of(r), err
}

// BootFile contains an id that differs for each boot (proc_sys_kernel(5)).
const BootFile = "/proc/sys/kernel/random/boot_id"

// BootID returns the id of the running boot, or "" if the root is not a running machine.
func BootID(root host.Root) (string, error) {
	data, err := host.IfPresent(root.ReadFile(BootFile))
	return strings.TrimSpace(string(data)), err
}
