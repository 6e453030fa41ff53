package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/integration/terminal"
)

// TestCompletion: the shells themselves complete command lines with the scripts that gpustack
// prints: commands, values of the machine below --root, files and folders where one is wanted, and
// nothing where none is.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	unpackExample := func(name string) {
		if _, talk, status := try(t, exec.Command(gpustack, "host", "unpack", "../examples/talk-2xk4200.txtar", filepath.Join(dir, name))); status != 0 {
			t.Fatal(talk)
		}
	}
	unpackExample("node")
	unpackExample("my node")
	run(t, gpustack, "host", "prepare", "--root", filepath.Join(dir, "node"), "--yes", "--no-rebuild")
	bin := filepath.Join(dir, "bin")
	absolute, err := filepath.Abs(gpustack)
	err = errors.Join(err, os.WriteFile(filepath.Join(dir, "nodfile"), nil, 0o644), os.Mkdir(bin, 0o755), os.Symlink(absolute, filepath.Join(bin, "gpustack")))
	for name, shell := range map[string]string{"bash": "bash", "fish": "fish", "_gpustack": "zsh"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(bin, name), []byte(run(t, gpustack, "completion", shell)), 0o644))
	}
	hosttest.NoError(t, err)
	environment := append(os.Environ(), "PATH="+bin+":/usr/sbin:/usr/bin:/sbin:/bin", "HOME="+dir, "TERM=vt100", "LANG=C.UTF-8", "PS1=> ", "SUDO_USER=")
	lines := []struct{ typed, want string }{
		{"gpustack host pre", "gpustack host prepare "},
		{"gpustack help fla", "gpustack help flavor "},
		{"gpustack host prepare --root node --allow 0000:84:00.1", "gpustack host prepare --root node --allow 0000:84:00.1 "},
		{"gpustack host prepare --root node --allow 84:00.1", "gpustack host prepare --root node --allow 84:00.1 "},
		{"gpustack host prepare --root node --device 10de:11", "gpustack host prepare --root node --device 10de:11b4 "},
		{"gpustack host prepare --root node --only=10de:11", "gpustack host prepare --root node --only=10de:11b4 "},
		{"gpustack host prepare --nvswitch=g", "gpustack host prepare --nvswitch=guest "},
		{"gpustack undo --root node ", "gpustack undo --root node 1 "},
		{`gpustack host prepare --root "my node" --device 10de:11`, "gpustack host prepare --root my node --device 10de:11b4 "},
		{`gpustack host prepare --root ~/node --device 10de:11`, "gpustack host prepare --root " + dir + "/node --device 10de:11b4 "},
		{"gpustack host prepare --root nod", "gpustack host prepare --root node/"},
		{"gpustack host prepare --root=nod", "gpustack host prepare --root=node/"},
		{"gpustack host scan --pci-ids nodf", "gpustack host scan --pci-ids nodfile "},
		{"gpustack host guests --root node --conf /etc/modp", "gpustack host guests --root node --conf /etc/modprobe.d/"},
		{"gpustack host guests --root node --conf /etc/modprobe.d/zz", "gpustack host guests --root node --conf /etc/modprobe.d/zz-gpustack.conf "},
		{"gpustack flavor create --ram nodf", "gpustack flavor create --ram nodf"},
		{"gpustack host scan nodf", "gpustack host scan nodf"},
		{"gpustack nova check --conf nodf", "gpustack nova check --conf nodfile "},
		{"gpustack nova check --conf controller=nodf", "gpustack nova check --conf controller=nodfile "},
		{"gpustack nova check --conf=nodf", "gpustack nova check --conf=nodfile "},
		{"gpustack nova check --conf=controller=nodf", "gpustack nova check --conf=controller=nodfile "},
		{"gpustack host help sc", "gpustack host help scan "},
		{"gpustack host scan -o tr", "gpustack host scan -o tree "},
		{"gpustack repair-migration --guests nodf", "gpustack repair-migration --guests nodfile "},
	}
	for shell, argv := range map[string][]string{
		"bash": {"bash", "--noprofile", "--norc", "-i"},
		"zsh":  {"zsh", "-f", "-i"},
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Dir, cmd.Env = dir, environment
			s := terminal.StartWide(t, cmd, "", 200)
			if shell == "bash" {
				s.Type("source bin/bash; bind 'set bell-style none'; echo rea''dy\n")
			} else {
				s.Type("fpath=($HOME/bin $fpath); autoload -Uz compinit; compinit -u -D; bindkey -e; unsetopt beep; echo rea''dy\n")
			}
			s.Expect("ready")
			for _, l := range lines {
				const toStart = "\x01"
				s.Type(l.typed + "\t" + "END" + toStart + "echo G''OT \n")
				s.Expect("GOT " + l.want + "END")
			}
			s.Type("exit\n")
			s.Wait()
		})
	}
	t.Run("fish", func(t *testing.T) {
		t.Parallel()
		for _, l := range lines {
			cmd := exec.Command("fish", "--no-config", "-c", `source $argv[1]; complete --do-complete $argv[2]`, filepath.Join(bin, "fish"), l.typed)
			cmd.Dir, cmd.Env = dir, environment
			stdout, talk, status := try(t, cmd)
			var got []string
			for line := range strings.Lines(stdout) {
				word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
				got = append(got, word)
			}
			words := strings.Split(strings.TrimSuffix(l.want, " "), " ")
			want := []string{words[len(words)-1]} // the word that it completes
			if l.want == l.typed {
				want = nil
			}
			if status != 0 || talk != "" || !slices.Equal(got, want) {
				t.Errorf("%s: exit status %d, talk %q: %q, want %q", l.typed, status, talk, got, want)
			}
		}
	})
}
