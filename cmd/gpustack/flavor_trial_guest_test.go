package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// A Windows guest does not run the script. What its console shows is not waited for: the server is
// built and deleted, and the verdict is unknown.
func TestTrialWindows(t *testing.T) {
	c := trialCloud(t, 96)
	c.Images = append(c.Images, map[string]any{"id": "12", "name": "windows-2022", "status": "active", "size": 1, "os_type": "windows"})
	c.Boot.Console = func(string, string) string { return "" }
	stdout, stderr, status := runTrial(t, c, unprivilegedEnv(t), "flavor", "test", "gpu.k4200.2", "--image", "windows-2022", "--yes", "-o", "json")
	var r struct {
		Verdict  string
		Warnings []string
		Servers  []struct {
			Verdict string
			Reasons []string
			Deleted bool
		}
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	if status != 2 || r.Verdict != "unknown" || len(r.Servers) != 1 || !r.Servers[0].Deleted {
		t.Fatalf("exit status %d\n%s%s", status, stdout, stderr)
	}
	if got := strings.Join(r.Servers[0].Reasons, "\n"); got != "the devices were not counted: a guest with os_type=windows does not run the script" {
		t.Errorf("reasons: %s", got)
	}
	if got := strings.Join(r.Warnings, "\n"); !strings.Contains(got, "image windows-2022 has os_type=windows") {
		t.Errorf("warnings: %s", got)
	}
	if lines, _ := c.Requests(); strings.Contains(strings.Join(lines, "\n"), "/action") {
		t.Errorf("the console was read:\n%s", strings.Join(lines, "\n"))
	}
}
