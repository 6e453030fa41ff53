package initramfs

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// Maker is a program that makes initramfs.
type Maker string

// The makers that gpustack can tell what to put there.
const (
	Tools  Maker = "initramfs-tools"
	Dracut Maker = "dracut"
)

// ErrMaker says that the program which makes a machine's initramfs is none that
// gpustack can tell what to put there.
var ErrMaker = errors.New("initramfs maker not supported yet")

// ErrNoMaker says that no such program was found.
var ErrNoMaker = errors.New("no initramfs maker found")

const (
	mkinitramfs     = "/usr/sbin/mkinitramfs"
	updateInitramfs = "/usr/sbin/update-initramfs"
)

// MakerOf tells which program makes the machine's initramfs. It goes by the
// programs, on a tree without any by what is there of their configuration, and where
// that is of several or of none by the distribution: words of os-release's ID,
// VERSION_ID or ID_LIKE.
func MakerOf(root host.Root, distribution string) (Maker, error) {
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
		if maker := ofDistribution(word); maker != "" {
			return maker, nil
		}
	}
	if len(configured) > 0 {
		return supported(configured[0])
	}
	return "", ErrNoMaker
}

// trace is what tells of a maker.
type trace struct {
	file  string
	maker Maker
}

// present returns the makers of which something is there, each once.
func present(root host.Root, traces []trace) ([]Maker, error) {
	var makers []Maker
	for _, t := range traces {
		ok, err := root.Exists(t.file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.file, host.Cause(err))
		}
		if ok && !slices.Contains(makers, t.maker) {
			makers = append(makers, t.maker)
		}
	}
	return makers, nil
}

func supported(m Maker) (Maker, error) {
	if m != Tools && m != Dracut {
		return "", fmt.Errorf("%s: %w", m, ErrMaker)
	}
	return m, nil
}

// ofBoth tells which of two programs is used: what update-initramfs runs, since the
// hooks of Debian's kernel packages run that. It belongs to initramfs-tools, which
// Debian does not install beside dracut (but beside dracut-core), and to newer
// packages of dracut; without it the hook of initramfs-tools does nothing
// (/etc/kernel/postinst.d/initramfs-tools).
func ofBoth(root host.Root) (Maker, error) {
	text, err := root.ReadFile(updateInitramfs)
	switch {
	case host.IsAbsent(err):
		return Dracut, nil
	case err != nil:
		return "", fmt.Errorf("%s: %w", updateInitramfs, host.Cause(err))
	case strings.Contains(string(text), "mkinitramfs"):
		return Tools, nil
	case strings.Contains(string(text), "dracut"):
		return Dracut, nil
	}
	return "", fmt.Errorf("%s: runs neither mkinitramfs nor dracut: %w", updateInitramfs, ErrMaker)
}

// ofDistribution tells by a word of os-release what a distribution installs, or "".
func ofDistribution(word string) Maker {
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

// Image is where a kernel's initramfs lies.
type Image struct {
	Release string
	Name    string // "" where there is none
}

// imageNames are what distributions call the initramfs of a kernel: Debian
// (update-initramfs, and /etc/kernel/postinst.d/dracut), RHEL and Fedora (dracut's
// own default), and SUSE.
var imageNames = []string{"initrd.img-%s", "initramfs-%s.img", "initrd-%s"}

// Images returns where each kernel's initramfs lies: each there is, if a change of
// makers has left several. A kernel without one is in the list, without a name: it
// may be a leftover whose modules alone are there, or be built to start without;
// neither program makes one for it, and started it would leave every function to
// the host.
func Images(root host.Root, releases []string) ([]Image, error) {
	var images []Image
	for _, release := range releases {
		found := false
		for _, format := range imageNames {
			name := path.Join("/boot", fmt.Sprintf(format, release))
			ok, err := root.Exists(name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, host.Cause(err))
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

// Programs are what makes those images anew.
func (m Maker) Programs(images []Image) []host.Program {
	if m == Tools {
		return []host.Program{{Kind: host.UpdateInitramfs}}
	}
	var programs []host.Program
	for _, i := range images {
		if i.Name != "" {
			programs = append(programs, host.Program{Kind: host.Dracut, File: i.Name, Release: i.Release})
		}
	}
	return programs
}
