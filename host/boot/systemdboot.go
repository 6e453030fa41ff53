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

// bootPartitions are where the partitions that systemd-boot reads are mounted
// (kernel-install(8), bootctl(1)).
var bootPartitions = []string{"/efi", "/boot", "/boot/efi"}

// partitionsOf returns the boot partitions below root, without those that have another name among
// them: by a link, or because systemd-gpt-auto-generator(8) mounts the partition a second time.
func partitionsOf(root host.Root) []string {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	return slices.DeleteFunc(slices.Clone(bootPartitions), func(name string) bool {
		var stat unix.Stat_t
		place, err := root.Resolve(name)
		if err != nil || unix.Stat(place, &stat) != nil {
			return false // reading it returns the error
		}
		i := inode{stat.Dev, stat.Ino}
		again := seen[i]
		seen[i] = true
		return again
	})
}

// SystemdBoot is systemd-boot with kernels that kernel-install puts there. What it
// makes entries of is /etc/kernel/cmdline, in whole, or, where that is not there, the
// arguments of the running kernel (systemd, src/kernel-install/90-loaderentry.install).
type SystemdBoot struct {
	entries  []typeOne // of this system
	cmdline  *edit.File
	seed     Args           // for that file, where it is not there
	installs []host.Program // makes the entries anew
}

// ErrNoRoot says that arguments from which all entries would be made do not say where
// the root file system is.
var ErrNoRoot = errors.New("has no root= among its options, without which later kernels would not start")

// ReadSystemdBoot reads the entries below root, and what kernel-install is told.
func ReadSystemdBoot(root host.Root) (SystemdBoot, error) {
	var b SystemdBoot
	var dirs []string
	for _, partition := range partitionsOf(root) {
		dir := path.Join(partition, "loader/entries")
		dirs = append(dirs, dir)
		entries, err := readEntries(root, dir)
		if err != nil {
			return SystemdBoot{}, err
		}
		b.entries = append(b.entries, entries...)
	}
	var err error
	if b.entries, err = ofThisSystem(root, b.entries); err != nil {
		return SystemdBoot{}, err
	}
	if newest(b.entries) == nil {
		return SystemdBoot{}, fmt.Errorf("%s: %w", strings.Join(dirs, ", "), ErrNoEntries)
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

// ofThisSystem returns the entries that belong to the system below root: several systems share a
// partition.
func ofThisSystem(root host.Root, entries []typeOne) ([]typeOne, error) {
	machine, err := firstLine(root, "/etc/machine-id")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(entries, func(e typeOne) bool {
		id := e.get("machine-id")
		return id != "" && machine != "" && id != machine
	}), nil
}

func firstLine(root host.Root, name string) (string, error) {
	data, err := root.ReadFile(name)
	if err != nil && !host.IsAbsent(err) {
		return "", fmt.Errorf("%s: %w", name, host.Cause(err))
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line), nil
}

// readSeed returns what later kernels shall get beside ours: what the distribution
// says for all, or what the newest entry has; never the arguments of a kernel that
// runs, which may be another machine's.
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
		e := newest(b.entries)
		source, seed = e.name, ParseArgs(e.all("options"))
	}
	if len(seed.Values("root")) == 0 {
		return nil, fmt.Errorf("%s: %w", source, ErrNoRoot)
	}
	return seed, nil
}

// readInstalls returns how each kernel that has an entry is installed anew, as far as
// kernel-install and the kernels' files are there.
func (b SystemdBoot) readInstalls(root host.Root) ([]host.Program, error) {
	exists := func(name string) (bool, error) {
		ok, err := root.Exists(name)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, host.Cause(err))
		}
		return ok, err
	}
	if ok, err := exists("/usr/bin/kernel-install"); err != nil || !ok {
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
			ok, err := exists(image)
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

// Args returns what later kernels begin with: the arguments of /etc/kernel/cmdline, ours
// among them, or what that would be made of.
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
		entry := e.entry(ParseArgs(e.all("options")))
		partition := path.Dir(path.Dir(path.Dir(e.name)))
		for _, initrd := range strings.Fields(e.all("initrd")) { // is named from its partition's top
			if strings.HasPrefix(path.Base(initrd), "initr") { // the others hold microcode alone
				entry.Initrds = append(entry.Initrds, path.Join(partition, initrd))
			}
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// Default returns the release of the newest kernel, "" where its entry does not tell it.
func (b SystemdBoot) Default(host.Root) (string, error) {
	return newest(b.entries).entry(nil).release(), nil
}

// Later returns what kernel-install gives an entry.
func (b SystemdBoot) Later(host.Root) (*Entry, error) {
	if b.cmdline == nil {
		return nil, nil
	}
	return laterByCmdline(b.cmdline), nil
}

// Programs returns what installs each kernel anew, with its arguments and its initramfs.
func (b SystemdBoot) Programs(arguments, initramfs bool) []host.Program {
	if !arguments && !initramfs {
		return nil
	}
	return b.installs
}

// Plan plans the change of every entry but one for rescue, and of what later ones begin
// with.
func (b SystemdBoot) Plan(root host.Root, want Want) (edit.Plan, error) {
	var plan edit.Plan
	for _, e := range b.entries {
		if e.isRescue() {
			continue
		}
		before := ParseArgs(e.all("options"))
		text := string(e.file.Content)
		if change := want.Change(before); !change.IsZero() {
			text = e.edit(change)
		}
		c, err := e.plan(root, text)
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
		edited := typeOne{e.file, e.name, strings.SplitAfter(text, "\n")}
		after := ParseArgs(edited.all("options"))
		if !want.Change(after).IsZero() {
			return nil, fmt.Errorf("%s: %w", e.name, ErrNotInEffect)
		}
		if err := asWanted(e, before, after, want); err != nil {
			return nil, err
		}
	}
	if b.cmdline != nil {
		c, err := planCmdline(root, b.cmdline, want)
		return append(plan, c), err
	}
	args := want.Change(b.seed).Apply(b.seed)
	c, err := edit.Put(root, kernelCmdline, []byte(args.String()+"\n"), 0o644, false)
	return append(plan, c), err
}
