// Package ran records which integration tests have passed, in which release of Debian and with
// which versions. The table of docs/systems.md says so of each package (make systems).
package ran

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Run is what passed of the tests of a package.
type Run struct {
	Day      string // 2026-11-27
	Tests    int    // that ran
	Of       int    // that the package has
	Flags    string // of the package, such as -full
	Versions string // nova 31.0.0, placement 13.0.0
}

// String returns the cell of the table.
func (r Run) String() string {
	return fmt.Sprintf("%s, %d of %d tests%s: %s", r.Day, r.Tests, r.Of, r.Flags, r.Versions)
}

// shown are the packages of Debian whose versions say what tests of a package ran with.
var shown = map[string][]string{
	"db":    {"python3-nova", "python3-placement", "mariadb-server-core", "python3-pymysql"},
	"nova":  {"python3-nova", "python3-placement", "python3-keystone", "python3-glance", "mariadb-server-core", "rabbitmq-server"},
	"vm":    {"qemu-system-x86", "initramfs-tools", "dracut-core", "grub2-common", "systemd"},
	"chain": {"python3-nova", "qemu-system-x86", "initramfs-tools", "dracut-core", "systemd"},

	"monitoring": {"prometheus", "prometheus-node-exporter"},
}

// folder is where runs are noted, seen from a package of integration.
var folder = filepath.Join("..", "..", "build", "ran")

// Suite returns the release of Debian whose packages the tests use, as .ci/inside sets it.
func Suite() (string, error) {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	_, after, _ := strings.Cut("\n"+string(text), "\nVERSION_CODENAME=")
	name, _, _ := strings.Cut(after, "\n")
	suite := cmp.Or(os.Getenv("SUITE"), name) // sid has the name of the next release
	if suite == "" {
		return "", errors.New("/etc/os-release has no VERSION_CODENAME")
	}
	return suite, nil
}

// Note notes that the tests of the package in the working directory, integration/NAME, have passed:
// those that the flags of go test select. With none, as for benchmarks, it notes nothing.
func Note(name string) error {
	return note(name, shown[name]...)
}

func note(name string, packages ...string) error {
	selected, err := Tests(".")
	if err != nil {
		return err
	}
	run := Run{Day: time.Now().UTC().Format(time.DateOnly), Of: len(selected)}
	for _, filter := range []struct {
		flag string
		keep bool
	}{{"test.run", true}, {"test.skip", false}} {
		pattern, _, _ := strings.Cut(flag.Lookup(filter.flag).Value.String(), "/")
		if pattern == "" {
			continue
		}
		expression, err := regexp.Compile(pattern)
		if err != nil {
			return err
		}
		selected = slices.DeleteFunc(selected, func(test string) bool { return expression.MatchString(test) != filter.keep })
	}
	if run.Tests = len(selected); run.Tests == 0 {
		return nil
	}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			run.Flags += " -" + f.Name
			if value := f.Value.String(); value != "true" {
				run.Flags += " " + value
			}
		}
	})
	if run.Versions, err = versions(packages); err != nil {
		return err
	}
	suite, err := Suite()
	if err != nil {
		return err
	}
	text, err := json.Marshal(run)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, suite+"-"+name+".json"), append(text, '\n'), 0o644)
}

// Read returns what was noted of integration/NAME in a release. It returns false if nothing was.
func Read(suite, name string) (run Run, noted bool, err error) {
	text, err := os.ReadFile(filepath.Join(folder, suite+"-"+name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return run, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &run)
	}
	return run, err == nil, err
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w*)\(\w+ \*testing\.T\)`)

// Tests returns the names of the tests of a folder.
func Tests(dir string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		if err = errors.Join(err, readErr); err != nil {
			return nil, err
		}
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names, err
}

// versions returns the upstream versions of those of some packages that are installed.
func versions(packages []string) (string, error) {
	// It exits with 1 if one is not installed, after it has printed the others.
	out, err := exec.Command("dpkg-query", append([]string{"--show", "--showformat=${Package} ${source:Upstream-Version}\n"}, packages...)...).Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return "", fmt.Errorf("dpkg-query: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "python3-"), "+") // of Debian's repacking
		all = append(all, name)
	}
	slices.Sort(all)
	if len(all) == 0 {
		return "", fmt.Errorf("none of %s is installed", strings.Join(packages, ", "))
	}
	return strings.Join(all, ", "), nil
}
