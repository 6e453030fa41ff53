package change

import (
	"bytes"
	"fmt"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
)

// Past is the change of one file that an entry records, as a diff shows it.
type Past struct {
	Name   string      `json:"file"`   // the path on the machine
	Action edit.Action `json:"action"` // what happened to the file
	// Diff is a unified diff with secrets masked. If note is not "", it has neither context nor
	// places: the lines that the change replaced, or the values that it set.
	Diff string `json:"diff"`
	Note string `json:"note"` // why the diff is not complete; "" if it is
}

// Past returns the changes of the files of entries[i], where entries are all of the journal. The
// journal contains only what leads from the content after a change to the content before it: where
// a file is, or leads through later entries, to what the change left, the diff is complete.
// Otherwise it has what is recorded: the values, or the replaced lines.
//
// A file that cannot be read now does not hide what is recorded.
func (k Files) Past(entries []Entry, i int) []Past {
	all := []Past{}
	for _, f := range entries[i].Files {
		now, err := edit.Read(k.Root, f.Name)
		p := k.past(f, now, entries[i], entries[i+1:])
		if err != nil && p.Note != "" {
			p.Note = err.Error() + ": only what the journal records is shown"
		}
		all = append(all, p)
	}
	return all
}

// past returns the change of a file, which is now as given and which later entries may have
// changed too.
func (k Files) past(f File, now *edit.File, entry Entry, later []Entry) Past {
	c := edit.Change{Name: f.Name}
	if f.Secret {
		c.Shown = k.Masked
	}
	records := host.FlatMap(later, func(e Entry) []File { return host.Filter(e.Files, func(l File) bool { return l.Name == f.Name }) })
	if after, ok := f.Then(now, records); ok {
		if before, ok := f.Previous(after); ok {
			c.Before, c.After = before, after
			if after != nil {
				c.After = &edit.File{Content: after.Content, Meta: f.After.Meta}
			}
			return Past{f.Name, c.Action(), c.Diff(), ""}
		}
	}
	p := Past{Name: f.Name, Action: edit.Update}
	switch {
	case f.Before == nil:
		p.Action = edit.Create
	case f.After == nil:
		p.Action = edit.Delete
	}
	since := "the file was changed since"
	switch {
	case entry.Status == Undone:
		since = "the change is undone"
	case entry.IsOpen() && f.Before.Is(now):
		since = "the change of the file is not made"
	case now == nil:
		since = "the file was removed since"
	}
	removed, added := k.values(f)
	p.Note = since + ": only the values that the change set are shown"
	if len(removed)+len(added) == 0 {
		removed = k.replaced(f)
		p.Note = since + ", and the journal does not record the lines that the change added"
	}
	p.Diff = hunk(f, removed, added)
	return p
}

// values returns the values of a change that is recorded by value, as lines.
func (k Files) values(f File) (removed, added []string) {
	if f.Meaning == nil {
		return nil, nil
	}
	lines := func(name string, values []string) (lines []string) {
		// The name of an option is "[section] key"; without a key, the values are lines of the section.
		key := strings.LastIndex(name, " ") + 1
		for _, v := range values {
			switch {
			case key > 0 && name[key:] == "" && (strings.TrimSpace(v) == "" || v[0] == '['):
				continue // other values name the section
			case key > 0 && name[key:] == "":
			case strings.HasPrefix(v, name): // a kernel argument contains its name
			default:
				v = name[key:] + " = " + v
			}
			if f.Secret && k.Masked != nil {
				v = string(k.Masked([]byte(v)))
			}
			if name[key:] != "" {
				v = name[:key] + v
			}
			lines = append(lines, v)
		}
		return lines
	}
	for _, v := range f.Meaning.Values {
		removed = append(removed, lines(v.Name, v.Before)...)
		added = append(added, lines(v.Name, v.After)...)
	}
	return removed, added
}

// replaced returns the lines that a change replaced or removed.
func (k Files) replaced(f File) (lines []string) {
	for _, piece := range f.Back {
		text := piece.Text
		if f.Secret && k.Masked != nil {
			// A piece may begin with a line that continues a secret.
			text = k.Masked(append([]byte("password =\n"), text...))
			_, text, _ = bytes.Cut(text, []byte("\n"))
		}
		for line := range strings.Lines(string(text)) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// hunk returns lines as a diff without their places, "" if there are none.
func hunk(f File, removed, added []string) string {
	if len(removed)+len(added) == 0 {
		return ""
	}
	from, to := f.Name, f.Name
	if f.Before == nil {
		from = "/dev/null"
	}
	if f.After == nil {
		to = "/dev/null"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", from, to)
	for _, line := range removed {
		fmt.Fprintf(&b, "-%s\n", line)
	}
	for _, line := range added {
		fmt.Fprintf(&b, "+%s\n", line)
	}
	return b.String()
}
