package host

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelLogs are copies of the kernel's log that archives hold: what syslog keeps of the
// boot, and what sosreport does.
var kernelLogs = []string{"/var/log/dmesg", "/sos_commands/kernel/dmesg"}

const kmsg = "/dev/kmsg"

// KernelLog returns the lines of the kernel's log that hold one of words, and where they
// were read: from the kernel itself (Linux, Documentation/ABI/testing/dev-kmsg), whose
// oldest lines may be gone, or, of a tree without its device, from a copy. Where there is
// none either, the error is of an absent file.
func KernelLog(root Root, words ...string) (lines []string, file string, err error) {
	wanted := func(line string) bool {
		for _, w := range words {
			if strings.Contains(line, w) {
				return true
			}
		}
		return false
	}
	lines, err = readKmsg(root, wanted)
	if !IsAbsent(err) {
		return lines, kmsg, err
	}
	for _, name := range kernelLogs {
		data, err := root.ReadFile(name)
		if IsAbsent(err) {
			continue
		}
		if err != nil {
			return nil, name, fmt.Errorf("%s: %w", name, Cause(err))
		}
		for line := range strings.Lines(string(data)) {
			if wanted(line) {
				if i := strings.Index(line, "] "); strings.HasPrefix(line, "[") && i >= 0 {
					line = line[i+2:] // less the time
				}
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return lines, name, nil
	}
	return nil, kmsg, err
}

// readKmsg reads all records that the kernel has. A file of that name that is no such
// device is a tree's, and absent.
func readKmsg(root Root, wanted func(string) bool) (lines []string, err error) {
	place, err := root.Resolve(kmsg)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	err = unix.Stat(place, &stat)
	if err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFCHR || stat.Rdev != unix.Mkdev(1, 11)) { // Documentation/admin-guide/devices.txt
		err = unix.ENOENT
	}
	var fd int
	if err == nil {
		fd, err = unix.Open(place, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kmsg, err)
	}
	defer unix.Close(fd) //nolint:errcheck // only read from
	record := make([]byte, 8192)
	for {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EAGAIN) || err == nil && n == 0:
			return lines, nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // overwritten meanwhile
			continue
		case err != nil:
			return nil, fmt.Errorf("%s: %w", kmsg, err)
		}
		_, text, _ := bytes.Cut(record[:n], []byte(";"))
		line, _, _ := strings.Cut(string(text), "\n")
		if wanted(line) {
			lines = append(lines, line)
		}
	}
}
