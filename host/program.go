package host

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// Program is a program of the machine that regenerates a boot menu, boot entries or an initramfs.
// In JSON it is its argument vector, which journals of all releases hold.
type Program struct {
	Kind    ProgramKind
	File    string // the menu that GrubMkconfig writes, the initramfs of Dracut, the kernel of KernelInstall
	Release string // of the kernel, for Dracut and KernelInstall

	other []string // the argument vector of OtherProgram
}

// ProgramKind is the name of a program whose arguments and results gpustack knows.
type ProgramKind string

// The kinds of programs.
const (
	UpdateGrub      ProgramKind = "update-grub"      // Debian, Ubuntu: writes the menu
	GrubMkconfig    ProgramKind = "grub2-mkconfig"   // RHEL, Fedora, SUSE: writes the menu File
	UpdateInitramfs ProgramKind = "update-initramfs" // initramfs-tools: regenerates every initramfs
	Dracut          ProgramKind = "dracut"           // regenerates the initramfs File of one kernel
	KernelInstall   ProgramKind = "kernel-install"   // makes the boot entry of one kernel
	// RevertBoot is "gpustack boot --revert", which every gpustack carries out itself: it reverts what
	// this boot's steps have made and the record no longer wants.
	RevertBoot ProgramKind = "gpustack"
	// OtherProgram is a program that a later release recorded, or one of the others with arguments
	// of a later release: its result cannot be verified.
	OtherProgram ProgramKind = ""
)

// Argv returns the program's name and arguments.
func (p Program) Argv() []string {
	name := string(p.Kind)
	switch p.Kind {
	case GrubMkconfig:
		return []string{name, "-o", p.File}
	case UpdateInitramfs:
		return []string{name, "-u", "-k", "all"}
	case Dracut:
		return []string{name, "--force", p.File, p.Release}
	case KernelInstall:
		return []string{name, "add", p.Release, p.File}
	case RevertBoot:
		return []string{name, "boot", "--revert"}
	case OtherProgram:
		return slices.Clone(p.other)
	}
	return []string{name}
}

// String returns the program's name and arguments, separated by spaces.
func (p Program) String() string {
	return strings.Join(p.Argv(), " ")
}

// Equal reports whether both programs have the same name and arguments.
func (p Program) Equal(q Program) bool {
	return slices.Equal(p.Argv(), q.Argv())
}

// parseProgram returns the program of an argument vector. It is an error if it has no name.
func parseProgram(argv []string) (Program, error) {
	if len(argv) == 0 || argv[0] == "" {
		return Program{}, errors.New("a program without a name")
	}
	p := Program{Kind: ProgramKind(argv[0])}
	switch p.Kind {
	case UpdateGrub, UpdateInitramfs, RevertBoot:
	case GrubMkconfig:
		p.File = argument(argv, 2)
	case Dracut:
		p.File, p.Release = argument(argv, 2), argument(argv, 3)
	case KernelInstall:
		p.Release, p.File = argument(argv, 2), argument(argv, 3)
	default:
		return Program{other: slices.Clone(argv)}, nil
	}
	if !slices.Equal(p.Argv(), argv) || slices.Contains(argv, "") {
		return Program{other: slices.Clone(argv)}, nil
	}
	return p, nil
}

// argument returns the word at i, or "" where there is none.
func argument(argv []string, i int) string {
	if i >= len(argv) {
		return ""
	}
	return argv[i]
}

// MarshalJSON returns the argument vector.
func (p Program) MarshalJSON() ([]byte, error) {
	return json.Marshal(p.Argv())
}

// UnmarshalJSON reads an argument vector.
func (p *Program) UnmarshalJSON(data []byte) error {
	var argv []string
	if err := json.Unmarshal(data, &argv); err != nil {
		return err
	}
	parsed, err := parseProgram(argv)
	if err == nil {
		*p = parsed
	}
	return err
}
