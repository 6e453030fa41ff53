package boot

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/edit"
)

// bootPartitions are the mount points of the partitions that systemd-boot reads (kernel-install(8),
// bootctl(1)).
var bootPartitions = []string{"/efi", "/boot", "/boot/efi"}

// partitionsOf returns the boot partitions below root, each once, though links or
// systemd-gpt-auto-generator(8) may give a partition several mount points.
func partitionsOf(root host.Root) []string {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	return slices.DeleteFunc(slices.Clone(bootPartitions), func(name string) bool {
		var stat unix.Stat_t
		place, err := root.Resolve(name)
		if err != nil || unix.Stat(place, &stat) != nil {
			return false // the caller's reading returns the error
		}
		i := inode{stat.Dev, stat.Ino}
		again := seen[i]
		seen[i] = true
		return again
	})
}

// SystemdBoot is systemd-boot with kernels that kernel-install installs. kernel-install gives new
// entries all arguments of /etc/kernel/cmdline or, without that file, those of the running kernel
// (systemd, src/kernel-install/90-loaderentry.install).
type SystemdBoot struct {
	entries  []typeOne      // of this system
	cmdline  *edit.File     // nil: absent
	seed     Args           // initial content of an absent cmdline
	installs []host.Program // programs that reinstall the kernels
}

// ErrNoRoot is the error of arguments for kernels installed later that lack the root file system.
var ErrNoRoot = host.WithHint(
	errors.New("has no root= argument, without which kernels installed later would not boot"),
	writeAll)

// errOfOthers is the error of a boot partition with no entry that is certainly of this system.
var errOfOthers = host.WithHint(
	errors.New("may be another system's entry: it has neither this machine's id nor the root= of the running kernel"),
	writeAll)

// ReadSystemdBoot reads the entries below root and the configuration of kernel-install.
func ReadSystemdBoot(root host.Root) (SystemdBoot, error) {
	var b SystemdBoot
	all, err := KeepEntries(root)
	if err != nil {
		return SystemdBoot{}, err
	}
	if b.entries, err = ofThisSystem(root, all); err != nil {
		return SystemdBoot{}, err
	}
	if newest(b.entries) == nil {
		return SystemdBoot{}, fmt.Errorf("%s: %w", strings.Join(host.Map(partitionsOf(root), entriesDir), ", "), ErrNoEntries)
	}
	if b.cmdline, err = edit.Read(root, kernelCmdline); err != nil {
		return SystemdBoot{}, err
	}
	if b.cmdline == nil {
		if b.seed, err = b.readSeed(root); err != nil {
			return SystemdBoot{}, err
		}
	}
	b.installs, err = b.readInstalls(root)
	return b, err
}

// ofThisSystem returns the entries of the system below root. Several systems can share a boot
// partition.
func ofThisSystem(root host.Root, entries []typeOne) ([]typeOne, error) {
	machine, err := machineID(root)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(entries, func(e typeOne) bool {
		id := e.get("machine-id")
		return id != "" && machine != "" && id != machine
	}), nil
}

// machineID returns the id of the system below root, "" for none: an image's is generated at its
// first boot (machine-id(5)).
func machineID(root host.Root) (string, error) {
	id, err := firstLine(root, "/etc/machine-id")
	if id == "uninitialized" {
		id = ""
	}
	return id, err
}

func firstLine(root host.Root, name string) (string, error) {
	text, err := readIfPresent(root, name)
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line), err
}

// readSeed returns the arguments that kernels installed later need besides gpustack's: the
// distribution's defaults, or those of the newest entry that is certainly of this system. It does
// not use the running kernel's, which may be another machine's.
func (b SystemdBoot) readSeed(root host.Root) (Args, error) {
	const distribution = "/usr/lib/kernel/cmdline"
	f, err := edit.Read(root, distribution)
	if err != nil {
		return nil, err
	}
	source, seed := distribution, Args(nil)
	if f != nil {
		seed = cmdlineArgs(f.Content)
	} else {
		e, err := b.own(root)
		if err != nil {
			return nil, err
		}
		source, seed = e.name, e.options()
	}
	if len(seed.Values("root")) == 0 {
		return nil, fmt.Errorf("%s: %w", source, ErrNoRoot)
	}
	return seed, nil
}

