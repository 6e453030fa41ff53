package integration

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/integration/terminal"
)

// TestGotestPrintsAtOnce: .ci/gotest prints each line as it comes, and exits with go's status.
func TestGotestPrintsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	slow := "#!/bin/sh\nprintf 'ok  \\tgpustack/a\\t1.5s\\n'\nfor try in $(seq 100); do [ ! -e \"$SEEN\" ] || break; sleep 0.1; done\n" +
		"[ -e \"$SEEN\" ] || exit 4\nprintf 'FAIL\\tgpustack/b\\t2.0s\\n'\nexit 3\n"
	hosttest.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(slow), 0o755))
	cmd := exec.Command("../.ci/gotest", "./...")
	cmd.Env = append(os.Environ(), "GO="+filepath.Join(dir, "go"), "SEEN="+seen, "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	hosttest.NoError(t, err)
	hosttest.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var got []string
	for lines.Scan() {
		got = append(got, lines.Text())
		hosttest.NoError(t, os.WriteFile(seen, nil, 0o600))
	}
	cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 3 {
		t.Errorf("exit status %d: %q", status, got)
	}
	if len(got) != 3 || !strings.HasPrefix(got[2], "2 packages were tested in ") || !strings.HasSuffix(got[2], " 3.5 s") {
		t.Errorf("%q", got)
	}
}

// TestScriptsInterrupted: Ctrl-C while a script of the checkout runs a program. No temporary file
// of the script remains; of .ci/gotest, only an empty folder.
func TestScriptsInterrupted(t *testing.T) {
	for _, test := range []struct {
		program, script string // the script waits for the program
	}{
		{"go", "env -u TMPDIR ../.ci/gotest ./..."},
		{"apt-get", "../.ci/packages gpustack-missing"},
		{"mount", "env GPUSTACK_APART= ../.ci/apart true"},
		{"gpustack", "../examples/demo.sh \"$BIN/gpustack\""},
	} {
		t.Run(test.script, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			bin, temporary, begun := filepath.Join(dir, "bin"), filepath.Join(dir, "tmp"), filepath.Join(dir, "begun")
			for _, folder := range []string{bin, temporary} {
				hosttest.NoError(t, os.Mkdir(folder, 0o755))
			}
			slow := "#!/bin/sh\ntouch \"$BEGUN\"\nexec sleep 60\n"
			if test.program == "go" {
				slow = strings.Replace(slow, "touch", "touch \"$TMPDIR/left\"", 1)
			}
			hosttest.NoError(t, os.WriteFile(filepath.Join(bin, test.program), []byte(slow), 0o755))
			cmd := exec.Command("unshare", "--mount", "sh", "-c", `
				mount -t tmpfs -o size=8g tmpfs /dev/shm
				trap : INT
				PATH=$BIN:$PATH `+test.script+`
				status=$? left=
				for try in 1 2 3 4 5 6 7 8 9 10; do # on a busy machine a trap of the script may still be removing it
					left=$(find "$TMPDIR" /dev/shm -mindepth 1 ! -path '/dev/shm/gpustack-test-*[0-9]')
					[ -n "$left" ] || break
					sleep 0.5
				done
				echo "exit status $status, left: $left."`)
			cmd.Env = append(os.Environ(), "BIN="+bin, "TMPDIR="+temporary, "BEGUN="+begun)
			s := terminal.Start(t, cmd, "")
			await(t, begun)
			s.Type(terminal.CtrlC)
			if status := s.Wait(); status != 0 || !strings.Contains(s.Output(), "exit status 130, left: .") {
				t.Errorf("exit status %d: %s", status, s.Output())
			}
		})
	}
}
