package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestVerdicts: the installed Nova says of aliases, device_specs and filters what is recorded of
// its release, with which the tests of nova check work.
func TestVerdicts(t *testing.T) {
	const recorded = "../nova/novacheck/testdata/verdicts.json"
	path := filepath.Join(t.TempDir(), "verdicts.json")
	hosttest.NoError(t, os.WriteFile(path, []byte(hosttest.Read(t, recorded)), 0o600))
	out, err := exec.Command("/usr/bin/python3", "record_nova.py", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	hosttest.EqualIn(t, "another Nova than the one that was recorded? See CONTRIBUTING.md",
		strings.Split(hosttest.Read(t, recorded), "\n"), strings.Split(hosttest.Read(t, path), "\n"))
}
