package args

import (
	"slices"
	"strings"

	"gpustack/host"
)

// rooted matches the commands about a machine. Others that have --root are about a cloud.
var rooted = host.LazyRegexp(`\bgpustack (host (scan|check|prepare|bind|release|guests|snapshot)|` +
	`nova (check|configure)|rdma (scan|check|prepare|test)|container (check|prepare|test)|repair-migration|history|undo)\b`)

// Below adds --root, with its value root, to a command about the same machine: without it, the
// command would look at this one, or change it.
func Below(c host.Command, root string) host.Command {
	if root == "" || root == "/" || c.IsElsewhere() || c.HasFlag("root") || !rooted().MatchString("gpustack "+c.Name()) {
		return c
	}
	return c.At("root", root)
}

// AtRoot adds --root, with its value root, to the commands in hints, remedies and messages, one a
// line: they are for the same machine, and without --root they would look at this one, or change
// it. Lines that have it remain as they are, and so do those about documents, which come from other
// machines, and help.
func AtRoot(text, root string) string {
	if root == "" || root == "/" {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !slices.ContainsFunc([]string{" --root ", " -o json", " --help"}, func(s string) bool { return strings.Contains(line, s) }) {
			lines[i] = rooted().ReplaceAllStringFunc(line, func(command string) string { return command + " --root " + host.ShellWord(root) })
		}
	}
	return strings.Join(lines, "\n")
}
