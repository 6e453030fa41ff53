package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
)

// widths are those of the terminals that the output must fit.
func widths() []int { return []int{60, 80, 120} }

// tooWide returns the lines of a text that break the rule of the width of lines (term/wrap.go):
// wider than the page, although they are not of a diff or an example of help, and their last field
// is more than one word or one command.
func tooWide(text string, width int) (lines []string) {
	fields, command := regexp.MustCompile(` {2,}`), regexp.MustCompile(`^'?gpustack( [a-z-]+)+( --?[a-z-]+( [^- ]\S*)?| \S*[/.:0-9]\S*| [A-Z]+)*('?[,.;:)]*)?$`)
	kept := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
			kept = false
		case strings.HasPrefix(line, "--- "), line == "EXAMPLES":
			kept = true
		}
		if kept || utf8.RuneCountInString(line) <= width {
			continue
		}
		all := fields.Split(line, -1)
		if last := all[len(all)-1]; !command.MatchString(last) && strings.Contains((term.Page{Width: 1}).Fold(last), "\n") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestTooWide: the rule finds lines that could be broken, and only those.
func TestTooWide(t *testing.T) {
	for line, want := range map[string]bool{
		"a line that is longer than twenty characters":    true,
		"  /a/path/that/is/longer/than/twenty":            false,
		"  gpustack host prepare --root node --dry-run":   false,
		"fail  check  /a/path/that/is/longer/than/twenty": false,
		"fail  check  seen that a line is longer":         true,
		"--- /a/file that is longer than twenty":          false,
		"gpustack host prepare --dry-run, then reboot":    true,
		"short": false,
		"see 'gpustack host prepare --root node --dry-run',": true,
	} {
		hosttest.EqualIn(t, line, want, len(tooWide(line+"\n", 20)) > 0)
	}
}

// TestWidth: on pages of all widths, what every command prints of every example and every shape
// fits, on examples before and after they are prepared, and so does every help text.
func TestWidth(t *testing.T) {
	fits := func(t *testing.T, s shape, line string) {
		t.Helper()
		for _, s.columns = range widths() {
			o := s.runHere(t, line)
			for _, wide := range tooWide(o.stdout+"\n"+o.stderr, s.columns) {
				t.Errorf("%d columns, gpustack %s: %d: %s", s.columns, line, utf8.RuneCountInString(wide), wide)
			}
		}
	}
	all := func(t *testing.T, s shape, lines ...string) {
		t.Helper()
		for _, line := range lines {
			line = strings.ReplaceAll(line, "ADDRESS", s.first(t))
			if text := !strings.Contains(line, "-o json") && !strings.Contains(line, "--print"); text && !strings.Contains(line, "FILE") {
				fits(t, s, line)
			}
		}
	}
	// Of a machine, before and after it is prepared.
	both := []string{
		"host scan", "host scan -o tree", "host check --all", "status", "host guests", "host prepare --dry-run", "host release --dry-run", "rdma scan", "rdma scan --topology",
		"nova configure --role compute --dry-run", "nova check", "history", "history 1", "undo --dry-run",
	}
	before := append(readOnly(), "host scan --all", "host scan --machine", "host prepare --dry-run --diff", "host bind --dry-run --live",
		"rdma scan --gids", "container prepare --device GPU --static --dry-run", "nova configure --role all --alias K4200=10de:11b4 --dry-run")
	after := []string{"host check", "host prepare --none --dry-run", "host release --dry-run --diff", "container check"}
	t.Run("shapes", func(t *testing.T) {
		for _, s := range readShapes(t) {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				all(t, s, subjectCommands(s.subject)...)
			})
		}
	})
	boot, err := filepath.Abs("../../examples/boot.sh")
	hosttest.NoError(t, err)
	for name, selection := range exampleSelections() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := hosttest.Read(t, "../../examples/"+name+".txtar")
			s := shape{name: name, root: hosttest.Lay(t, text)}
			fits(t, s, "host prepare"+selection+" --dry-run")
			all(t, s, append(before, both...)...)
			changes := []string{"host prepare" + selection + " --yes"}
			if ok, err := s.root.Exists(nova.DefaultConf); err != nil {
				t.Fatal(err)
			} else if ok {
				changes = append(changes, "nova configure --role compute --yes")
			}
			for _, line := range changes {
				if o := s.run(t, line); o.status != 0 {
					t.Fatalf("%s: %s", line, o.stderr)
				}
			}
			if out, err := exec.Command(boot, s.root.Path("/")).CombinedOutput(); err != nil {
				t.Fatalf("boot.sh: %v\n%s", err, out)
			}
			all(t, s, append(after, both...)...)
		})
	}
	t.Run("help", func(t *testing.T) {
		t.Parallel()
		a := newApp(testUI(t), []string{"gpustack"})
		paths := []string{""}
		for path := range args.Commands(a.Commands) {
			paths = append(paths, path)
		}
		text := hosttest.Read(t, "../../examples/talk-2xk4200.txtar")
		s := shape{root: hosttest.Lay(t, text)}
		for _, path := range paths {
			fits(t, s, path+" --help")
			fits(t, s, "help "+path)
		}
	})
}

// first returns the address of the first function of the shape that is no bridge.
func (s shape) first(t *testing.T) string {
	t.Helper()
	devices := hosttest.Devices(t, s.root)
	return devices[slices.IndexFunc(devices, func(d pci.Device) bool { return d.Class != nil && !d.Class.IsBridge() })].Address.String()
}

// exampleSelections returns what host prepare needs to prepare each example.
func exampleSelections() map[string]string {
	return map[string]string{
		"ubuntu-8xa100": "", "talk-2xk4200": "", "talk-iommu-off": "", "hgx-8xa100": " --nvswitch guest --allow 0000:c3:00.0 --allow 0000:c4:00.0", "workstation-twins": " --device 0000:65:00.0",
	}
}
