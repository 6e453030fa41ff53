package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/integration/terminal"
)

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
				if err := os.Mkdir(folder, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			slow := "#!/bin/sh\ntouch \"$BEGUN\"\nexec sleep 60\n"
			if test.program == "go" {
				slow = strings.Replace(slow, "touch", "touch \"$TMPDIR/left\"", 1)
			}
			if err := os.WriteFile(filepath.Join(bin, test.program), []byte(slow), 0o755); err != nil {
				t.Fatal(err)
			}
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
