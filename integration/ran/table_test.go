package ran

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

var update = flag.Bool("update", false, "write the last runs into README.md")

const (
	page    = "README.md"
	heading = "\n## Releases, and what proves them\n"
	never   = "not noted yet"
	read    = "read only"
)

// row is a row of the table.
type row struct {
	release, what, by, last string
}

// rows splits the page at the rows of the table.
func rows(t *testing.T) (before, head string, all []row, after string) {
	t.Helper()
	text := hosttest.Read(t, page)
	before, rest, found := strings.Cut(text, heading)
	_, tail, isTable := strings.Cut(rest, "\n|")
	if !found || !isTable {
		t.Fatalf("%s has no table below %q", page, strings.TrimSpace(heading))
	}
	head = heading + strings.TrimSuffix(rest, "|"+tail)
	for n, line := range strings.Split("|"+tail, "\n") {
		if !strings.HasPrefix(line, "|") {
			_, after, _ = strings.Cut("\n|"+tail, "\n"+strings.Join(strings.Split("|"+tail, "\n")[:n], "\n"))
			break
		}
		if n < 2 {
			head += line + "\n"
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 4 {
			t.Fatalf("%d cells in %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all = append(all, row{cells[0], cells[1], cells[2], cells[3]})
	}
	return before, head, all, after
}

var (
	ofSuite = regexp.MustCompile("^`(\\w+): integration/(\\w+)`$") // tests with the packages of a release
	ofTest  = regexp.MustCompile("^`([\\w/]+) (Test\\w+)`$")
	lastRun = regexp.MustCompile(`^20\d\d-\d\d-\d\d, \d+ of \d+ tests( -\S+.*)?: \S+ \d.*$`)
)

// TestTable: the table of README.md names tests that exist, and every package whose runs are
// noted is in it. What proves a row was last run with the versions that its own run has printed:
// with -update they are read from the notes.
func TestTable(t *testing.T) {
	before, head, all, after := rows(t)
	var named []string
	for i := range all {
		r := &all[i]
		suite, test := ofSuite.FindStringSubmatch(r.by), ofTest.FindStringSubmatch(r.by)
		switch {
		case suite != nil:
			named = append(named, suite[2])
			tests, err := Tests(filepath.Join("..", suite[2]))
			if err != nil || len(tests) == 0 || shown[suite[2]] == nil {
				t.Errorf("%s: %d tests, %v", r.by, len(tests), err)
			}
			run, noted, err := Read(suite[1], suite[2])
			if err != nil {
				t.Error(err)
			}
			if *update && noted {
				r.last = run.String()
			}
			if r.last != never && !lastRun.MatchString(r.last) {
				t.Errorf("%s: last run %q", r.by, r.last)
			}
		case test != nil:
			tests, err := Tests(filepath.Join("..", "..", test[1]))
			if err != nil || !slices.Contains(tests, test[2]) {
				t.Errorf("%s: there is no such test (%v)", r.by, err)
			}
			if !strings.HasPrefix(r.last, "with every `make ") {
				t.Errorf("%s: last run %q", r.by, r.last)
			}
		case r.by != "" || r.last != read:
			t.Errorf("%s is proven by %q, last run %q", r.release, r.by, r.last)
		}
	}
	for name := range shown {
		if !slices.Contains(named, name) {
			t.Errorf("no row has integration/%s", name)
		}
	}
	if !*update {
		return
	}
	text := before + head
	for _, r := range all {
		text += strings.Join([]string{"|", r.release, "|", r.what, "|", r.by, "|", r.last, "|\n"}, " ")
	}
	text = strings.ReplaceAll(text, "|  |", "| |")
	hosttest.NoError(t, os.WriteFile(page, []byte(text+strings.TrimPrefix(after, "\n")), 0o644))
}

// TestVersions: a package that is known for another's sake only is not shown, those of a kernel
// are.
func TestVersions(t *testing.T) {
	const status = `Package: linux-image-6.12.118+deb13-amd64
Status: install ok installed
Architecture: amd64
Version: 6.12.118-1
Source: linux-signed-amd64 (6.12.118+1)

Package: linux-image-6.12.118+deb13-amd64-unsigned
Status: unknown ok not-installed

Package: nova-compute
Status: install ok installed
Architecture: all
Version: 2:31.0.0-6+deb13u3
Source: nova
`
	dpkg := t.TempDir()
	hosttest.NoError(t, os.WriteFile(filepath.Join(dpkg, "status"), []byte(status), 0o644))
	if got, err := Versions(dpkg, "chain"); err != nil || got != "linux 6.12.118, nova-compute 31.0.0" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := Versions(dpkg, "db"); err == nil || !strings.Contains(err.Error(), "none of python3-nova,") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNote: what is noted is read back, for the release that SUITE names, and no run of benchmarks
// alone is noted.
func TestNote(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "integration", "db")
	hosttest.NoError(t, os.MkdirAll(dir, 0o755))
	hosttest.NoError(t,
		os.WriteFile(filepath.Join(dir, "a_test.go"),
			[]byte("package db\n\nfunc TestA(t *testing.T) {}\n\nfunc TestB(t *testing.T) {}\n\nfunc TestMain(m *testing.M) {}\n"), 0o644))
	t.Chdir(dir)
	if names, err := Tests("."); err != nil || !slices.Equal(names, []string{"TestA", "TestB"}) {
		t.Errorf("%q, %v", names, err)
	}
	t.Setenv("SUITE", "sid")
	if suite, err := Suite(); err != nil || suite != "sid" {
		t.Errorf("%q, %v", suite, err)
	}
	if _, noted, err := Read("sid", "db"); noted || err != nil {
		t.Errorf("noted before: %v, %v", noted, err)
	}
	pattern := flag.Lookup("test.run").Value
	was := pattern.String()
	defer pattern.Set(was)
	for _, test := range []struct {
		run  string
		want int
	}{{"^$", 0}, {"^TestA$/x", 1}, {"", 2}} {
		hosttest.NoError(t, pattern.Set(test.run))
		hosttest.NoError(t, Note("bash", func() (string, error) { return versions("/var/lib/dpkg", "bash", "no-such-package") }))
		run, noted, err := Read("sid", "bash")
		if err != nil || noted != (test.want > 0) || run.Tests != test.want || noted && !lastRun.MatchString(run.String()) {
			t.Errorf("-run %q: %+v, %v, %v", test.run, run, noted, err)
		}
	}
}
