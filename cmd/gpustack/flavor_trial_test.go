package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/integration/terminal"
	"gpustack/nova/cloud/cloudtest"
	"gpustack/nova/object"
	"gpustack/nova/servertest"
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
	var o output
	// Where a server may stay, a process that ends: undo refuses while that of the test runs.
	if slices.Contains(args, "--keep-server") || c.Fault != nil {
		cmd := trialCommand(t, c, state, args...)
		var out, talk strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &talk
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		o = output{cmd.ProcessState.ExitCode(), out.String(), talk.String()}
	} else {
		o = runProgram(t, "/", trialEnv(t, c, state), args...)
	}
	for _, secret := range []string{c.Password, "admin-pass-not-to-be-seen"} {
		if strings.Contains(o.stdout+o.stderr, secret) {
			t.Errorf("%q prints a secret:\n%s%s", args, o.stdout, o.stderr)
		}
	}
	return o.stdout, o.stderr, o.status
}

func trialCommand(t testing.TB, c *cloudtest.Cloud, state []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("gpustack", args...)
	cmd.Env = append(trialEnv(t, c, state), "PATH="+os.Getenv("PATH"))
	return cmd
}

// trialEnv is the environment of a user of a cloud.
func trialEnv(t testing.TB, c *cloudtest.Cloud, state []string) []string {
	t.Helper()
	env := append([]string{"HOME=" + t.TempDir(), "LANG=C.UTF-8"}, state...)
	for name, value := range c.Env() {
		env = append(env, name+"="+value)
	}
	return env
}

// trialArgs is a test that is not asked for.
func trialArgs(more ...string) []string {
	return append([]string{"flavor", "test", "gpu.k4200.2", "--image", "debian-12", "--yes"}, more...)
}

// posts returns how many servers were requested.
func posts(c *cloudtest.Cloud) (n int) {
	lines, _ := c.Requests()
	for _, line := range lines {
		if line == "POST /v2.1/servers" {
			n++
		}
	}
	return n
}

// trialDocument is what scripts read of a test.
type trialDocument struct {
	Verdict *string
	Servers []struct {
		ID, Host, Verdict *string
		Seen              map[string]int
		Unassigned        []string
		Deleted, Freed    *bool
		Console           []string `json:"console_lines"`
	}
	Errors []views.Problem
}

