package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
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
	hosttest.ContainsIn(t, "warnings", "image windows-2022 has os_type=windows", strings.Join(r.Warnings, "\n"))
	if lines, _ := c.Requests(); strings.Contains(strings.Join(lines, "\n"), "/action") {
		t.Errorf("the console was read:\n%s", strings.Join(lines, "\n"))
	}
}

// Only wanted products count. Others are in the document, and a verdict of fail names those of the
// same vendor.
func TestTrialOtherFunctions(t *testing.T) {
	for _, test := range []struct{ gpus, verdict, seen, others, reasons string }{
		{"0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:11b4:ok", "pass", "map[10de:11b4:2]", "map[10de:0e0a:1 1a03:2000:1]", ""},
		{"0000:00:05.0=10de:1eb8:ok 0000:00:06.0=10de:11b4:ok", "fail", "map[10de:11b4:1]", "map[10de:0e0a:1 10de:1eb8:1 1a03:2000:1]",
			"10de:11b4: 2 wanted, 1 seen; other functions of the same vendor: 1 × 10de:0e0a, 1 × 10de:1eb8"},
	} {
		c := trialCloud(t, 96)
		c.Boot.Console = guestWith(append(strings.Fields(test.gpus), "0000:00:07.0=10de:0e0a:ok", "0000:00:08.0=1a03:2000:ok")...)
		stdout, stderr, _ := runTrial(t, c, unprivilegedEnv(t), "flavor", "test", "gpu.k4200.2", "--image", "debian-12", "--yes", "-o", "json")
		var r struct {
			Servers []struct {
				Verdict      string
				Reasons      []string
				Seen, Others map[string]int
			}
		}
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || len(r.Servers) != 1 {
			t.Fatalf("%v\n%s%s", err, stdout, stderr)
		}
		s := r.Servers[0]
		if s.Verdict != test.verdict || fmt.Sprint(s.Seen) != test.seen || fmt.Sprint(s.Others) != test.others || strings.Join(s.Reasons, "; ") != test.reasons {
			t.Errorf("%+v, want %+v", s, test)
		}
	}
}
