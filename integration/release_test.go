package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestRelease makes a release of a copy of the checkout that is a repository of its own: all that a
// release lacks is said at once, and what is to be published has been built twice.
func TestRelease(t *testing.T) {
	t.Parallel()
	dir := checkout(t)
	run(t, "cp", "-a", ".", filepath.Join(dir, "integration"))
	git := func(args ...string) {
		t.Helper()
		run(t, "git", append([]string{"-C", dir, "-c", "user.name=The releaser", "-c", "user.email=releaser@gpustack.example"}, args...)...)
	}
	release := func(version string) (string, string, int) {
		t.Helper()
		cmd := exec.Command("make", "--no-print-directory", "-C", dir, "release", "VERSION="+version)
		cmd.Env = append(os.Environ(), "MAINTAINER=The releaser <releaser@gpustack.example>")
		return try(t, cmd)
	}
	git("init", "--quiet", "--initial-branch", "main")
	git("add", "--all")
	git("commit", "--quiet", "--message", "all")

	for _, c := range []struct{ name, version, says string }{
		{"no version", "next", `release: error: version "next" is not one like 1.2.3`},
		{"not tagged", "7.8.9", "release: error: this commit does not have the tag v7.8.9: git tag --annotate v7.8.9"},
		{"not in the changelog", "7.8.9", `release: error: CHANGELOG.md has no line "## 7.8.9 (DATE)"`},
		{"called unreleased", "7.8.9", "release: error: CHANGELOG.md says that this version is not released"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if out, talk, status := release(c.version); status == 0 || out != "" || !strings.Contains(talk, c.says) {
				t.Errorf("exit status %d\n%s%s", status, out, talk)
			}
		})
	}

	changelog := filepath.Join(dir, "CHANGELOG.md")
	const text = "# Changelog\n\n## 7.8.9 (2026-12-24)\n\nWhat it does.\n\n## 7.8.8 (2026-12-23)\n\nWhat it did.\n"
	hosttest.NoError(t, os.WriteFile(changelog, []byte(text), 0o644))
	t.Run("changed", func(t *testing.T) {
		git("tag", "v7.8.9")
		if _, talk, status := release("7.8.9"); status == 0 || strings.Count(talk, "release: error: ") != 1 ||
			!strings.Contains(talk, "release: error: the checkout has changes; git status lists them\n") {
			t.Errorf("exit status %d\n%s", status, talk)
		}
		git("commit", "--quiet", "--all", "--message", "changelog")
		git("tag", "--force", "v7.8.9")
	})
	t.Run("made", func(t *testing.T) {
		out, talk, status := release("7.8.9")
		for _, says := range []string{
			"has the same bytes", "git push origin v7.8.9\n", "\n  build/dist/gpustack-nova-7.8.9-linux-amd64.tar.gz\n", "\n  build/dist/SHA256SUMS\n", "\nWhat it does.\n",
		} {
			hosttest.Contains(t, says, out)
		}
		if status != 0 || strings.Contains(out, "What it did") {
			t.Errorf("exit status %d\n%s%s", status, out, talk)
		}
	})
}
