package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gpustack/nova/cloud/cloudtest"
)

// trialCloud starts a cloud with a flavor of two devices, an image and four free devices that
// Placement knows. Guests report two devices.
func trialCloud(t testing.TB, newest int) *cloudtest.Cloud {
	t.Helper()
	c := cloudtest.New(newest)
	t.Cleanup(c.Close)
	c.Add("1", "gpu.k4200.2", 8, 32768, 80, true, map[string]string{"pci_passthrough:alias": "K4200:2"})
	c.Add("2", "m1.small", 1, 2048, 20, true, map[string]string{})
	c.Images = []map[string]any{
		{"id": "9", "name": "debian-12", "status": "active", "min_disk": 20, "min_ram": 512, "size": 1},
		{"id": "10", "name": "twice", "status": "active", "size": 1}, {"id": "11", "name": "twice", "status": "active", "size": 1},
	}
	c.Networks = []map[string]any{{"id": "4e7e0000-0000-4000-8000-000000000001", "name": "lab"}}
	c.PCI = &cloudtest.Devices{Class: "CUSTOM_PCI_10DE_11B4", Total: 4}
	c.Boot.Console = guestWith("0000:00:05.0=10de:11b4:ok", "0000:00:06.0=10de:11b4:ok")
	return c
}

// guestWith returns a guest that reports these functions.
func guestWith(functions ...string) func(nonce, data string) string {
	return func(nonce, data string) string {
		if !strings.Contains(data, nonce) {
			return "the script has another nonce\n"
		}
		return fmt.Sprintf("[  1.0] booting\nGPUSTACK-PROBE v1 nonce=%s devices=%d %s END\n", nonce, len(functions), strings.Join(functions, " "))
	}
}

// runTrial runs the program as an unprivileged user, whose journal is in the folder of the
// environment.
func runTrial(t testing.TB, c *cloudtest.Cloud, state []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := trialCommand(t, c, state, args...)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	for _, secret := range []string{c.Password, "admin-pass-not-to-be-seen"} {
		if strings.Contains(out.String()+talk.String(), secret) {
			t.Errorf("%q prints a secret:\n%s%s", args, out.String(), talk.String())
		}
	}
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

func trialCommand(t testing.TB, c *cloudtest.Cloud, state []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("gpustack", args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8"}, state...)
	for name, value := range c.Env() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

func TestTrialSmoke(t *testing.T) {
	c := trialCloud(t, 96)
	state := unprivilegedEnv(t)
	for _, args := range [][]string{
		{"flavor", "test", "gpu.k4200.2", "--image", "debian-12", "--dry-run"},
		{"flavor", "test", "gpu.k4200.2", "--image", "debian-12", "--yes"},
		{"flavor", "test", "gpu.k4200.2", "--image", "debian-12", "--yes", "-o", "json", "--console"},
		{"flavor", "test", "--clean"},
		{"history"},
		{"flavor", "test", "gpu.k4200.2", "--image", "debian-12", "--yes", "--keep"},
		{"flavor", "test", "--clean"},
		{"undo", "--yes"},
		{"history"},
	} {
		stdout, stderr, status := runTrial(t, c, state, args...)
		lines, _ := c.Requests()
		t.Logf("%q: %d\n%s%s\n%s\n%d requests", args, status, stdout, stderr, strings.Join(lines, "\n"), len(lines))
	}
}
