package host_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestKernelLog: without a kmsg device a copy of the log is read, and a missing log differs from
// a log without matching lines.
func TestKernelLog(t *testing.T) {
	const log = "[    0.000000] Linux version 6.1.0-28-amd64\n[    2.345678] pci-stub 0000:84:00.0: claimed by stub\n" +
		"vfio_pci: add [10de:11b4[ffffffff:ffffffff]] class 0x000000/00000000\n"
	for _, test := range []struct {
		name, file, text string
		want             []string
		absent           bool
	}{
		{"of syslog", "var/log/dmesg", log, []string{"pci-stub 0000:84:00.0: claimed by stub",
			"vfio_pci: add [10de:11b4[ffffffff:ffffffff]] class 0x000000/00000000"}, false},
		{"of sosreport", "sos_commands/kernel/dmesg", log,
			[]string{"pci-stub 0000:84:00.0: claimed by stub", "vfio_pci: add [10de:11b4[ffffffff:ffffffff]] class 0x000000/00000000"}, false},
		{"without the words", "var/log/dmesg", "[    0.000000] Linux version 6.1.0-28-amd64\n", nil, false},
		{"none", "var/log/messages", log, nil, true},
		{"a file in the place of the device", "dev/kmsg", log, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, test.file)
			hosttest.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(test.text), 0o644)))
			root := hosttest.Root(t, dir)
			lines, _, err := host.KernelLog(root, func(line string) bool {
				return strings.Contains(line, "claimed by stub") || strings.Contains(line, "vfio_pci: add")
			})
			if !slices.Equal(lines, test.want) || host.IsAbsent(err) != test.absent || err != nil && !test.absent {
				t.Errorf("%q, %v", lines, err)
			}
		})
	}
}
