package host

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelLogs are copies of the kernel log in archives: syslog's copy of the boot messages, and
// sosreport's.
var kernelLogs = []string{"/var/log/dmesg", "/sos_commands/kernel/dmesg"}

const kmsg = "/dev/kmsg"

// KernelLog returns the lines of the kernel log for which wanted returns true, and the file they
// were read from. That is the running kernel's log (Linux, Documentation/ABI/testing/dev-kmsg),
// whose oldest lines may have been overwritten, or, in a tree without that device, a copy. If
// there is no copy either, the error matches IsAbsent.
func KernelLog(root Root, wanted func(line string) bool) (lines []string, file string, err error) {
	lines, err = readKmsg(root, wanted)
	if !IsAbsent(err) {
		if err == nil { // a snapshot has no device
			root.Record(kernelLogs[0], []byte(strings.Join(append(slices.Clone(lines), ""), "\n")))
		}
		return lines, kmsg, err
	}
	for _, name := range kernelLogs {
		data, err := root.ReadFile(name)
		if IsAbsent(err) {
			continue
		}
		if err != nil {
			return nil, name, err
		}
		for line := range strings.Lines(string(data)) {
			if wanted(line) {
				if i := strings.Index(line, "] "); strings.HasPrefix(line, "[") && i >= 0 {
					line = line[i+2:] // without its timestamp
				}
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return lines, name, nil
	}
	return nil, kmsg, err
}

// readKmsg reads all records of the running kernel's log. Anything but the kmsg device at that
// path belongs to a tree and counts as absent.
func readKmsg(root Root, wanted func(string) bool) (lines []string, err error) {
	place, err := root.Resolve(kmsg)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	err = unix.Stat(place, &stat)
	device := unix.Mkdev(1, 11) // Linux, Documentation/admin-guide/devices.txt
	if err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFCHR || stat.Rdev != device) {
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
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // EPIPE: record overwritten
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
