package trial_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"gpustack/host/engine"
	"gpustack/host/hosttest"
	"gpustack/host/rdma/trial"
)

// entrypoint runs the entry point on the machine.
const entrypoint = `while [ "$1" != --entrypoint ]; do shift; done
entry=$2; shift 3
exec ${0%/*}/$entry "$@"
`

// TestContainers: both sides run in containers without privileges, which get the devices and no
// others of the machine's.
func TestContainers(t *testing.T) {
	t.Parallel()
	for _, name := range engine.Engines() {
		r := played(t, "sleep 0.3\n"+serves, pings)
		hosttest.Engine(t, r.Dirs[0], name, entrypoint)
		test := newTest(r)
		test.Container = &engine.Container{Network: "host", Image: "localhost/rdma:1", Engine: name, Devices: []string{"gpustack.local/hca=0000:0c:00.1"}}
		got, err := test.Loopback(t.Context())
		if err != nil || got.Verdict != trial.Pass || got.Iterations != 3 {
			t.Errorf("%+v, %v", got, err)
		}
		for line := range strings.Lines(hosttest.Asked(t, r.Dirs[0], name)) {
			for _, want := range []string{"run --rm --name gpustack-rdma-test-", " --pull never ", " --network host ", " --user 65534:65534 ", " --cap-drop ALL ",
				" --security-opt no-new-privileges ", " --device gpustack.local/hca=0000:0c:00.1 ", " --entrypoint rping localhost/rdma:1 -"} {
				hosttest.Contains(t, want, line)
			}
			if strings.Contains(line, "--privileged") || strings.Contains(line, "--volume") || (name == "podman") != podmanLimit(line).MatchString(line) {
				t.Errorf("%s", line)
			}
		}
		if command := test.PeerCommand(); !strings.HasSuffix(command, " --container localhost/rdma:1") {
			t.Errorf("%s", command)
		}
	}
}

// podmanLimit returns the expression for the limit of a side: 23 seconds for the server, and what
// is left of them for the client.
func podmanLimit(line string) *regexp.Regexp {
	if strings.Contains(line, " localhost/rdma:1 -s ") {
		return regexp.MustCompile(` --timeout 23 `)
	}
	return regexp.MustCompile(` --timeout 2[0-3] `)
}

// TestContainersUnlabelled: where SELinux denies devices to containers, they start without a label.
func TestContainersUnlabelled(t *testing.T) {
	t.Parallel()
	r := played(t, "sleep 0.3\n"+serves, pings)
	hosttest.Engine(t, r.Dirs[0], "podman", entrypoint)
	test := newTest(r)
	test.Container = &engine.Container{Network: "host", Image: "localhost/rdma:1", Engine: "podman", Devices: []string{"/dev/infiniband/rdma_cm"},
		Unlabelled: true}
	if got, err := test.Loopback(t.Context()); err != nil || got.Verdict != trial.Pass {
		t.Errorf("%+v, %v", got, err)
	}
	if lines := hosttest.Asked(t, r.Dirs[0], "podman"); strings.Count(lines, " --security-opt label=disable ") != strings.Count(lines, "run --rm") {
		t.Errorf("%s", lines)
	}
}

// TestContainersFail: what an engine says is an error, what rping says is a failed test.
func TestContainersFail(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, run string
		kind      error // nil: a failed test
		text      string
	}{
		{"no rping, crun", "echo 'Error: crun: executable file `rping` not found in $PATH: No such file or directory: OCI runtime attempted to invoke a command that was not found' >&2; exit 127",
			trial.ErrImageRping, "localhost/rdma:1: the image has no rping"},
		{"no rping, runc", `echo 'Error: runc: runc create failed: unable to start container process: exec: "rping": executable file not found in $PATH: OCI runtime attempted to invoke a command that was not found' >&2; exit 127`,
			trial.ErrImageRping, "the image has no rping"},
		{"unresolvable", "echo 'Error: setting up CDI devices: unresolvable CDI devices gpustack.local/hca=x' >&2; exit 126", engine.ErrStart,
			"unresolvable CDI devices gpustack.local/hca=x"},
		{"no node", `echo 'failed to stat CDI host device "/dev/infiniband/uverbs7": no such file or directory' >&2; exit 127`, engine.ErrStart, "uverbs7"},
		{"no daemon", "echo 'docker: Cannot connect to the Docker daemon' >&2; exit 125", engine.ErrStart, "Cannot connect to the Docker daemon"},
		{"no event channel", "echo 'failed to create RDMA CM event channel: No such file or directory' >&2; exit 255", nil, "/dev/infiniband/rdma_cm is missing or cannot be opened"},
		{"no event channel, with the node", "echo 'failed to create RDMA CM event channel: No such file or directory' >&2; exit 255", nil, "is in the container and cannot be opened: SELinux"},
		{"memlock", "echo \"Couldn't register MR\" >&2; exit 255", nil, "locked memory"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := played(t, serves, pings)
			hosttest.Engine(t, r.Dirs[0], "podman", row.run)
			test := newTest(r)
			test.Container = &engine.Container{Network: "host", Image: "localhost/rdma:1", Engine: "podman"}
			if strings.HasSuffix(row.name, "with the node") {
				test.Container.Devices = []string{"/dev/infiniband/rdma_cm"}
			}
			got, err := test.Peer(t.Context(), test.Source.IP)
			switch {
			case row.kind == nil:
				if err != nil || got.Verdict != trial.Fail || len(got.Causes) != 1 || !strings.Contains(got.Causes[0].Cause, row.text) {
					t.Errorf("%+v, %v", got, err)
				}
			case !errors.Is(err, row.kind) || !strings.Contains(err.Error(), row.text):
				t.Errorf("%v", err)
			}
		})
	}
}

// TestContainerIsRemoved: an engine that is killed at the time limit may leave its container.
func TestContainerIsRemoved(t *testing.T) {
	t.Parallel()
	r := played(t, serves, pings)
	hosttest.Engine(t, r.Dirs[0], "podman", "exec sleep 60\n")
	test := newTest(r)
	test.Timeout = 500 * time.Millisecond
	test.Container = &engine.Container{Network: "host", Image: "localhost/rdma:1", Engine: "podman"}
	got, err := test.Listen(t.Context())
	if err != nil || got.Verdict != trial.Fail || !strings.Contains(got.Causes[0].Cause, "no peer") {
		t.Errorf("%+v, %v", got, err)
	}
	lines := strings.Split(strings.TrimSpace(hosttest.Asked(t, r.Dirs[0], "podman")), "\n")
	if len(lines) != 2 {
		t.Fatalf("%q", lines)
	}
	name := strings.Fields(lines[0])[3]
	if lines[1] != "rm --force --volumes "+name {
		t.Errorf("%q", lines)
	}
}
