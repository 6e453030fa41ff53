package initramfs

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// Generator is a program that generates initramfs images.
type Generator string

// The supported generators.
const (
	Tools  Generator = "initramfs-tools"
	Dracut Generator = "dracut"
)

const supportedHint = "gpustack supports initramfs-tools and dracut"

// Errors of GeneratorOf.
var (
	// ErrUnsupported is the error of a machine with a generator that is not supported.
	ErrUnsupported = host.WithHint(errors.New("initramfs generator not supported"), supportedHint)
	// ErrNoGenerator is the error of a machine without a known generator.
	ErrNoGenerator = host.WithHint(errors.New("no initramfs generator found"), supportedHint)
)

const (
	mkinitramfs     = "/usr/sbin/mkinitramfs"
	updateInitramfs = "/usr/sbin/update-initramfs"
)

// GeneratorOf returns the machine's generator. It looks for installed programs, then for
// configuration files. If those belong to several generators or to none, distribution decides:
// words of ID, VERSION_ID or ID_LIKE of os-release.
func GeneratorOf(root host.Root, distribution string) (Generator, error) {
	programs, err := present(root, []trace{
		{mkinitramfs, Tools}, {"/usr/bin/dracut", Dracut}, {"/usr/sbin/dracut", Dracut}, // older packages
		{"/usr/bin/mkinitcpio", "mkinitcpio"}, {"/usr/bin/booster", "booster"},
	})
	if err != nil {
		return "", err
	}
	if slices.Contains(programs, Tools) && slices.Contains(programs, Dracut) {
		return ofBoth(root)
	}
	if len(programs) > 0 {
		return supported(programs[0])
	}
	configured, err := present(root, []trace{
		{"/etc/initramfs-tools", Tools}, {"/etc/dracut.conf", Dracut}, {"/etc/dracut.conf.d", Dracut},
		{"/etc/mkinitcpio.conf", "mkinitcpio"}, {"/etc/booster.yaml", "booster"},
	})
	if err != nil {
		return "", err
	}
	if len(configured) == 1 {
		return supported(configured[0])
	}
	for word := range strings.FieldsSeq(distribution) {
		if generator := ofDistribution(word); generator != "" {
			return generator, nil
		}
	}
	if len(configured) > 0 {
		return supported(configured[0])
	}
	return "", ErrNoGenerator
}

// trace is a file that shows that a generator is installed or configured.
type trace struct {
	file      string
	generator Generator
}

// present returns the generators of the files that exist, each once.
func present(root host.Root, traces []trace) ([]Generator, error) {
	var generators []Generator
	for _, t := range traces {
		ok, err := root.Exists(t.file)
		if err != nil {
			return nil, err
		}
		if ok && !slices.Contains(generators, t.generator) {
			generators = append(generators, t.generator)
		}
	}
	return generators, nil
}

func supported(m Generator) (Generator, error) {
	if m != Tools && m != Dracut {
		return "", fmt.Errorf("%s: %w", m, ErrUnsupported)
	}
	return m, nil
}

// ofBoth returns the generator in use if both programs are installed: the one that update-initramfs
// runs, because the hooks of Debian's kernel packages run update-initramfs. That program is part of
// initramfs-tools, which conflicts with Debian's dracut but not with dracut-core, and of newer
// dracut packages. Without it, the hook of initramfs-tools does nothing
// (/etc/kernel/postinst.d/initramfs-tools).
func ofBoth(root host.Root) (Generator, error) {
	text, err := root.ReadFile(updateInitramfs)
	switch {
	case host.IsAbsent(err):
		return Dracut, nil
	case err != nil:
		return "", err
	case strings.Contains(string(text), "mkinitramfs"):
		return Tools, nil
	case strings.Contains(string(text), "dracut"):
		return Dracut, nil
	}
	return "", fmt.Errorf("%s: runs neither mkinitramfs nor dracut: %w", updateInitramfs, ErrUnsupported)
}

// ofDistribution returns the generator that a distribution installs, by a word of os-release, or
// "".
func ofDistribution(word string) Generator {
	switch word {
	case "debian", "ubuntu":
		return Tools
	case "rhel", "centos", "rocky", "almalinux", "fedora", "ol", "suse", "sles", "sled", "sle_hpc":
		return Dracut
	}
	if strings.HasPrefix(word, "opensuse") {
		return Dracut
	}
	return ""
}

// Image is the initramfs of a kernel.
type Image struct {
	Release string // of the kernel
	Name    string // path on the machine; "" if the kernel has no initramfs
}

// imageNames are the names of a kernel's initramfs: Debian's (update-initramfs, and
// /etc/kernel/postinst.d/dracut), that of RHEL and Fedora (dracut's default), and SUSE's.
var imageNames = []string{"initrd.img-%s", "initramfs-%s.img", "initrd-%s"}

// Images returns the initramfs of each kernel, or all of them if a change of generators has left
// several. A kernel without one is in the list without a name: it may have been removed except for
// its modules, or may boot without an initramfs. No generator makes one for it, and it would leave
// every function to the host's drivers.
func Images(root host.Root, releases []string) ([]Image, error) {
	var images []Image
	for _, release := range releases {
		found := false
		for _, format := range imageNames {
			name := path.Join("/boot", fmt.Sprintf(format, release))
			ok, err := root.Exists(name)
			if err != nil {
				return nil, err
			}
			if ok {
				found = true
				images = append(images, Image{release, name})
			}
		}
		if !found {
			images = append(images, Image{Release: release})
		}
	}
	return images, nil
}

// Programs returns the programs that regenerate images.
func (m Generator) Programs(images []Image) []host.Program {
	if m == Tools {
		return []host.Program{{Kind: host.UpdateInitramfs}}
	}
	named := host.Filter(images, func(i Image) bool { return i.Name != "" })
	return host.Map(named, func(i Image) host.Program { return host.Program{Kind: host.Dracut, File: i.Name, Release: i.Release} })
}
