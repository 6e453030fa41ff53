package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gpustack/host/hosttest"
	"gpustack/integration/terminal"
)

// TestTableWidth: on a terminal, tables are not wider than it is, and addresses, apart from their
// domain below 80 columns, and states are whole. Where the width is unknown, and in a file, tables
// are as wide as their cells.
func TestTableWidth(t *testing.T) {
	root := unpack(t, examples(t)["hgx-8xa100.txtar"])
	// A network card that is no RDMA adapter blocks the GPUs of its group, in a long text.
	driver := filepath.Join(root, "sys/bus/pci/devices/0000:c3:00.0/driver")
	hosttest.NoError(t, os.Remove(driver))
	hosttest.NoError(t, os.Symlink("../../../../bus/pci/drivers/ixgbe", driver))
	colour := regexp.MustCompile("\x1b\\[[0-9]*m")
	shown := func(columns uint16, args ...string) []string {
		cmd := exec.Command(gpustack, append(args, "--root", root)...)
		cmd.Env = []string{"LANG=C.UTF-8"}
		s := terminal.StartWide(t, cmd, "", columns)
		s.Wait()
		return strings.Split(colour.ReplaceAllString(s.Output(), ""), "\n")
	}
	for _, test := range []struct {
		args  []string
		whole []string
	}{
		{[]string{"host", "scan"}, []string{"0000:c7:00.0", "10de:20b2", "blocked:", "host"}},
		{[]string{"host", "scan", "-o", "tree"}, []string{"0000:c7:00.0", "blocked:"}},
		{[]string{"host", "check"}, []string{"preparable", "fail"}},
	} {
		piped, _, _ := try(t, exec.Command("env", append([]string{"LANG=C.UTF-8", gpustack}, append(test.args, "--root", root)...)...))
		for _, columns := range []uint16{0, 64, 80, 200} {
			t.Run(fmt.Sprintf("%s, %d", strings.Join(test.args, " "), columns), func(t *testing.T) {
				lines := shown(columns, test.args...)
				text := strings.Join(lines, "\n")
				for _, whole := range test.whole {
					if columns == 64 { // without ids
						whole = strings.ReplaceAll(whole, "10de:20b2", "DRIVER")
					}
					hosttest.Contains(t, whole, text)
				}
				if (columns == 0) != (text == piped) && columns != 200 {
					t.Errorf("piped:\n%s", piped)
				}
				table := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "FUNCTION") || strings.HasPrefix(line, "STATUS") })
				for _, line := range lines[table:] {
					if line == "" {
						break
					}
					// A path or a command is not broken.
					one := strings.IndexAny(strings.TrimLeft(line, " "), "/'") == 0
					if length := utf8.RuneCountInString(line); columns > 0 && length > int(columns) && !one {
						t.Errorf("%d characters: %s", length, line)
					}
				}
				if t.Failed() {
					t.Log(text)
				}
			})
		}
	}
}

// TestSummaryAboveQuestion: the last line above the question sums the plan up, with --quiet too,
// and no diff is cut.
func TestSummaryAboveQuestion(t *testing.T) {
	root := unpack(t, examples(t)["hgx-8xa100.txtar"])
	for _, more := range [][]string{nil, {"--quiet"}} {
		args := append([]string{"host", "prepare", "--root", root, "--nvswitch", "guest", "--allow", "0000:c3:00.0", "--allow", "0000:c4:00.0"}, more...)
		cmd := exec.Command(gpustack, args...)
		cmd.Env = []string{"LANG=C.UTF-8", "NO_COLOR=1"}
		s := terminal.StartWide(t, cmd, "", 60)
		s.Expect("/?]")
		s.Type("n\n")
		hosttest.EqualIn(t, "exit status", 1, s.Wait())
		above, _, _ := strings.Cut(s.Output(), "gpustack: apply this plan? [y/n/d/?]")
		lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(above, "\n  ", " ")), "\n") // as if nothing was wrapped
		const want = "16 functions → vfio-pci (8 GPUs, 6 NVSwitches, 2 NICs); 4 files changed, 8 new; " +
			"initramfs of 2 kernels left to regenerate on the target machine; reboot needed"
		hosttest.EqualIn(t, fmt.Sprintf("%q\nabove the question", more), want, lines[len(lines)-1])
		shown := strings.Contains(above, "\n+GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX iommu=pt\"\n") && strings.Contains(above, "vfio-pci ids=10de:20b2,")
		if quiet := more != nil; shown == quiet {
			t.Errorf("%q:\n%s", more, above)
		}
	}
}
