package monitoring

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/integration/binary"
	"gpustack/integration/db"
)

// gpustack is the binary under test, database that of a cloud, and scratch a folder that goes when
// all tests are done.
var (
	gpustack, scratch string
	database          *db.DB
)

// examples is the folder under test.
const examples = "../../examples/monitoring"

func TestMain(m *testing.M) {
	binary.Main(m, "monitoring", func(built, dir string) (stop func() error, err error) {
		gpustack, scratch = built, dir
		if database, err = db.Start(context.Background(), filepath.Join(dir, "db")); err != nil {
			return nil, err
		}
		return database.Stop, nil
	}, nil)
}

// run runs a program, which must end with this status, and returns what it printed.
func run(t testing.TB, status int, stdin, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v (make integration runs the tests where all that they need is installed)", err)
	}
	if cmd.ProcessState.ExitCode() != status {
		t.Fatalf("%s %q: exit status %d instead of %d\n%s", program, args, cmd.ProcessState.ExitCode(), status, out)
	}
	return string(out)
}