// own returns the newest entry with this machine's id or else, as kernel-install writes none with
// another token (kernel-install(8)), with the root file system that the machine was booted with.
func (b SystemdBoot) own(root host.Root) (*typeOne, error) {
	machine, err := machineID(root)
	running, runningErr := firstLine(root, "/proc/cmdline")
	if err := errors.Join(err, runningErr); err != nil {
		return nil, err
	}
	booted := ParseArgs(running).Values("root")
	e := newest(slices.DeleteFunc(slices.Clone(b.entries), func(e typeOne) bool { return machine == "" || e.get("machine-id") != machine }))
	if e == nil {
		e = newest(slices.DeleteFunc(slices.Clone(b.entries), func(e typeOne) bool {
			return len(booted) == 0 || !slices.Equal(e.options().Values("root"), booted)
		}))
	}
	if e == nil {
		return nil, fmt.Errorf("%s: %w", newest(b.entries).name, errOfOthers)
	}
	return e, nil
}

// readInstalls returns the commands that reinstall each kernel with an entry, as far as
// kernel-install and the kernel's file exist.
func (b SystemdBoot) readInstalls(root host.Root) ([]host.Program, error) {
	if ok, err := root.Exists("/usr/bin/kernel-install"); err != nil || !ok {
		return nil, err
	}
	releases, err := host.Kernels(root)
	if err != nil {
		return nil, err
	}
	var installs []host.Program
	for _, release := range releases {
		if !slices.ContainsFunc(b.entries, func(e typeOne) bool { return e.get("version") == release }) {
			continue
		}
		for _, image := range []string{path.Join(host.ModulesDir, release, "vmlinuz"), "/boot/vmlinuz-" + release} {
			ok, err := root.Exists(image)
			if err != nil {
				return nil, err
			}
			if ok {
				installs = append(installs, host.Program{Kind: host.KernelInstall, Release: release, File: image})
				break
			}
		}
	}
	return installs, nil
}

// Args returns the arguments of kernels installed later: those of /etc/kernel/cmdline, gpustack's
// included, or the file's initial content.
func (b SystemdBoot) Args() Args {
	if b.cmdline != nil {
		return cmdlineArgs(b.cmdline.Content)
	}
	return b.seed
}

// Entries returns the entries of this system.
func (b SystemdBoot) Entries(host.Root) ([]Entry, error) {
	var entries []Entry
	for _, e := range b.entries {
		entry := e.entry(e.options())
		partition := path.Dir(path.Dir(path.Dir(e.name)))
		for _, initrd := range strings.Fields(e.all("initrd")) { // paths on the boot partition
			if strings.HasPrefix(path.Base(initrd), "initr") { // others contain only microcode
				entry.Initrds = append(entry.Initrds, path.Join(partition, initrd))
			}
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// Default returns the release of the newest kernel, or "" if its entry has none.
func (b SystemdBoot) Default(host.Root) (string, error) {
	return newest(b.entries).entry(nil).release(), nil
}

// Later returns the entry that kernel-install creates for a kernel installed later, or nil without
// /etc/kernel/cmdline.
func (b SystemdBoot) Later(host.Root) (*Entry, error) {
	if b.cmdline == nil {
		return nil, nil
	}
	return laterByCmdline(b.cmdline), nil
}

// Programs returns the programs that reinstall each kernel with its arguments and initramfs.
func (b SystemdBoot) Programs(arguments, initramfs bool) []host.Program {
	if !arguments && !initramfs {
		return nil
	}
	return b.installs
}

// Files returns the files that Plan may change.
func (b SystemdBoot) Files() []string { return append(entryFiles(b.entries), kernelCmdline) }

// Plan plans the change of every entry except the rescue entry, and of /etc/kernel/cmdline.
func (b SystemdBoot) Plan(files edit.Files, want Want) (edit.Changes, error) {
	plan, err := planEntries(files, b.entries, want, "", typeOne.options, typeOne.options)
	if err != nil {
		return nil, err
	}
	if b.cmdline != nil {
		c, err := planCmdline(files, b.cmdline, want)
		return append(plan, c), err
	}
	args := want.Change(b.seed).Apply(b.seed)
	c, err := files.Put(kernelCmdline, []byte(args.String()+"\n"), 0o644, false)
	c.Meaning = &edit.Meaning{Grammar: meaningCmdline, Values: values(b.seed, args),
		Whole: &edit.Value{Name: kernelCmdline, Before: []string{}, After: []string{args.String()}}}
	return append(plan, c), err
}
