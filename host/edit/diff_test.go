package edit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	udiff "github.com/aymanbagabas/go-udiff"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// compareDiffs compares the diff and the edits of two texts with those of the whole texts.
func compareDiffs(t *testing.T, before, after string) {
	t.Helper()
	if diff := cmp.Diff(udiff.Unified("a", "b", before, after), unified("a", "b", []byte(before), []byte(after))); diff != "" {
		t.Errorf("(-whole +window):\n%s\nbefore:\n%s\nafter:\n%s", diff, before, after)
	}
	if diff := cmp.Diff(udiff.Lines(before, after), Lines([]byte(before), []byte(after)), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("edits (-whole +window):\n%s", diff)
	}
}

// TestWindow: comparing only the lines around changes gives the same diff as comparing everything.
func TestWindow(t *testing.T) {
	lines := func(from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "# comment %d\n#option_%d = %d\n\n", i, i, i)
		}
		return b.String()
	}
	file := "[DEFAULT]\n" + lines(0, 1000) + "[pci]\n" + lines(1000, 1200)
	for _, c := range []struct{ before, after string }{
		{"", ""}, {"", "a\n"}, {"a\n", ""}, {"a", "a\n"}, {"a\n", "a"}, {"a\nb", "a\nc"}, {"", file}, {file, ""}, {file, file},
		{file, file + "end\n"}, {file, "begin\n" + file}, {file, strings.TrimSuffix(file, "\n")}, {file + "x", file}, {file + "x", file + "y"},
		{file, strings.Replace(file, "[pci]\n", "[pci]\nalias = 1\nalias = 2\n", 1)},
		{file, strings.Replace(file, "\n\n", "\n", 1)}, {file, strings.Replace(file, "\n\n", "\n\n\n", 1)},
		{file, strings.Replace(file, "#option_3 =", "option_3 =", 1) + "\n[last]\nx = 1\n"},
		{file, strings.Replace(file, "#option_33 = 33\n", "", 1)},
		{file, strings.ReplaceAll(file, "#option_5", "option_5")},
		{lines(0, 300), lines(0, 21) + lines(0, 300)},
	} {
		compareDiffs(t, c.before, c.after)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		before := strings.SplitAfter(file[:len(file)/4], "\n")
		after := slices.Clone(before)
		for range 1 + random.IntN(5) {
			at := random.IntN(len(after))
			switch random.IntN(4) {
			case 0:
				after = slices.Delete(after, at, min(at+random.IntN(4), len(after)))
			case 1:
				after = slices.Insert(after, at, "\n")
			case 2:
				after = slices.Insert(after, at, after[random.IntN(len(after)):][:1]...)
			default:
				after[at] = "new = 1\n"
			}
		}
		compareDiffs(t, strings.Join(before, ""), strings.Join(after, ""))
		if t.Failed() {
			return
		}
	}
}