// TestFlavorTest is the table of what can happen to a test: what is printed, the exit status and
// what is left behind.
func TestFlavorTest(t *testing.T) {
	status := func(code int, kind, message string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || r.URL.Path != "/v2.1/servers" {
				return false
			}
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"%s": {"code": %d, "message": "%s"}}`, kind, code, message)
			return true
		}
	}
	two := []string{"0000:00:05.0=10de:11b4:ok", "0000:00:06.0=10de:11b4:ok"}
	for name, test := range map[string]struct {
		cloud  func(c *cloudtest.Cloud)
		newest int // 0 for 96
		args   []string
		status int
		want   []string // of both outputs
		not    []string
		posts  int
		left   int  // servers
		entry  bool // the journal has an entry that is not undone
	}{
		"pass": {want: []string{"on gpu1: pass", "wanted 2 × 10de:11b4, seen 2 × 10de:11b4", "free again, by Placement", "verdict: pass"}, posts: 1},

		// Wrong flavor, image, network or quota: all errors at once, before any request.
		"unknown flavor, image and network": {args: []string{"flavor", "test", "gpu.none", "--image", "none", "--network", "none-such", "--yes"}, status: 1,
			want: []string{"error: flavor gpu.none: not found\n", "error: image none: not found", "error: network none-such: not found"}},
		"two images of a name":     {args: []string{"flavor", "test", "gpu.k4200.2", "--image", "twice", "--yes"}, status: 1, want: []string{"error: image twice: 2 images have that name: 10 of project", "hint: give the id"}},
		"flavor without devices":   {args: []string{"flavor", "test", "m1.small", "--image", "debian-12", "--yes"}, status: 1, want: []string{"error: flavor m1.small: the flavor does not request devices\n"}},
		"disabled flavor":          {cloud: func(c *cloudtest.Cloud) { c.Flavors[0].Body["OS-FLV-DISABLED:disabled"] = true }, status: 1, want: []string{"error: flavor gpu.k4200.2 is disabled: Nova creates no server with it\n"}},
		"image larger than flavor": {cloud: func(c *cloudtest.Cloud) { c.Images[0]["min_disk"], c.Images[0]["min_ram"] = 100, 65536 }, status: 1, want: []string{"needs a disk of 100 GiB, flavor gpu.k4200.2 has 80: it does not fit", "needs 65536 MiB of RAM, flavor gpu.k4200.2 has 32768"}},
		"virtual size over flavor": {cloud: func(c *cloudtest.Cloud) { c.Images[0]["virtual_size"] = 81 << 30 }, status: 1, want: []string{"image debian-12 has a disk of 81 GiB, flavor gpu.k4200.2 one of 80"}},
		"image not active":         {cloud: func(c *cloudtest.Cloud) { c.Images[0]["status"] = "deactivated" }, status: 1, want: []string{"image debian-12 is deactivated: it is not active"}},
		"quota": {cloud: func(c *cloudtest.Cloud) {
			c.Quota = map[string]int{"maxTotalInstances": 1, "maxTotalCores": 15, "maxTotalRAMSize": 65535}
		}, args: trialArgs("--count", "2"), status: 1,
			want: []string{"error: instances: 0 in use, 2 needed, but only 1 allowed: ", "error: cores: 0 in use, 16 needed, but only 15 allowed", "error: ram_mib: 0 in use, 65536 needed"}},
		"host on an old cloud":       {newest: 73, args: trialArgs("--host", "gpu7"), status: 1, want: []string{"error: --host needs Train: older releases of Nova skip the scheduler's filters for a requested host (it supports 2.73)\n"}},
		"no network on an old cloud": {newest: 36, args: trialArgs("--network", "none"), status: 1, want: []string{"error: --network none needs Newton"}},
		"unknown alias":              {cloud: func(c *cloudtest.Cloud) { c.Flavors[0].Specs["pci_passthrough:alias"] = "mystery:1" }, status: 1, want: []string{"error: flavor gpu.k4200.2: alias mystery: the ids of its devices are unknown\n", "--conf FILE"}},
		"one-time-use":               {cloud: func(c *cloudtest.Cloud) { c.PCI.OneTimeUse = true }, status: 1, want: []string{"error: by Placement (trait HW_PCI_ONE_TIME_USE): the devices can be used once", "--one-time-use-ok"}},
		"one-time-use accepted":      {cloud: func(c *cloudtest.Cloud) { c.PCI.OneTimeUse = true }, args: trialArgs("--one-time-use-ok"), want: []string{"warning: the devices can be used once: they stay reserved", "verdict: pass"}, posts: 1},

		"devices to clean": {cloud: func(c *cloudtest.Cloud) { c.PCI.ToClean = 3 },
			want: []string{"and 2 are needed", "warning: 3 one-time-use devices to clean: gpu1_0000:85:00.0, gpu1_0000:86:00.0, gpu1_0000:87:00.0; " +
				"run 'gpustack nova devices --state to-clean'"}, posts: 1},

		// Nova rejects the server.
		"create 400": {cloud: func(c *cloudtest.Cloud) { c.Fault = status(400, "badRequest", "Invalid image.") }, status: 1, want: []string{"error: creating server gpustack-test-", ": Invalid image (HTTP 400, req-"}, posts: 1},
		"create 403": {cloud: func(c *cloudtest.Cloud) { c.Fault = status(403, "forbidden", "Quota exceeded for instances.") }, status: 1, want: []string{": permission denied: Quota exceeded for instances (HTTP 403, req-"}, posts: 1},
		"create 409": {cloud: func(c *cloudtest.Cloud) {
			c.Fault = status(409, "conflictingRequest", "Multiple possible networks found.")
		}, status: 1, want: []string{"Multiple possible networks found (HTTP 409, req-"}, posts: 1},

		// The server cannot be built.
		"no valid host": {cloud: func(c *cloudtest.Cloud) {
			c.Boot.Fault = "No valid host was found. There are not enough hosts available."
		}, args: trialArgs("--az", "rack1"), status: 2,
			want: []string{": fail\n", "nova: No valid host was found. There are not enough hosts available\n", "hint: check, in this order: free devices (alias K4200 is 10de:11b4", "PciPassthroughFilter", "availability zone rack1",
				"hint: gpustack nova explain --flavor gpu.k4200.2\n", "verdict: fail"}, posts: 1},
		"other fault": {cloud: func(c *cloudtest.Cloud) { c.Boot.Fault = "Build of instance aborted" }, status: 2,
			want: []string{"nova: Build of instance aborted\n", "verdict: fail"}, not: []string{"nova explain"}, posts: 1},
		"never active": {cloud: func(c *cloudtest.Cloud) { c.Boot.Building = -1 }, args: trialArgs("--wait", "1s"), status: 2,
			want: []string{"the server is not active after 1s: BUILD (spawning)", "verdict: unknown"}, posts: 1},

		// The guest does not report.
		"silent": {cloud: func(c *cloudtest.Cloud) { c.Boot.Console = func(string, string) string { return "" } }, args: trialArgs("--wait", "1s"),
			status: 2, want: []string{"the guest has not reported within 1s: its console has no output", "console=ttyS0", "verdict: unknown"}, posts: 1},
		"fixed text": {cloud: func(c *cloudtest.Cloud) { c.Boot.Console = nil }, args: trialArgs("--wait", "1s"), status: 2,
			want: []string{"its console has other output", "verdict: unknown"}, not: []string{"LAST LINE"}, posts: 1},
		"its console": {cloud: func(c *cloudtest.Cloud) { c.Boot.Console = nil }, args: trialArgs("--wait", "1s", "--console"), status: 2,
			want: []string{"    LAST LINE\n"}, posts: 1},
		"cut line": {cloud: func(c *cloudtest.Cloud) {
			c.Boot.Console = func(n, _ string) string {
				return "GPUSTACK-PROBE v1 nonce=" + n + " devices=2 0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de"
			}
		}, args: trialArgs("--wait", "1s"), status: 2, want: []string{"verdict: unknown"}, posts: 1},
		"another nonce": {cloud: func(c *cloudtest.Cloud) {
			c.Boot.Console = func(string, string) string { return guestWith(two...)("0123abcd", "0123abcd") }
		}, args: trialArgs("--wait", "1s"), status: 2, want: []string{"verdict: unknown"}, posts: 1},
		"no console 501": {cloud: func(c *cloudtest.Cloud) { c.Boot.NoLog = 501 }, status: 2, want: []string{"the hypervisor has no console log\n", "verdict: unknown"}, posts: 1},
		"no console 400": {cloud: func(c *cloudtest.Cloud) { c.Boot.NoLog = 400 }, status: 2, want: []string{"the hypervisor has no console log\n"}, posts: 1},
		"console 403":    {cloud: func(c *cloudtest.Cloud) { c.Boot.NoLog = 403 }, status: 2, want: []string{"console log of server ", "permission denied", "verdict: unknown"}, posts: 1},
		"console 409": {cloud: func(c *cloudtest.Cloud) { c.Boot.NoLog = 409 }, args: trialArgs("--wait", "1s"), status: 2,
			want: []string{"verdict: unknown"}, posts: 1},

		// The guest has other devices.
		"fewer": {cloud: func(c *cloudtest.Cloud) { c.Boot.Console = guestWith(two[0]) }, status: 2, want: []string{"on gpu1: fail", "wanted 2 × 10de:11b4, seen 1 × 10de:11b4", "10de:11b4: 2 wanted, 1 seen"}, posts: 1},
		"more":  {cloud: func(c *cloudtest.Cloud) { c.Boot.Console = guestWith(append(two, "0000:00:07.0=10de:11b4:ok")...) }, status: 2, want: []string{"10de:11b4: 2 wanted, 3 seen"}, posts: 1},
		"other ids": {cloud: func(c *cloudtest.Cloud) {
			c.Boot.Console = guestWith("0000:00:05.0=10de:1bb1:ok", "0000:00:06.0=10de:1bb1:ok")
		}, status: 2, want: []string{"10de:11b4: 2 wanted, 0 seen", "2 × 10de:1bb1"}, posts: 1},
		"a BMC's VGA": {cloud: func(c *cloudtest.Cloud) { c.Boot.Console = guestWith(append(two, "0000:00:02.0=1a03:2000:ok")...) }, want: []string{"verdict: pass"}, posts: 1},
		"unassigned":  {cloud: func(c *cloudtest.Cloud) { c.Boot.Console = guestWith(two[0], "0000:00:06.0=10de:11b4:unassigned") }, status: 2, want: []string{"no addresses for a memory region of 0000:00:06.0", "hw_maxphysaddr_mode=passthrough", "verdict: fail"}, posts: 1},
		"kept": {cloud: func(c *cloudtest.Cloud) { c.Boot.Console = guestWith(two[0]) }, args: trialArgs("--keep-server"), status: 2,
			want: []string{"verdict: fail", "the servers are kept, recorded as entry 1: 'gpustack undo 1' deletes them"}, posts: 1, left: 1, entry: true},
		"wrong host": {cloud: func(c *cloudtest.Cloud) { c.Boot.Host = "gpu1" }, args: trialArgs("--host", "gpu7"), status: 1,
			want: []string{"is not on the requested host: it is on gpu1 instead of gpu7", ": not tested"}, posts: 1},
		"its host":     {args: trialArgs("--host", "gpu7"), want: []string{"on gpu7: pass"}, posts: 1},
		"a member":     {cloud: func(c *cloudtest.Cloud) { c.Member = true }, want: []string{"): pass"}, not: []string{" on gpu1"}, posts: 1},
		"a network":    {args: trialArgs("--network", "lab"), want: []string{"  network   lab\n"}, posts: 1},
		"old cloud":    {newest: 36, want: []string{"  network   auto\n", "verdict: pass"}, posts: 1},
		"several":      {args: trialArgs("--count", "2"), want: []string{"boot 2 servers with 2 devices each, then delete them; 4 requests", "verdict: pass"}, posts: 2},
		"not verified": {cloud: func(c *cloudtest.Cloud) { c.PCI = nil }, want: []string{"whether its devices are free again is not verified: Placement does not show PCI devices of the server", "verdict: pass"}, posts: 1},
		"soft delete":  {cloud: func(c *cloudtest.Cloud) { c.Boot.Soft = true }, want: []string{"verdict: pass"}, posts: 1},

		// The server cannot be deleted, or its request has no answer.
		"delete fails": {cloud: func(c *cloudtest.Cloud) {
			c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodDelete {
					http.Error(w, `{"forbidden": {"code": 403, "message": "Policy doesn't allow it."}}`, http.StatusForbidden)
				}
				return r.Method == http.MethodDelete
			}
		}, status: 1, want: []string{"the server could not be deleted, and still has its devices\n", "verdict: unknown", "error: server 5e60e600-0000-4000-8000-000000000001 is left: deleting server", "hint: delete it with: gpustack flavor test --clean, or: openstack server delete --wait 5e60e600"}, posts: 1, left: 1, entry: true},
		"delete fails, in a document": {cloud: func(c *cloudtest.Cloud) {
			c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodDelete {
					http.Error(w, `{"conflictingRequest": {"code": 409, "message": "Instance is locked."}}`, http.StatusConflict)
				}
				return r.Method == http.MethodDelete
			}
		}, args: trialArgs("-o", "json"), status: 1, want: []string{`"verdict":"unknown"`, `"deleted":false`, `"applied":false`, "is left: deleting server"}, not: []string{`"verdict":"pass"`}, posts: 1, left: 1, entry: true},
		"token expires": {cloud: func(c *cloudtest.Cloud) {
			gone := false
			c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				gone = gone || strings.HasSuffix(r.URL.Path, "/action") // of the console
				if gone {
					http.Error(w, `{"error": {"code": 401, "message": "The request you have made requires authentication."}}`, http.StatusUnauthorized)
				}
				return gone
			}
		}, status: 1, want: []string{"credentials rejected", "error: server 5e60e600-0000-4000-8000-000000000001 is left: ", "openstack server delete --wait 5e60e600"}, posts: 1, left: 1, entry: true},
		"lost answer": {cloud: func(c *cloudtest.Cloud) {
			c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || r.URL.Path != "/v2.1/servers" {
					return false
				}
				c.Do(r)
				w.WriteHeader(http.StatusGatewayTimeout)
				return true
			}
		}, want: []string{"verdict: pass"}, posts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newest := 96
			if test.newest != 0 {
				newest = test.newest
			}
			c, state := trialCloud(t, newest), unprivilegedEnv(t)
			if test.cloud != nil {
				test.cloud(c)
			}
			args := test.args
			if args == nil {
				args = trialArgs()
			}
			stdout, stderr, status := runTrial(t, c, state, args...)
			both := stdout + stderr
			hosttest.EqualIn(t, "exit status", test.status, status)
			for _, want := range test.want {
				hosttest.Contains(t, want, both)
			}
			for _, not := range test.not {
				if strings.Contains(both, not) {
					t.Errorf("prints %q", not)
				}
			}
			hosttest.EqualIn(t, "servers requested", test.posts, posts(c))
			if left := c.Left(); len(left) != test.left {
				t.Errorf("left: %q", left)
			}
			c.Fault = nil
			history, _, _ := runTrial(t, c, state, "history", "-o", "json")
			if is := strings.Contains(history, `"status":"done"`) || strings.Contains(history, `"status":"applying"`); is != test.entry {
				t.Errorf("history: %s", history)
			}
			if !test.entry && !t.Failed() {
				return
			}
			if t.Failed() {
				t.Fatal(both)
			}
			// What is left is recorded, and undone by id and nonce.
			if _, stderr, status := runTrial(t, c, state, "undo", "--yes"); status != 0 || len(c.Left()) != 0 {
				t.Errorf("undo: exit status %d, left %q: %s", status, c.Left(), stderr)
			}
		})
	}
}

// TestFlavorTestShown: the README shows of a test what it prints.
func TestFlavorTestShown(t *testing.T) {
	readme := hosttest.Read(t, filepath.Join(top, "README.md"))
	_, after, found := strings.Cut(readme, "# gpustack flavor test gpu.k4200.2 --image debian-12 ")
	_, after, _ = strings.Cut(after, "\n")
	shown, _, ends := strings.Cut(after, "\nctl1# ")
	stdout, stderr, status := runTrial(t, trialCloud(t, 96), unprivilegedEnv(t), trialArgs()...)
	if !found || !ends || status != 0 || !strings.Contains("\n"+stdout, "\n"+shown+"\n") {
		t.Errorf("exit status %d; README.md shows\n%s\nand the command prints\n%s%s", status, shown, stdout, stderr)
	}
}

// TestFlavorTestRequests: a plan costs at most 6 requests, signing in included; a network that is
// named costs one more.
func TestFlavorTestRequests(t *testing.T) {
	for network, want := range map[string]int{"none": 6, "auto": 6, "lab": 7} {
		c, n := trialCloud(t, 96), 0
		c.Fault = func(http.ResponseWriter, *http.Request) bool { n++; return false }
		if _, stderr, status := runTrial(t, c, unprivilegedEnv(t), trialArgs("--network", network, "--dry-run")...); status != 2 || n > want {
			t.Errorf("--network %s: exit status %d, %d requests: %s", network, status, n, stderr)
		}
	}
}

// stopAt starts a test and sends it a signal at request k, while the cloud answers it. It returns
// false if the test ended before.
func stopAt(t *testing.T, c *cloudtest.Cloud, state []string, k int, signal syscall.Signal, args ...string) (reached bool, status int, stderr string) {
	t.Helper()
	cmd := trialCommand(t, c, state, args...)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	n, sent := 0, make(chan struct{})
	c.Fault = func(http.ResponseWriter, *http.Request) bool {
		<-sent // the process is known
		if n++; n == k {
			reached = true
			if err := cmd.Process.Signal(signal); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond) // it is handled before the answer
		}
		return false
	}
	hosttest.NoError(t, cmd.Start())
	close(sent)
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	c.SetFault(nil) // waits for a request that is still carried out
	return reached, cmd.ProcessState.ExitCode(), talk.String()
}

// TestFlavorTestInterrupted: a signal at any request leaves no server behind, and a test that was
// killed at any request leaves none that --clean does not delete.
func TestFlavorTestInterrupted(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			stranger := cloudtest.Instance{ID: "5e60e600-0000-4000-8000-00000000000a", Name: "gpustack-test-of-mine"}
			requested := 0
			for k, reached := 1, true; reached; k++ {
				c, state := trialCloud(t, 96), unprivilegedEnv(t)
				c.AddServer(stranger)
				var status int
				var stderr string
				reached, status, stderr = stopAt(t, c, state, k, signal, trialArgs()...)
				requested += posts(c)
				switch left := len(c.Left()) - 1; {
				case !reached && status != 0:
					t.Errorf("request %d: exit status %d: %s", k, status, stderr)
				case !reached:
				case signal != syscall.SIGKILL && (left != 0 || status != 130 && status != 0): // at the last request, the test may end before
					t.Errorf("request %d: exit status %d, left %q: %s", k, status, c.Left(), stderr)
				}
				stdout, stderr, status := runTrial(t, c, state, "flavor", "test", "--clean", "--yes")
				if left := c.Left(); status != 0 || len(left) != 1 || left[0] != stranger.Name {
					t.Errorf("request %d: --clean: exit status %d, left %q:\n%s%s", k, status, left, stdout, stderr)
				}
				history, _, _ := runTrial(t, c, state, "history", "-o", "json")
				if strings.Contains(history, `"status":"done"`) || strings.Contains(history, `"status":"applying"`) {
					t.Errorf("request %d: an entry is left: %s", k, history)
				}
				c.Close()
			}
			if requested < 5 {
				t.Errorf("only %d tests have requested a server", requested)
			}
		})
	}
}

// TestFlavorTestRecovery: the question about a test that was killed says what its answer does.
func TestFlavorTestRecovery(t *testing.T) {
	e := change.Entry{ID: 7, Changes: change.KindObjects, Command: "flavor test gpu"}
	hosttest.NoError(t, e.SetDetail(servertest.Record{Head: object.Head{Type: servertest.Type}}))
	hosttest.Equal(t, "entry 7 (flavor test gpu) is reverted: Nova deletes the servers of the test that exist", views.RecoverySummary(e))
}

// TestFlavorTestInterruptedTwice: a second signal ends a test whose server is not deleted within a
// second. It says what is left, and --clean deletes that.
func TestFlavorTestInterruptedTwice(t *testing.T) {
	t.Parallel()
	c, state := trialCloud(t, 96), unprivilegedEnv(t)
	c.Boot.Console, c.Boot.Deleting = nil, -1
	cmd := trialCommand(t, c, state, trialArgs()...)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	watched, deleting := make(chan bool, 100), make(chan bool, 100)
	c.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "/action"):
			watched <- true
		case r.Method == http.MethodDelete:
			deleting <- true
		}
		return false
	}
	hosttest.NoError(t, cmd.Start())
	for _, reached := range []chan bool{watched, deleting} {
		select {
		case <-reached:
		case <-time.After(time.Minute):
			t.Error("not reached")
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 130 || len(c.Left()) != 1 ||
		!strings.Contains(talk.String(), "error: interrupted again, stopped at once\ngpustack: hint: servers of the test may be left: 'gpustack flavor test --clean' finds and deletes them\n") {
		t.Errorf("%v, left %q: %s", err, c.Left(), talk.String())
	}
	c.Boot.Deleting = 0
	if stdout, stderr, status := runTrial(t, c, state, "flavor", "test", "--clean", "--yes"); status != 0 || len(c.Left()) != 0 {
		t.Errorf("exit status %d, left %q:\n%s%s", status, c.Left(), stdout, stderr)
	}
}

// TestFlavorTestAtOnce: a test that starts while another one requests its server, with the journal
// locked, waits for it. Each deletes its own server.
func TestFlavorTestAtOnce(t *testing.T) {
	t.Parallel()
	c, state := trialCloud(t, 96), unprivilegedEnv(t)
	requested, n := make(chan bool), 0
	c.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && r.URL.Path == "/v2.1/servers" {
			if n++; n == 1 {
				close(requested)
				c.Unlocked(func() { time.Sleep(time.Second) })
			}
		}
		return false
	}
	first := trialCommand(t, c, state, trialArgs()...)
	var talk bytes.Buffer
	first.Stderr = &talk
	hosttest.NoError(t, first.Start())
	<-requested
	if stdout, stderr, status := runTrial(t, c, state, trialArgs()...); status != 0 {
		t.Errorf("the second: exit status %d:\n%s%s", status, stdout, stderr)
	}
	if err := first.Wait(); err != nil || len(c.Left()) != 0 {
		t.Errorf("the first: %v, left %q: %s", err, c.Left(), talk.String())
	}
}

// TestFlavorTestUndo: undo deletes a server only if it has the recorded id, name and nonce, and
// closes the entry of one that is gone.
func TestFlavorTestUndo(t *testing.T) {
	c, state := trialCloud(t, 96), unprivilegedEnv(t)
	run := func(want int, args ...string) string {
		t.Helper()
		stdout, stderr, status := runTrial(t, c, state, args...)
		if status != want {
			t.Fatalf("%q: exit status %d\n%s%s", args, status, stdout, stderr)
		}
		return stdout + stderr
	}
	run(0, trialArgs("--keep-server")...)
	server := c.Instances[0]
	for what, change := range map[string]func(undo bool){
		"name": func(undo bool) {
			server.Name = map[bool]string{false: "mine", true: "gpustack-test-" + server.Metadata["gpustack-test"]}[undo]
		},
		"metadata": func(undo bool) {
			server.Metadata["gpustack-test"] = map[bool]string{false: "0123abcd", true: strings.TrimPrefix(server.Name, "gpustack-test-")}[undo]
		},
	} {
		change(false)
		if got := run(1, "undo", "--yes"); !strings.Contains(got, "is not the server of the test") || len(c.Left()) != 1 {
			t.Errorf("%s: left %q: %s", what, c.Left(), got)
		}
		// With another name it is not in the list; its record then stays.
		if got := run(map[string]int{"name": 1}[what], "flavor", "test", "--clean", "--yes"); len(c.Left()) != 1 {
			t.Errorf("%s: --clean: left %q: %s", what, c.Left(), got)
		}
		change(true)
	}
	project := c.Project
	c.Project = "another"
	if got := run(1, "undo", "--yes"); !strings.Contains(got, "error: the change was made in another cloud, region or project: ") || len(c.Left()) != 1 {
		t.Errorf("in another project: left %q: %s", c.Left(), got)
	}
	c.Project = project
	got := run(2, "undo", "--dry-run")
	if !strings.Contains(got, "DELETE /servers/"+server.ID) || !strings.Contains(got, "delete 1 test server; 1 request") {
		t.Error(got)
	}
	run(0, "undo", "--yes")
	if len(c.Left()) != 0 {
		t.Errorf("left %q", c.Left())
	}
	run(0, trialArgs("--keep-server")...)
	c.Instances = nil // another client has deleted it
	hosttest.Contains(t, "the servers of the test no longer exist: only the entry changes", run(0, "undo", "--yes"))
	hosttest.Contains(t, "nothing to undo", run(1, "undo", "--yes"))
	// A run that was killed is named by the next one.
	entry := func(from, to string) {
		t.Helper()
		file := filepath.Join(strings.TrimPrefix(state[1], "XDG_STATE_HOME="), "gpustack/journal/0003.json")
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, bytes.Replace(text, []byte(from), []byte(to), 1), 0o600)
		}
		if err == nil {
			err = os.Chown(file, nobody, nobody)
		}
		hosttest.NoError(t, err)
	}
	run(0, trialArgs("--keep-server")...)
	entry(`"keep": true`, `"keep": false`)
	if got := run(2, trialArgs("--dry-run")...); !strings.Contains(got, "warning: entry 3 (flavor test gpu.k4200.2): its run was killed or could not delete its servers, which may be left: 'gpustack undo 3'") {
		t.Error(got)
	}
}

// TestFlavorTestClean: --clean deletes only servers of tests that are no longer running.
func TestFlavorTestClean(t *testing.T) {
	c, state := trialCloud(t, 96), unprivilegedEnv(t)
	add := func(id, name, nonce, project string, ends time.Duration) {
		metadata := map[string]string{"gpustack-test": nonce, "gpustack-test-ends": time.Now().Add(ends).UTC().Format(time.RFC3339)}
		c.AddServer(cloudtest.Instance{ID: "5e60e600-0000-4000-8000-00000000000" + id, Name: name, Project: project, Metadata: metadata, Created: time.Now().Add(-time.Hour)})
	}
	add("a", "gpustack-test-0123abcd", "0123abcd", "", -time.Minute)
	add("b", "gpustack-test-0123abce", "0123abce", "id-of-lab", -time.Minute)
	add("c", "gpustack-test-0123abcf", "0123abcf", "", time.Hour)
	add("d", "gpustack-test-0123abc0", "ffffffff", "", -time.Minute)
	add("e", "gpustack-test-0123ABC1", "0123ABC1", "", -time.Minute)
	add("f", "my-gpustack-test-0123abc2", "0123abc2", "", -time.Minute)
	runTrial(t, c, unprivilegedEnv(t), trialArgs("--keep-server")...) // by another user
	stdout, stderr, status := runTrial(t, c, state, "flavor", "test", "--clean", "--dry-run")
	for _, want := range []string{"servers of tests in all projects", "gpustack-test-0123abcd  id-of-admin", "1h0m0s", "leave: its test may be running on another machine until ",
		"leave: its metadata is not that of a test", "leave: it is kept (--keep-server) by another machine or user", "\ndelete 2 test servers\n"} {
		if !strings.Contains(stdout, want) || status != 2 {
			t.Errorf("exit status %d, no %q:\n%s%s", status, want, stdout, stderr)
		}
	}
	// A test of this machine that is running keeps its server.
	c.Boot.Console = nil
	cmd := trialCommand(t, c, state, trialArgs("--wait", "1m")...)
	hosttest.NoError(t, cmd.Start())
	for deadline := time.Now().Add(10 * time.Second); len(c.Left()) < 8 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // its id is recorded
	stdout, stderr, status = runTrial(t, c, state, "flavor", "test", "--clean", "--yes")
	if want := fmt.Sprintf("leave: its test is running: process %d", cmd.Process.Pid); status != 0 || !strings.Contains(stdout, want) || len(c.Left()) != 6 {
		t.Errorf("exit status %d, left %q, no %q:\n%s%s", status, c.Left(), want, stdout, stderr)
	}
	if _, stderr, status = runTrial(t, c, state, "undo", "--yes"); status != 1 || !strings.Contains(stderr, "the test is running: process ") {
		t.Errorf("undo of a running test: exit status %d: %s", status, stderr)
	}
	hosttest.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 130 || len(c.Left()) != 5 {
		t.Errorf("%v, left %q", err, c.Left())
	}
	// A member sees the project's own servers.
	c.Member = true
	add("7", "gpustack-test-01230000", "01230000", "", -time.Minute)
	add("8", "gpustack-test-01230001", "01230001", "id-of-lab", -time.Minute)
	if stdout, _, status := runTrial(t, c, state, "flavor", "test", "--clean", "--yes"); status != 0 || !strings.Contains(stdout, "servers of tests in this project") || len(c.Left()) != 6 {
		t.Errorf("exit status %d, left %q: %s", status, c.Left(), stdout)
	}
}

// TestFlavorTestDocument: the document has one server for each of --count, the verdict is that of
// all, and text of a console is in it with --console only, and never in the journal.
func TestFlavorTestDocument(t *testing.T) {
	c, state := trialCloud(t, 96), unprivilegedEnv(t)
	first := ""
	pass, fail := guestWith("0000:00:05.0=10de:11b4:ok", "0000:00:06.0=10de:11b4:ok"), guestWith("0000:00:05.0=10de:11b4:ok")
	c.Boot.Console = func(nonce, data string) string {
		if first == "" {
			first = nonce
		}
		if nonce == first {
			return "console-secret\n" + fail(nonce, data)
		}
		return "console-secret\n" + pass(nonce, data)
	}
	for _, console := range []bool{false, true} {
		first = ""
		args := trialArgs("--count", "3", "-o", "json", "-v")
		if console {
			args = append(args, "--console")
		}
		stdout, stderr, status := runTrial(t, c, state, args...)
		var d trialDocument
		if err := json.Unmarshal([]byte(stdout), &d); err != nil {
			t.Fatalf("%v: %s%s", err, stdout, stderr)
		}
		verdicts := map[string]int{}
		for _, s := range d.Servers {
			verdicts[*s.Verdict]++
			if !*s.Deleted || !*s.Freed || s.Seen["10de:11b4"] == 0 || (s.Console != nil) != console {
				t.Errorf("%+v", s)
			}
		}
		if diff := cmp.Diff(map[string]int{"pass": 2, "fail": 1}, verdicts); diff != "" || status != 2 || *d.Verdict != "fail" {
			t.Errorf("exit status %d, %s (-want +got):\n%s", status, stdout, diff)
		}
		if strings.Contains(stderr, "console-secret") || strings.Contains(stderr, "IyEv") || !strings.Contains(stderr, "POST http") {
			t.Errorf("-v: %s", stderr)
		}
		if strings.Contains(stdout, "console-secret") != console {
			t.Errorf("--console %v: %s", console, stdout)
		}
	}
	err := filepath.WalkDir(strings.TrimPrefix(state[1], "XDG_STATE_HOME="), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, secret := range []string{"console-secret", "GPUSTACK-PROBE", "IyEv", "user_data", c.Password, "admin-pass"} {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s contains %s", path, secret)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFlavorTestProgress: on a terminal, one line shows the state, the seconds and the last line of
// the console, and is removed in the end; of a guest that fails, the last lines are shown.
func TestFlavorTestProgress(t *testing.T) {
	t.Parallel()
	c := trialCloud(t, 96)
	c.Boot.Building = 1
	c.Boot.Console = func(string, string) string { return "starting\x1b[31m sshd\x07\n" }
	s := terminal.Start(t, trialCommand(t, c, unprivilegedEnv(t), trialArgs("--wait", "4s")...), "")
	hosttest.EqualIn(t, "exit status", 2, s.Wait())
	for _, want := range []string{"\rgpustack-test-", " BUILD (spawning) 0 s\x1b[K", " ACTIVE 2 s: starting sshd\x1b[K", "\r\x1b[K", "  the last lines of its console:\n    starting sshd\n"} {
		if !strings.Contains(strings.ReplaceAll(s.Output(), "\r\n", "\n"), want) {
			t.Errorf("no %q:\n%q", want, s.Output())
		}
	}
}
