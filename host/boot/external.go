package boot

import (
	"cmp"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/edit"
)

// External is a boot loader whose arguments the operator has set with the tool that configures it:
// gpustack reads them and changes none.
type External struct {
	*Unsupported
	Warning string // "" if the file that the loader reads has the arguments
	args    Args
}

// Accept returns the boot loader once the arguments are set: in the file that it reads, or, with a
// warning, only on the running kernel. The translation mode is the operator's.
func (e *Unsupported) Accept(want Args) (External, bool) {
	need := slices.DeleteFunc(slices.Clone(want), func(arg string) bool { return Args{arg}.Passthrough().Known() })
	lacking := e.args.Lacking(need)
	switch {
	case !e.edits:
		return External{}, false
	case len(lacking) == 0:
		return External{Unsupported: e, args: e.args}, true
	case len(e.running.Lacking(need)) > 0:
		return External{}, false
	}
	warning := fmt.Sprintf("%s: only the running kernel shows %s; whether the next boot has it is unknown", e.What, Args(lacking))
	if e.file != "" {
		warning = fmt.Sprintf("%s lacks %s, which the running kernel has: %s", e.file, Args(lacking), e.Command)
	}
	return External{Unsupported: e, args: e.running, Warning: warning}, true
}

// Args returns the arguments in the file that the loader reads, or else those of the running kernel.
func (e External) Args() Args { return e.args }

// Entries returns an entry for the file that the loader reads.
func (e External) Entries(host.Root) ([]Entry, error) {
	if e.Warning != "" || e.file == "" {
		return nil, nil
	}
	return []Entry{{File: e.file, Kernel: installedLater, Later: true, Args: e.args}}, nil
}

// Later returns nil: Entries has the arguments of every kernel.
func (External) Later(host.Root) (*Entry, error) { return nil, nil }

// Default returns "": the default is unknown.
func (External) Default(host.Root) (string, error) { return "", nil }

// Files returns none.
func (External) Files() []string { return nil }

// Programs returns none.
func (External) Programs(_, _ bool) []host.Program { return nil }

// Plan returns an error that names the arguments which would have to change.
func (e External) Plan(_ edit.Files, want Want) (edit.Changes, error) {
	change := want.Change(e.args)
	if change.IsZero() {
		return nil, nil
	}
	refused := *e.Unsupported
	refused.Command = fmt.Sprintf("set kernel arguments with the same tool: add %s, remove %s",
		cmp.Or(change.Add.String(), "none"), cmp.Or(change.Drop.String(), "none"))
	return nil, &refused
}
