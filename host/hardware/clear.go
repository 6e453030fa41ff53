package hardware

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Errors of files that ghw must not open.
var (
	errLeaves  = errors.New("a link that leads out of the root")
	errNoFile  = errors.New("not a regular file")
	errTooLong = errors.New("longer than files of the kernel are")
)

// maxFile is the size in bytes of the longest file that ghw may read: /proc/cpuinfo of the largest
// machines has three million.
const maxFile = 64 << 20

// clear reports whether ghw may read the files, of which elements may be patterns: it resolves
// links as this process does, not below the root, and opens whatever is there. If not, there is a
// warning. On the running machine every path is below the root.
//
// A recorder gets what ghw reads, except what identifies the machine.
func (p *probe) clear(patterns ...string) bool {
	ok := true
	for _, pattern := range patterns {
		for _, name := range p.expand(pattern) {
			if err := p.isClear(name); err != nil {
				p.failed(name, err)
				ok = false
				continue
			}
			p.record(name)
		}
	}
	return ok
}

func (p *probe) isClear(name string) error {
	if p.root.IsMachine() {
		return nil
	}
	place, err := p.root.Resolve(name)
	if errors.Is(err, unix.ELOOP) {
		return nil // a link to itself stands for a file that could not be read for a snapshot
	}
	if err != nil {
		return err
	}
	seen, err := filepath.EvalSymlinks(p.root.Path(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil // nothing is there
	}
	if err != nil {
		return err
	}
	// The root may itself be below links.
	top, err := filepath.EvalSymlinks(p.root.Path("/"))
	if err != nil {
		return err
	}
	below, err := filepath.Rel(p.root.Path("/"), place)
	if err != nil {
		return err
	}
	if seen != filepath.Join(top, below) {
		return errLeaves
	}
	info, err := os.Stat(seen)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return nil
	case !info.Mode().IsRegular():
		return errNoFile
	case info.Size() > maxFile:
		return errTooLong
	}
	return nil
}

// expand returns the names that a pattern matches. A folder that cannot be read matches nothing:
// the caller lists it too.
func (p *probe) expand(pattern string) []string {
	names := []string{""}
	for element := range strings.SplitSeq(pattern, "/") {
		var next []string
		for _, dir := range names {
			if !strings.Contains(element, "*") {
				next = append(next, path.Join(dir, element))
				continue
			}
			all, err := p.root.ReadDir(dir)
			if err != nil {
				continue
			}
			next = append(next, host.Map(host.Filter(all, matches(element)), func(name string) string { return path.Join(dir, name) })...)
		}
		names = next
	}
	return names
}

// record reads a file for the recorder, if there is one, and records the links to a folder.
func (p *probe) record(name string) {
	if !p.root.IsRecorded() || identifies(name) {
		return
	}
	place, err := p.root.Resolve(name)
	if err != nil {
		return
	}
	switch info, err := os.Stat(place); {
	case err != nil: // a pattern of which one element is a file matches nothing
	case info.IsDir():
		p.root.Real(name) //nolint:errcheck // recorded
	case hasNoValue(place):
	case name == cpuInfo:
		p.root.ReadReduced(name, reduceCPUs) //nolint:errcheck // recorded too
	default:
		p.root.ReadFile(name) //nolint:errcheck // recorded too
	}
}

// hasNoValue reports whether an attribute has no value now, as the speed of an interface that is
// down (Linux, Documentation/ABI/testing/sysfs-class-net). It is as if absent.
func hasNoValue(place string) bool {
	f, err := os.Open(place)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only read from
	_, err = f.Read(make([]byte, 1))
	return errors.Is(err, unix.EINVAL)
}

// identifies reports whether a file identifies a single machine or part.
func identifies(name string) bool {
	base := path.Base(name)
	return slices.ContainsFunc([]string{"serial", "uuid", "asset_tag"}, func(word string) bool { return strings.Contains(base, word) }) ||
		base == "address" || strings.HasPrefix(name, udevData)
}

// exists is [host.Root.Exists] that does not mind a file in place of a folder, such as
// /sys/class/net/bonding_masters among the interfaces.
func (p *probe) exists(name string) (bool, error) {
	there, err := p.root.Exists(name)
	if errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	return there, err
}

// list returns the entries of a folder that match a pattern. Unless it can be read, there is a
// warning with what is unknown then.
func (p *probe) list(dir, pattern, unknown string) (names []string, ok bool) {
	all, err := p.root.ReadDir(dir)
	if err != nil {
		p.warn("%v: %s", err, unknown)
		return nil, false
	}
	return append([]string{}, host.Filter(all, matches(pattern))...), true
}

func matches(pattern string) func(name string) bool {
	return func(name string) bool {
		match, err := path.Match(pattern, name)
		return match && err == nil
	}
}

// notOf returns an error for a value that is not of its kind.
func notOf(kind, value string) error {
	return fmt.Errorf("not %s: %q", kind, value)
}
