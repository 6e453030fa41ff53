package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestInstalled runs make install, which only copies what make build has made: it needs no Go.
// The shells and groff accept the installed files.
func TestInstalled(t *testing.T) {
	run(t, "make", "-C", "..", "build")
	// Of the programs that the Makefile names, PATH has these only: no go, no git.
	path := t.TempDir()
	for _, name := range []string{"sh", "install"} {
		program, err := exec.LookPath(name)
		hosttest.NoError(t, err)
		hosttest.NoError(t, os.Symlink(program, filepath.Join(path, name)))
	}
	program, err := exec.LookPath("make")
	hosttest.NoError(t, err)
	dir := t.TempDir()
	install := exec.Command(program, "-C", "..", "install", "DESTDIR="+dir, "PREFIX=/usr")
	install.Env = []string{"PATH=" + path}
	if _, talk, status := try(t, install); status != 0 || talk != "" {
		t.Fatalf("make install without Go: exit status %d, %s", status, talk)
	}

	program = filepath.Join(dir, "usr/sbin/gpustack")
	hosttest.EqualIn(t, "--version", run(t, "../build/gpustack", "--version"), run(t, program, "--version"))
	t.Run("manual", func(t *testing.T) {
		pages, err := filepath.Glob(filepath.Join(dir, "usr/share/man/man8/gpustack*.8"))
		if err != nil || len(pages) < 10 {
			t.Fatalf("pages %q, %v", pages, err)
		}
		for _, page := range pages {
			_, talk, status := try(t, exec.Command("groff", "-man", "-Tutf8", "-ww", "-z", page))
			if status != 0 || talk != "" {
				t.Errorf("groff: exit status %d, %s", status, talk)
			}
			if !strings.Contains(hosttest.Read(t, page), ` "8" "20`) {
				t.Errorf("%s has no date", page)
			}
		}
		for _, command := range []string{"host-prepare", "repair-migration", "undo"} {
			if !slices.Contains(pages, filepath.Join(dir, "usr/share/man/man8/gpustack-"+command+".8")) {
				t.Errorf("no page of %s among %q", command, pages)
			}
		}
	})
	t.Run("documentation", func(t *testing.T) {
		for _, pattern := range []string{"README.md", "CHANGELOG.md", "LICENSE", "docs/*.md", "docs/schema/*.json", "examples/*.txtar", "examples/*.conf",
			"examples/*.sql", "examples/*.sh", "integration/chain/README.md", "integration/ran/README.md",
			"examples/monitoring/*.*"} {
			files, err := filepath.Glob("../" + pattern)
			if err != nil || len(files) == 0 {
				t.Errorf("%s: %q, %v", pattern, files, err)
			}
			for _, file := range files {
				name := strings.TrimPrefix(file, "../")
				hosttest.EqualIn(t, name, hosttest.Read(t, file), hosttest.Read(t, filepath.Join(dir, "usr/share/doc/gpustack-nova", name)))
			}
		}
	})
	t.Run("units", func(t *testing.T) { testUnits(t, dir) })
	for _, test := range []struct {
		shell string
		argv  []string // prints what can follow "gpustack host scan --de"
	}{
		{"bash", []string{"bash", "-c", `. "$0"; COMP_LINE='gpustack host scan --de' COMP_POINT=23 COMP_WORDS=($COMP_LINE) COMP_CWORD=3; _gpustack; echo "${COMPREPLY[@]}"`,
			"usr/share/bash-completion/completions/gpustack"}},
		{"zsh", []string{"zsh", "-f", "-c", `fpath=("${0:h}" $fpath); autoload -Uz _gpustack
			_describe() { print -l -- "${(@P)2}" }
			compdef() { : }
			words=(gpustack host scan --de) CURRENT=4; _gpustack`,
			"usr/share/zsh/site-functions/_gpustack"}},
		{"fish", []string{"fish", "--no-config", "-c", `source $argv[1]; complete --do-complete 'gpustack host scan --de'`,
			"usr/share/fish/vendor_completions.d/gpustack.fish"}},
	} {
		t.Run(test.shell, func(t *testing.T) {
			last := len(test.argv) - 1
			argv := append(append([]string{}, test.argv[1:last]...), filepath.Join(dir, test.argv[last]))
			cmd := exec.Command(test.argv[0], argv...)
			cmd.Env = append(cmd.Environ(), "PATH="+filepath.Dir(program)+":/usr/sbin:/usr/bin:/sbin:/bin", "HOME="+dir)
			stdout, talk, status := try(t, cmd)
			if status != 0 || talk != "" || !strings.HasPrefix(stdout, "--device") {
				t.Errorf("exit status %d, %q, talk %q", status, stdout, talk)
			}
		})
	}
}
