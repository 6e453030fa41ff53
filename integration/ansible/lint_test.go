package ansible

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestLint: ansible-lint has nothing to say of the collection with its strictest profile, but that
// its version is below 1.0.0, and what it writes is in the folder of the test.
func TestLint(t *testing.T) {
	r := newRun(t, 0)
	if out, err := exec.Command("cp", "-RL", collection, r.dir+"/nova").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, talk, status := r.command(t, "sh", "-c", `cd "$0" && exec ansible-lint --offline --nocolor --profile production --config-file .ansible-lint`,
		r.dir+"/nova")
	passed := regexp.MustCompile(`Passed[^:\n]*: 0 failure\(s\), 0 warning\(s\) (?:on|in) (\d+) files`).FindStringSubmatch(out + talk)
	if status != 0 || passed == nil || !strings.Contains(out+talk, "production") {
		t.Fatalf("exit status %d\n%s%s", status, out, talk)
	}
	if n, err := strconv.Atoi(passed[1]); err != nil || n < len(moduleNames(t)) {
		t.Errorf("%s files, %v", passed[1], err)
	}
	// It judges the collection: what is skipped by name is what it finds otherwise, the version by
	// Debian 12's ansible-lint, the supported ansible-core by that of Debian 13.
	r.write(t, "nova/none.yml", "profile: production\n", 0o644)
	out, talk, status = r.command(t, "sh", "-c", `cd "$0" && exec ansible-lint --offline --nocolor --config-file none.yml galaxy.yml meta/runtime.yml`, r.dir+"/nova")
	if status != 2 || !strings.Contains(out+talk, "version-incorrect") && !strings.Contains(out+talk, "unsupported-version") {
		t.Errorf("without the configuration: exit status %d\n%s%s", status, out, talk)
	}
}
