package cdi

import (
	"strings"

	"gpustack/host"
)

// Problem is one thing that is wrong with a spec, a file beside specs, or a folder of specs.
// Runtimes print one line for most of them: "unresolvable CDI devices NAME".
type Problem struct {
	File    string // the path on the machine
	Field   string // as in "devices[0].containerEdits.deviceNodes[1].path"; "" where no field is concerned
	Device  string // the qualified name of the device concerned, or ""
	Kind    Kind
	Status  host.Status // Fail: containers do not start, or get the wrong device; Warn: a runtime may differ
	Path    string      // that is missing on the machine, "" for another problem
	Reason  string      // what is wrong, without the file and the field
	Library string      // what the CDI library or the runtime reports, the text users search for; "" where it is silent
	Skipped bool        // runtimes skip the whole file, and none of its devices can be resolved
	Denied  bool        // of Unreadable: this process lacks the permission, which root has
}

// Kind is a class of problems.
type Kind string

// Kinds of problems.
const (
	Unreadable Kind = "unreadable" // a folder, a file, or a path that a spec names cannot be read
	Ignored    Kind = "ignored"    // runtimes do not read the file, or a part of it, and say nothing
	Private    Kind = "private"    // other users cannot read the file
	Malformed  Kind = "malformed"  // not YAML or JSON, an unknown key, or a value that the library refuses
	Version    Kind = "version"    // cdiVersion is unknown, too low, or too high for older runtimes
	Conflict   Kind = "conflict"   // a name appears twice in one folder: runtimes resolve neither
	Shadowed   Kind = "shadowed"   // a file of the later folder takes the device's place
	Missing    Kind = "missing"    // a device node, a mount's source or a hook's program does not exist
	Stale      Kind = "stale"      // the numbers of a device node are not the node's: the wrong device
)

// String returns the problem as one line: file, field, reason, and what the library reports.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Reason)
	if p.Library != "" && !strings.Contains(p.Reason, p.Library) {
		b.WriteString(" (" + p.Library + ")")
	}
	return b.String()
}
