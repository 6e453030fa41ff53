package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestVerdicts: the installed Nova says of aliases, device_specs and filters what is recorded of
// its release, with which the tests of nova check work.
func TestVerdicts(t *testing.T) {
	const recorded = "../nova/novacheck/testdata/verdicts.json"
	path := filepath.Join(t.TempDir(), "verdicts.json")
	if err := os.WriteFile(path, []byte(read(t, recorded)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/usr/bin/python3", "record_nova.py", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	if diff := cmp.Diff(strings.Split(read(t, recorded), "\n"), strings.Split(read(t, path), "\n")); diff != "" {
		t.Errorf("another Nova than the one that was recorded? See CONTRIBUTING.md (-recorded +installed):\n%s", diff)
	}
}
