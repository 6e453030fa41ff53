package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// TestUnprivileged: a user who may not read a thing is told which, once, and what
// to do. Tests run as root, who may read all.
func TestUnprivileged(t *testing.T) {
	const nobody = 65534
	for _, test := range []struct {
		name, closed string // a file or folder of the node that only root may read
		status       int
		want         string // the last line of talk but for the hint, with the root cut off
	}{
		{"the list of functions", "sys/bus/pci/devices", 1, "gpustack: error: /sys/bus/pci/devices: permission denied"},
		{"the way to it", "sys/bus", 1, "gpustack: error: /sys/bus/pci/devices: permission denied"},
		{"one attribute", "sys/bus/pci/devices/0000:84:00.0/modalias", 0, "gpustack: warning: /sys/bus/pci/devices/0000:84:00.0/modalias: permission denied"},
		{"one function", "sys/devices/pci0000:80/0000:80:02.0/0000:84:00.0", 0, "gpustack: warning: /sys/bus/pci/devices/0000:84:00.0: permission denied"},
		{"a fact of the host", "etc/os-release", 0, "gpustack: warning: /etc/os-release: permission denied"},
		{"nothing", "", 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			// Below scratch, where other users may go.
			root, err := os.MkdirTemp(scratch, "node-")
			hosttest.NoError(t, err)
			hosttest.NoError(t, os.Chmod(root, 0o755))
			run(t, gpustack, "host", "unpack", examples(t)["talk-2xk4200.txtar"], filepath.Join(root, "node"))
			root = filepath.Join(root, "node")
			if test.closed != "" {
				hosttest.NoError(t, os.Chmod(filepath.Join(root, test.closed), 0))
			}
			cmd := exec.Command(gpustack, "host", "scan", "--all", "--root", root, "-o", "json")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			stdout, stderr, status := try(t, cmd)
			talk, hint, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(stderr), root, ""), "\n")
			if status != test.status || talk != test.want {
				t.Errorf("exit status %d, want %d; talk:\n%s\nwant:\n%s", status, test.status, stderr, test.want)
			}
			if failed := status != 0; failed != (hint == "gpustack: hint: run gpustack as root") || failed != strings.Contains(stdout, `"errors":[`) {
				t.Errorf("hint %q; output:\n%s", hint, stdout)
			}
		})
	}
}

// TestChroot: in a chroot without /proc, where no file can be opened by its descriptor, a scan sees
// what it sees of the tree from outside.
func TestChroot(t *testing.T) {
	root := unpack(t, examples(t)["talk-2xk4200.txtar"])
	program := hosttest.Read(t, gpustack)
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "gpustack"), []byte(program), 0o755))
	scan := []string{"host", "scan", "--all", "-o", "json"}
	seen := func(out string) (report map[string]any) {
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		delete(report, "time")
		delete(report, "next") // names the root
		return report
	}
	outside := seen(run(t, gpustack, append(scan, "--root", root)...))
	inside := seen(run(t, "chroot", append([]string{root, "/gpustack"}, scan...)...))
	if diff := cmp.Diff(outside, inside); diff != "" || len(outside["devices"].([]any)) != 18 {
		t.Errorf("%d devices (-outside +inside):\n%s", len(outside["devices"].([]any)), diff)
	}
}

// TestYAMLIsTheJSON: a parser that is not ours, and that takes 0000:24:00.0 for a
// number when it is not told otherwise, reads both forms as one document.
func TestYAMLIsTheJSON(t *testing.T) {
	for name, file := range examples(t) {
		t.Run(name, func(t *testing.T) {
			root := unpack(t, file)
			parse := func(format string) (document map[string]any) {
				cmd := exec.Command("/usr/bin/python3", "-c", "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)")
				cmd.Stdin = strings.NewReader(run(t, gpustack, "host", "scan", "--all", "--root", root, "-o", format))
				stdout, stderr, status := try(t, cmd)
				if status != 0 {
					t.Fatal(stderr)
				}
				hosttest.NoError(t, json.Unmarshal([]byte(stdout), &document))
				delete(document, "time") // when it was made
				return document
			}
			hosttest.EqualIn(t, "json and yaml", parse("json"), parse("yaml"))
		})
	}
}
