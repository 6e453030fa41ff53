package containercheck

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/nvidia"
	"gpustack/host/rdma"
)

// specs reports what is wrong with the CDI specs in /etc/cdi and /run/cdi, with file, line, field
// and reason, and which nodes, libraries and programs of hooks that they name are missing. podman
// has one line for all of them.
func (v view) specs() []host.Finding {
	all := v.Specs
	findings := host.Map(all.All(), v.specFinding)
	if len(all.Files) == 0 && findings == nil {
		return checklist.NA("no CDI spec in /etc/cdi or /run/cdi")
	}
	usable := 0
	for _, d := range all.Devices() {
		if d.File != "" {
			usable++
		}
	}
	return checklist.OrPass(findings, "%s with %s", host.Numbered(len(all.Files), "spec"), host.Numbered(usable, "device"))
}

// specFinding is the finding of a problem of a spec.
func (v view) specFinding(p cdi.Problem) host.Finding {
	f := host.Finding{Status: p.Status, File: p.File, Seen: p.Reason}
	if p.Field != "" {
		f.Seen = p.Field + ": " + p.Reason
	}
	library := ""
	if p.Library != "" && !strings.Contains(p.Reason, p.Library) {
		library = `, the CDI library: "` + p.Library + `"`
	}
	name := p.Device
	if name == "" {
		name = "NAME"
	}
	unresolvable := fmt.Sprintf(`"Error: setting up CDI devices: unresolvable CDI devices %s"`, name)
	switch p.Kind {
	case cdi.Unreadable:
		f.Effect, f.Remedy = "what the spec gives to containers is unknown", host.Plain("remove what cannot be read, or put a readable one in its place")
		if p.Denied {
			f.Remedy = host.AsRoot()
		}
		if p.Skipped {
			f.Effect = "runtimes that cannot read it either skip it: " + unresolvable
		}
	case cdi.Ignored:
		f.Effect, f.Remedy = "runtimes skip it silently: "+unresolvable, host.Plain("rename it to .yaml, or move it to /etc/cdi")
	case cdi.Malformed, cdi.Version:
		f.Effect = "podman reports " + unresolvable + library
		f.Remedy = host.Textf("correct the field, or have its program write the file again: nvidia-ctk cdi generate, %s", v.prepare())
		if !p.Skipped {
			f.Effect = "some runtimes do not accept it" + library
		}
	case cdi.Conflict:
		f.Effect = "runtimes remove the device altogether: " + unresolvable + library
		f.Remedy = host.Plain("keep one of the files, or give them different kinds")
	case cdi.Shadowed:
		f.Effect = "containers get the device of the other file"
		f.Remedy = host.Plain("remove one of the two files")
	case cdi.Missing:
		f.Effect = "containers with the device do not start" + strings.TrimPrefix(library, ", the CDI library")
		f.Remedy = host.Plain("generate the spec again after every change of the driver")
		if _, isGPU := container.MinorOf(p.Path); isGPU || slices.Contains(nvidia.Nodes(), p.Path) { // nvidia-modprobe makes no other
			f.Remedy = host.Textf("%s; a node that is missing: %s", f.Remedy, v.makeNodes(p.Path))
		} else if path.Dir(p.Path) == rdma.NodesDir {
			f.Remedy = host.Textf("%s; a node that is missing: modprobe -a ib_uverbs rdma_ucm; '%s' shows what else is missing", f.Remedy, host.NewCommand("rdma check"))
		}
	case cdi.Private:
		f.Effect, f.Remedy = "rootless podman skips it silently: "+unresolvable, host.Plain("chmod 644 "+p.File)
	case cdi.Stale:
		f.Effect = "a container starts without an error and gets another device: " + unknownError
		f.Remedy = host.Textf("generate the spec again, best without major and minor, as %s does", v.prepare())
	}
	return f
}
