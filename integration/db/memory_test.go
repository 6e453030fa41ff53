package db

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"gpustack/host/hosttest"
)

// maxRSS runs gpustack and returns its output and the most memory that it has had, in MiB
// (getrusage(2)). A small process starts it: until a child of vfork(2) executes a program, it has
// the memory of its parent, which Linux counts as its own (fs/exec.c, exec_mmap).
func maxRSS(t testing.TB, root string, args ...string) (out string, most float64) {
	t.Helper()
	const start = `import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)`
	file := filepath.Join(t.TempDir(), "maxrss")
	cmd := exec.Command("python3", append([]string{"-c", start, file, gpustack}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root}
	text, _ := cmd.CombinedOutput() // the callers check the output
	kib, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	n, err := strconv.Atoi(string(kib))
	hosttest.NoError(t, err)
	return string(text), float64(n) / 1024
}
