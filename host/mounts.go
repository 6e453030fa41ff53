package host

import (
	"fmt"
	"strconv"
	"strings"
)

// Mount is a mounted file system, as the kernel lists it.
type Mount struct {
	Source  string   // a disk, a server or any text; may be ""
	Place   string   // its mount point
	Kind    string   // "ext4"
	Options []string // as the kernel writes them: a comma in a value is \054
	Number  string   // MAJOR:MINOR of its disk, major 0 without one; "" if the list does not show it
}

// ParseMounts parses /proc/PID/mounts (proc_pid_mounts(5)).
//
// The kernel ends each field with a single space (Linux, fs/proc_namespace.c). A source may be
// empty, and other white space, such as a no-break space, is part of a name.
func ParseMounts(text string) (mounts []Mount, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		fields := strings.SplitN(line, " ", 4)
		if len(fields) < 4 {
			return nil, fmt.Errorf("not a mount: %q", line)
		}
		options := strings.TrimSuffix(fields[3], " 0 0") // for dump(8) and fsck(8)
		mounts = append(mounts, Mount{UnescapeOctal(fields[0]), UnescapeOctal(fields[1]), UnescapeOctal(fields[2]), strings.Split(options, ","), ""})
	}
	return mounts, nil
}

// ParseMountInfo parses /proc/PID/mountinfo (proc_pid_mountinfo(5); Linux,
// Documentation/filesystems/proc.rst, 3.5): six fields and optional ones, a dash, then the type,
// the source and the options of the file system. Options are those of the file system alone.
func ParseMountInfo(text string) (mounts []Mount, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		before, after, _ := strings.Cut(line, " - ")
		fields, of := strings.Split(before, " "), strings.SplitN(after, " ", 3)
		if len(fields) < 6 || len(of) < 3 {
			return nil, fmt.Errorf("not a mount: %q", line)
		}
		mounts = append(mounts, Mount{UnescapeOctal(of[1]), UnescapeOctal(fields[4]), UnescapeOctal(of[0]), strings.Split(of[2], ","), fields[2]})
	}
	return mounts, nil
}

// UnescapeOctal replaces the octal escapes that the kernel writes in these files for white space,
// commas, number signs and backslashes, and that fstab(5) has too: \040.
func UnescapeOctal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
