package guard

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// udevRecord is what udev has recorded of a disk (systemd, sd-device's database:
// run/udev/data/bMAJOR:MINOR; properties of src/udev/udev-builtin-blkid.c).
type udevRecord struct {
	links  []string // "/dev/disk/by-id/nvme-…"
	values map[string]string
}

// udev returns the record of a disk by its name in sysfs.
func (g *guard) udev(name string) (udevRecord, error) {
	if r, ok := g.records[name]; ok {
		return r, nil
	}
	numbers, err := g.blockNumbers()
	if err != nil {
		return udevRecord{}, err
	}
	r := udevRecord{values: map[string]string{}}
	data, err := g.root.ReadFile("/run/udev/data/b" + numbers[name])
	if err != nil && !host.IsAbsent(err) {
		return r, err
	}
	for line := range strings.Lines(string(data)) {
		if link, ok := strings.CutPrefix(strings.TrimSpace(line), "S:"); ok {
			r.links = append(r.links, "/dev/"+link)
		}
		if property, ok := strings.CutPrefix(strings.TrimSpace(line), "E:"); ok {
			key, value, _ := strings.Cut(property, "=")
			r.values[key] = value
		}
	}
	if g.records == nil {
		g.records = map[string]udevRecord{}
	}
	g.records[name] = r
	return r, nil
}

// hexUnescape replaces the escapes of udev's encoded properties: \x20 (systemd,
// src/libsystemd/sd-device, encode_devnode_name).
func hexUnescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if strings.HasPrefix(s[i:], `\x`) && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

type tag struct{ name, property, dir string }

// tags are the names of file systems and partitions in fstab(5), crypttab(5) and on the kernel
// command line, with the property of udev's record and the folder of udev's links.
var tags = []tag{
	{"UUID=", "ID_FS_UUID_ENC", "by-uuid"}, {"LABEL=", "ID_FS_LABEL_ENC", "by-label"},
	{"PARTUUID=", "ID_PART_ENTRY_UUID", "by-partuuid"}, {"PARTLABEL=", "ID_PART_ENTRY_NAME", "by-partlabel"},
}

// tagged returns the disk in sysfs of UUID=…, of a name in /dev, or of MAJOR:MINOR. It returns ""
// if the machine has no such disk now.
func (g *guard) tagged(spec string) (string, error) {
	for _, tag := range tags {
		if value, ok := strings.CutPrefix(spec, tag.name); ok {
			value = strings.Trim(value, `"`)
			name, err := g.byRecord(func(r udevRecord) bool {
				recorded := hexUnescape(r.values[tag.property])
				return recorded == value || strings.HasSuffix(tag.name, "UUID=") && value != "" && strings.EqualFold(recorded, value)
			})
			if err != nil || name != "" || value == "" {
				return name, err
			}
			return g.block(path.Join(links, tag.dir, value))
		}
	}
	if !strings.HasPrefix(spec, "/dev/") {
		return g.numbered(spec)
	}
	if name, err := g.block(spec); err != nil || name != "" {
		return name, err
	}
	return g.byRecord(func(r udevRecord) bool { return slices.Contains(r.links, spec) }) // a tree need not have the links
}

// links is the folder of udev's links to disks.
const links = "/dev/disk"

// showsTags reports whether a disk has a record of udev or a link: without both, a tag that no disk
// has may be that of any disk.
func (g *guard) showsTags() (bool, error) {
	for _, dir := range []string{"/run/udev/data", links} {
		names, err := g.entries(dir)
		if err != nil || len(names) > 0 {
			return true, err
		}
	}
	return false, nil
}

// byRecord returns the first disk whose record is accepted. Of a disk and those that are made of
// it, as the members of a mirror, several may have the same tag: each leads to the same functions.
func (g *guard) byRecord(accept func(udevRecord) bool) (string, error) {
	names, err := g.recordedWith(accept)
	return cmp.Or(append(names, "")...), err
}

// recordedWith returns the disks whose records are accepted.
func (g *guard) recordedWith(accept func(udevRecord) bool) (accepted []string, err error) {
	names, err := g.list(blockDir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		r, err := g.udev(name)
		if err != nil {
			return nil, err
		}
		if accept(r) {
			accepted = append(accepted, name)
		}
	}
	return accepted, nil
}

// numbered returns the disk with a number, MAJOR:MINOR, or "".
func (g *guard) numbered(number string) (string, error) {
	numbers, err := g.blockNumbers()
	for name, own := range numbers {
		if own != "" && own == number {
			return name, err
		}
	}
	return "", err
}

// blockNumbers returns the number of each disk and partition, MAJOR:MINOR, by its name in sysfs. It
// reads them once.
func (g *guard) blockNumbers() (map[string]string, error) {
	if g.numbers != nil {
		return g.numbers, nil
	}
	names, err := g.list(blockDir)
	if err != nil {
		return nil, err
	}
	numbers := map[string]string{}
	for _, name := range names {
		if numbers[name], err = g.attribute(path.Join(blockDir, name, "dev")); err != nil {
			return nil, err
		}
	}
	g.numbers = numbers
	return numbers, nil
}

// entries returns the names in a folder, or none if it is absent or a file.
func (g *guard) entries(dir string) ([]string, error) {
	names, err := g.list(dir)
	if errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	return names, err
}
