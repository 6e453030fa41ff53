package ran

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// asked returns the value that make gives a variable of the Makefile.
func asked(t *testing.T, variable string, args ...string) string {
	t.Helper()
	cmd := exec.Command("make", append(args, "--no-print-directory", "-C", "../..", "--eval", "asked: ; $(info $("+variable+"))@:", "asked")...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") || strings.HasPrefix(v, "FULL=")
	})
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// sources returns the tests of each folder of the project, as text: those of integration, or the
// others.
func sources(t *testing.T, integration bool) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	texts := map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch name, _ := filepath.Rel(root, file); {
		case err != nil:
			return err
		case d.IsDir() && (name == "build" || name == ".git"):
			return fs.SkipDir
		case strings.HasPrefix(name, "integration"+string(filepath.Separator)) == integration && strings.HasSuffix(file, "_test.go"):
			text, err := os.ReadFile(file)
			texts[filepath.Dir(file)] += string(text)
			return err
		}
		return nil
	})
	hosttest.NoError(t, err)
	return texts
}

// TestLong: each test that make test leaves out exists, in one package, with the subtest that is
// named, and the pattern for go test leaves out that test or subtest. make test-full leaves out
// none, and has each part that the Makefile makes.
func TestLong(t *testing.T) {
	for variable, of := range map[string]struct {
		names       string
		integration bool
	}{"LONG": {"LONG_TESTS", true}, "LONG_UNIT": {"LONG_UNIT_TESTS", false}} {
		hosttest.EqualIn(t, variable+" of make test FULL=yes", "", asked(t, variable, "FULL=yes"))
		names, texts := strings.Fields(asked(t, of.names)), sources(t, of.integration)
		if len(names) == 0 || len(texts) == 0 {
			t.Fatalf("%s: %d names, %d packages", of.names, len(names), len(texts))
		}
		var patterns []string
		for i, name := range names {
			if slices.Contains(names[:i], name) {
				t.Errorf("%s: %s twice", of.names, name)
			}
			parts := strings.Split(name, "/")
			patterns = append(patterns, "^"+strings.Join(parts, "$/^")+"$")
			var in []string
			for dir, text := range texts {
				if regexp.MustCompile(`(?m)^func ` + parts[0] + `\(t \*testing\.T\)`).MatchString(text) {
					in = append(in, dir)
				}
			}
			if len(in) != 1 {
				t.Errorf("%s: %s is a test of %d packages: %q", of.names, name, len(in), in)
				continue
			}
			for _, part := range parts[1:] {
				// The names of cases, of examples and of programs are literals, of tests or of their package.
				literal := regexp.MustCompile(`["` + "`" + `]` + strings.ReplaceAll(regexp.QuoteMeta(part), "_", "[ _]") + `["` + "`" + `.]`)
				if !literal.MatchString(texts[in[0]]) && !literal.MatchString(packageOf(t, in[0])) && !isFile("../../examples/"+part+".txtar") {
					t.Errorf("%s: %s: no test of %s has the name %s", of.names, name, in[0], part)
				}
			}
		}
		hosttest.EqualIn(t, variable, "-skip '"+strings.Join(patterns, "|")+"'", asked(t, variable))
	}
	text := hosttest.Read(t, "../../Makefile")
	_, full, _ := strings.Cut(text, "\ntest-full:")
	if recipe, _, _ := strings.Cut(full, "\n\n"); !strings.Contains(recipe, "\n\t$(MAKE) test FULL=yes\n") {
		t.Errorf("make test-full does not run make test FULL=yes:%s", recipe)
	}
	parts := strings.Fields(asked(t, "PARTS"))
	slices.Sort(parts)
	var made []string
	for _, target := range regexp.MustCompile(`(?m)^run-(.*):$`).FindAllStringSubmatch(text, -1) {
		made = append(made, target[1])
	}
	slices.Sort(made)
	if !slices.Equal(parts, made) || len(parts) == 0 {
		t.Errorf("make test-full has the parts %q, and the Makefile makes %q", parts, made)
	}
}

// packageOf returns the sources of a package without its tests.
func packageOf(t *testing.T, dir string) (all string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	hosttest.NoError(t, err)
	for _, file := range files {
		text := hosttest.Read(t, file)
		all += text
	}
	return all
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// TestOfSubtests: a pattern of go test for tests and subtests, without what it says of subtests.
func TestOfSubtests(t *testing.T) {
	for pattern, want := range map[string]string{
		"^TestA$":                     "^TestA$",
		"TestA/b":                     "TestA",
		"TestA/(b|c)":                 "TestA",
		"^TestA$|^TestB$/^c$/d|TestE": "^TestA$|^TestB$|TestE",
		"^Test(A|B)$":                 "^Test(A|B)$",
		"^TestA$/^(b|c)$|^TestD$":     "^TestA$|^TestD$",
	} {
		hosttest.EqualIn(t, pattern, want, ofSubtests.ReplaceAllString(pattern, ""))
	}
}
