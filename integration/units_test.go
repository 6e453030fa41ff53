package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// testUnits: make install has installed the units into dir as they are in the checkout, and has
// enabled none; systemd has nothing to say of them and finds their program.
func testUnits(t *testing.T, dir string) {
	files, err := filepath.Glob("../examples/monitoring/systemd/*")
	if err != nil || len(files) != 6 {
		t.Fatalf("units %q, %v", files, err)
	}
	installed := filepath.Join(dir, "usr/lib/systemd/system")
	argv := []string{"verify", "--man=no", "--recursive-errors=yes", "--root=" + dir}
	for _, file := range files {
		name := filepath.Base(file)
		hosttest.EqualIn(t, name, hosttest.Read(t, file), hosttest.Read(t, filepath.Join(installed, name)))
		argv = append(argv, name)
		page := strings.TrimSuffix(strings.TrimSuffix(name, ".service"), ".timer") + ".8"
		if _, err := os.Stat(filepath.Join(dir, "usr/share/man/man8", page)); err != nil {
			t.Errorf("%s: its documentation: %v", name, err)
		}
	}
	for _, unit := range []string{"network-online.target", "local-fs.target", "systemd-modules-load.service", "swap.target", "timers.target", "sysinit.target",
		"basic.target", "shutdown.target", "system.slice", "-.slice"} {
		text := "[Unit]\nDescription=x\nDefaultDependencies=no\n"
		if strings.HasSuffix(unit, ".service") {
			text += "[Service]\nExecStart=/bin/true\n"
		}
		hosttest.NoError(t, os.WriteFile(filepath.Join(installed, unit), []byte(text), 0o644))
	}
	if out, err := exec.Command("systemd-analyze", argv...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	if wants, err := filepath.Glob(filepath.Join(dir, "*/systemd/system/*.wants/*")); err != nil || wants != nil {
		t.Errorf("enabled: %q, %v", wants, err)
	}
}
