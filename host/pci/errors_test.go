package pci_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// TestErrors: absent, malformed and unreadable numbers of errors are different answers, and
// none of them is 0.
func TestErrors(t *testing.T) {
	t.Parallel()
	const (
		folder = "/sys/bus/pci/devices/0000:84:00.0/"
		// As Linux 6.1 prints them (drivers/pci/pcie/aer.c), without most of the lines.
		correctable = "RxErr 3\nBadTLP 0\nRollover 4\nTOTAL_ERR_COR 7\n"
		nonfatal    = "Undefined 0\nDLP 0\nCmpltTO 1\nTOTAL_ERR_NONFATAL 1\n"
		fatal       = "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 18446744073709551615\n"
	)
	number := func(n uint64) *uint64 { return &n }
	for name, test := range map[string]struct {
		files map[string]string
		want  pci.Errors
		err   string
	}{
		"without AER": {},
		"counted": {map[string]string{"correctable": correctable, "nonfatal": nonfatal, "fatal": fatal},
			pci.Errors{Correctable: number(7), NonFatal: number(1), Fatal: number(1<<64 - 1)}, ""},
		"malformed": {map[string]string{"correctable": "TOTAL_ERR_COR many\n", "nonfatal": nonfatal, "fatal": ""}, pci.Errors{NonFatal: number(1)},
			folder + `aer_dev_correctable: TOTAL_ERR_COR is "many", which is not a number` + "\n" + folder + "aer_dev_fatal: has no TOTAL_ERR_FATAL"},
		"negative": {map[string]string{"fatal": "TOTAL_ERR_FATAL -1\n"}, pci.Errors{}, folder + `aer_dev_fatal: TOTAL_ERR_FATAL is "-1", which is not a number`},
		"unreadable": {map[string]string{"correctable": "/", "nonfatal": nonfatal}, pci.Errors{NonFatal: number(1)},
			folder + "aer_dev_correctable: is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			at := filepath.Join(dir, folder)
			hosttest.NoError(t, os.MkdirAll(at, 0o755))
			for name, content := range test.files {
				var err error
				if file := filepath.Join(at, "aer_dev_"+name); content == "/" {
					err = os.Mkdir(file, 0o755)
				} else {
					err = os.WriteFile(file, []byte(content), 0o600)
				}
				hosttest.NoError(t, err)
			}
			at84 := pci.Address{Bus: 0x84}
			inspected, warnings := pci.Inspect(hosttest.Root(t, dir), []pci.Device{{Address: at84}})
			got := inspected[at84].Errors
			for kind, pair := range map[string][2]*uint64{
				"correctable": {got.Correctable, test.want.Correctable}, "nonfatal": {got.NonFatal, test.want.NonFatal}, "fatal": {got.Fatal, test.want.Fatal},
			} {
				if (pair[0] == nil) != (pair[1] == nil) || pair[0] != nil && *pair[0] != *pair[1] {
					t.Errorf("%s: %v, want %v", kind, pair[0], pair[1])
				}
			}
			hosttest.EqualIn(t, "error", test.err, strings.Join(warnings, "\n"))
		})
	}
}
