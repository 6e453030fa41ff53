package edit

import (
	"slices"
	"strings"
)

// KeepWording returns a plan that leaves the files of gpustack's which differ from the planned ones
// in their wording alone: those that an earlier release has written. To rewrite them would
// regenerate every initramfs. recorded reports whether gpustack has recorded that it wrote the file
// with this name and hash: a file that was edited since is not among them, and is rewritten.
func (p Plan) KeepWording(recorded func(name, hash string) bool) Plan {
	kept := slices.Clone(p)
	for i, c := range kept {
		if c.Before == nil || c.After == nil || !recorded(c.Name, c.Before.Hash()) ||
			!SameButWording(string(c.Before.Content), string(c.After.Content)) {
			continue
		}
		after := *c.After
		after.Content, after.Xattrs = c.Before.Content, c.Before.Xattrs
		kept[i].After = &after
	}
	return kept
}

// SameButWording reports whether two texts of a file of gpustack's differ at most in comments. A
// comment that begins with a path is not one of them: it states a fact of the machine.
func SameButWording(a, b string) bool {
	return withoutWording(a) == withoutWording(b)
}

// withoutWording returns a text without the lines that are comments. In all files of gpustack's
// they begin with "#", which the interpreter of a script does too.
func withoutWording(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		bare := strings.TrimLeft(line, " \t")
		if !strings.HasPrefix(bare, "#") || strings.HasPrefix(bare, "#!") || strings.HasPrefix(bare, "# /") {
			b.WriteString(line)
		}
	}
	return b.String()
}
