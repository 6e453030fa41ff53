package edit

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"
	"github.com/aymanbagabas/go-udiff/lcs"

	"gpustack/host"
)

// Lines returns the edits that turn one text into another, all at line boundaries. Of a large file
// with few changes only the lines around them are compared.
func Lines(before, after []byte) []udiff.Edit {
	w := newWindow(before, after)
	edits := w.edits()
	for i := range edits {
		edits[i].Start += w.start
		edits[i].End += w.start
	}
	return edits
}

// unified returns a unified diff of two texts.
func unified(from, to string, before, after []byte) string {
	w := newWindow(before, after)
	text, err := udiff.ToUnified(from, to, w.before, w.edits(), udiff.DefaultContextLines)
	if err != nil { // the edits are not those of the text
		return udiff.Unified(from, to, string(before), string(after))
	}
	skipped := bytes.Count(before[:w.start], []byte("\n"))
	if skipped == 0 || text == "" {
		return text
	}
	return hunkHeader().ReplaceAllStringFunc(text, func(header string) string {
		at := hunkHeader().FindStringSubmatch(header)
		return fmt.Sprintf("@@ -%s%s +%s%s @@", add(at[1], skipped), at[2], add(at[3], skipped), at[4])
	})
}

// edits returns the edits at line boundaries that turn one text of the window into the other.
func (w window) edits() []udiff.Edit {
	before, after := splitLines(w.before), splitLines(w.after)
	var edits []udiff.Edit
	line, offset := 0, 0
	to := func(n int) int {
		for ; line < n; line++ {
			offset += len(before[line])
		}
		return offset
	}
	for _, d := range lcs.DiffLines(before, after) {
		edits = append(edits, udiff.Edit{Start: to(d.Start), End: to(d.End), New: strings.Join(after[d.ReplStart:d.ReplEnd], "")})
	}
	return edits
}

func splitLines(text string) []string {
	lines := make([]string, 0, strings.Count(text, "\n")+1)
	return slices.AppendSeq(lines, strings.Lines(text))
}

// hunkHeader matches the line with which a hunk begins. Other lines of a hunk begin with another
// character (POSIX, diff, "Diff -u Output Format").
var hunkHeader = host.LazyRegexp(`(?m)^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@$`)

func add(number string, n int) string {
	i, err := strconv.Atoi(number)
	if err != nil {
		return number // not a number that fits: it was written from one
	}
	return strconv.Itoa(i + n)
}

// window is the part of two texts that differs, with lines before and after it.
type window struct {
	start         int // in both texts
	before, after string
}

// margin is the number of equal lines around the first and the last difference that are compared
// too: more than a diff shows, and enough that equal lines next to a change are attributed as in
// the whole text.
const margin = 64

func newWindow(before, after []byte) window {
	start := commonPrefix(before, after)
	start = bytes.LastIndexByte(before[:start], '\n') + 1
	end := commonSuffix(before[start:], after[start:])
	// The common end begins after a line feed of both texts.
	if at := bytes.IndexByte(before[len(before)-end:], '\n'); at >= 0 {
		end -= at + 1
	} else {
		end = 0
	}
	for range margin {
		if start == 0 {
			break
		}
		start = bytes.LastIndexByte(before[:start-1], '\n') + 1
	}
	for range margin {
		if end == 0 {
			break
		}
		at := bytes.IndexByte(before[len(before)-end:], '\n')
		if at < 0 {
			end = 0
			break
		}
		end -= at + 1
	}
	return window{start, string(before[start : len(before)-end]), string(after[start : len(after)-end])}
}

// chunk is the number of bytes that are compared at once.
const chunk = 4096

func commonPrefix(a, b []byte) int {
	n, limit := 0, min(len(a), len(b))
	for n+chunk <= limit && bytes.Equal(a[n:n+chunk], b[n:n+chunk]) {
		n += chunk
	}
	for n < limit && a[n] == b[n] {
		n++
	}
	return n
}

func commonSuffix(a, b []byte) int {
	n, limit := 0, min(len(a), len(b))
	for n+chunk <= limit && bytes.Equal(a[len(a)-n-chunk:len(a)-n], b[len(b)-n-chunk:len(b)-n]) {
		n += chunk
	}
	for n < limit && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
