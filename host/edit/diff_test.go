package edit

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestBrief: a short diff has a line of context, and names the section of each hunk.
func TestBrief(t *testing.T) {
	file := "[DEFAULT]\na = 1\nb = 2\n\n[pci]\n# one\n# two\n# three\nalias = x\n# four\n# five\n[end]\nz = 1\n"
	for _, test := range []struct{ name, before, after, want string }{
		{"in a section", file, strings.Replace(file, "alias = x", "alias = y", 1),
			"--- f\n+++ f\n@@ -8,3 +8,3 @@ [pci]\n # three\n-alias = x\n+alias = y\n # four\n"},
		{"a section that the context shows", file, strings.Replace(file, "a = 1\n", "", 1), "--- f\n+++ f\n@@ -1,3 +1,2 @@\n [DEFAULT]\n-a = 1\n b = 2\n"},
		{"the first line", "a\nb\nc\n", "x\nb\nc\n", "--- f\n+++ f\n@@ -1,2 +1,2 @@\n-a\n+x\n b\n"},
		{"a new file", "", "a\n", "--- f\n+++ f\n@@ -0,0 +1 @@\n+a\n"},
		{"at the end, without a last line feed", file + "y = 1", file + "y = 2", "--- f\n+++ f\n@@ -13,2 +13,2 @@ [end]\n z = 1\n" +
			"-y = 1\n\\ No newline at end of file\n+y = 2\n\\ No newline at end of file\n"},
		{"two hunks", file, strings.NewReplacer("b = 2", "b = 3", "z = 1", "z = 2").Replace(file),
			"--- f\n+++ f\n@@ -2,3 +2,3 @@ [DEFAULT]\n a = 1\n-b = 2\n+b = 3\n \n@@ -12,2 +12,2 @@\n [end]\n-z = 1\n+z = 2\n"},
	} {
		hosttest.EqualIn(t, test.name, test.want, brief("f", "f", test.before, test.after))
	}
}
