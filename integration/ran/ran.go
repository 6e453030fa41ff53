// Package ran records which integration tests have passed, in which release of Debian and with
// which versions. The table of README.md says so of each package (make systems).
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

// shown are the packages of Debian whose versions say what tests of a package ran with. Those of
// chain are of the disk of its compute nodes.
var shown = map[string][]string{
	"db":    {"python3-nova", "python3-placement", "mariadb-server-core", "python3-pymysql"},
	"nova":  {"python3-nova", "python3-placement", "python3-keystone", "python3-glance", "mariadb-server-core", "rabbitmq-server"},
	"vm":    {"qemu-system-x86", "initramfs-tools", "dracut-core", "grub-common", "udev"},
	"chain": {"nova-compute", "libvirt-daemon-system", "qemu-system-x86", "linux-image-*", "initramfs-tools", "systemd"},

	"monitoring": {"prometheus", "prometheus-node-exporter"},
	"ansible":    {"ansible-core", "ansible-lint"},
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
// those that the flags of go test select, with these versions. With none selected, as for
// benchmarks, it notes nothing.
func Note(name string, versions func() (string, error)) error {
	selected, err := Tests(".")
	if err != nil {
		return err
	}
	run := Run{Day: time.Now().UTC().Format(time.DateOnly), Of: len(selected)}
	for _, filter := range []struct {
		flag string
		keep bool
	}{{"test.run", true}, {"test.skip", false}} {
		pattern := ofSubtests.ReplaceAllString(flag.Lookup(filter.flag).Value.String(), "")
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
	if run.Versions, err = versions(); err != nil {
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

// ofSubtests matches what a pattern of go test says of subtests, in each alternative: a test
// without some of its subtests counts as one that was left out.
var ofSubtests = regexp.MustCompile(`/(?:\([^()]*\)|[^|])*`)

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

// Versions returns the upstream versions of those packages of integration/NAME that are installed,
// as the status file of a folder says (dpkg-query --admindir), such as /var/lib/dpkg. None is an
// error.
func Versions(dpkg, name string) (string, error) {
	return versions(dpkg, shown[name]...)
}

func versions(dpkg string, packages ...string) (string, error) {
	// It exits with 1 if one is not known, after it has printed the others. One that is known for
	// another's sake, and not installed, has no version.
	out, err := exec.Command("dpkg-query", append([]string{"--admindir=" + dpkg, "--show", "--showformat=${Package} ${source:Upstream-Version}\n"},
		packages...)...).Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return "", fmt.Errorf("dpkg-query: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		name, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if version == "" {
			continue
		}
		version, _, _ = strings.Cut(version, "+") // what Debian adds to it
		all = append(all, strings.TrimPrefix(imageOf.ReplaceAllString(name, "linux"), "python3-")+" "+version)
	}
	slices.Sort(all)
	if len(all) == 0 {
		return "", fmt.Errorf("none of %s is installed", strings.Join(packages, ", "))
	}
	return strings.Join(all, ", "), nil
}

// imageOf is the name of a package with a kernel.
var imageOf = regexp.MustCompile(`^linux-image-.+`)
