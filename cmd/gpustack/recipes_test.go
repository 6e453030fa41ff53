package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestFleetCronRecipe: the loop of docs/fleet.md for cron keeps each document that gpustack has
// printed, also with exit status 2, and of a command that failed the document of the last time.
func TestFleetCronRecipe(t *testing.T) {
	text := hosttest.Read(t, "../../docs/fleet.md")
	const folder = "/srv/gpustack"
	recipe := ""
	for _, fence := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch([]byte(text), -1) {
		if bytes.Contains(fence[1], []byte("for k in scan check guests")) {
			recipe = string(fence[1])
		}
	}
	if !strings.Contains(recipe, folder) {
		t.Fatalf("no loop that writes to %s: %q", folder, recipe)
	}
	dir, bin := t.TempDir(), t.TempDir()
	const fake = `#!/bin/sh
echo "new $*"
case $2 in check) exit 2 ;; guests) exit 1 ;; esac
`
	for path, content := range map[string]string{
		filepath.Join(bin, "gpustack"): fake, filepath.Join(bin, "hostname"): "#!/bin/sh\necho gpu1\n",
		filepath.Join(dir, "gpu1.scan.json"): "old\n", filepath.Join(dir, "gpu1.check.json"): "old\n", filepath.Join(dir, "gpu1.guests.json"): "old\n",
	} {
		hosttest.NoError(t, os.WriteFile(path, []byte(content), 0o700))
	}
	cmd := exec.Command("sh", "-c", strings.ReplaceAll(recipe, folder, dir))
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	_ = cmd.Run() // cron needs no exit status; the files count
	for kind, want := range map[string]string{"scan": "new host scan --machine -o json\n", "check": "new host check -o json\n", "guests": "old\n"} {
		got, err := os.ReadFile(filepath.Join(dir, "gpu1."+kind+".json"))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, error %v, not %q", kind, got, err, want)
		}
	}
}
