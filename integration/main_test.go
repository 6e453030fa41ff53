package integration

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gpustack/integration/binary"
)

// gpustack is the binary under test, made as make build makes it; scratch is a
// folder that goes when all tests are done.
var gpustack, scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "gpustack-integration-"); err != nil {
		panic(err)
	}
	// A test that is another user must be able to run the binary.
	if err := os.Chmod(scratch, 0o755); err != nil {
		panic(err)
	}
	if gpustack, err = binary.Build(scratch); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(scratch)
	os.Exit(status)
}

// run runs a program, which must succeed, and returns what it printed.
func run(t testing.TB, program string, args ...string) string {
	t.Helper()
	stdout, stderr, status := try(t, exec.Command(program, args...))
	if status != 0 {
		t.Fatalf("%s %q: exit status %d\n%s", program, args, status, stderr)
	}
	return stdout
}

// try runs a command and returns what came of it.
func try(t testing.TB, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v (make integration runs the tests where all that they need is installed)", err)
	}
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

// examples returns the example nodes by name.
func examples(t testing.TB) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../examples/*.txtar")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	nodes := map[string]string{}
	for _, file := range files {
		nodes[filepath.Base(file)] = file
	}
	return nodes
}

// unpack lays an example or snapshot out in a folder that goes with the test.
func unpack(t testing.TB, file string) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "node")
	run(t, gpustack, "host", "unpack", file, root)
	return root
}
