package containercheck

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/nvidia"
)

// makeNodes is the remedy of a node that is missing.
func (v view) makeNodes(file string) host.Text {
	minor, _ := container.MinorOf(file) // 0 for a node that all GPUs have
	switch {
	case v.Driver.Value.OfContainer():
		return v.install("")
	case !v.Systemd:
		return host.Textf("nvidia-modprobe -u -c %d, at every boot", minor)
	}
	return host.Textf("nvidia-modprobe -u -c %d, at every boot; %s makes it a step of gpustack-boot.service", minor, v.prepare())
}

// nodes checks the device nodes: present, with the numbers of /proc/devices, for all users, and
// none of a GPU that was unbound. devtmpfs makes none of them: NVIDIA's programs do at their first
// use by root, and leave them when a GPU is unbound or a module is loaded again with another major.
func (v view) nodes() []host.Finding {
	if why := v.noDriver(); why != nil {
		return why
	}
	d := v.Driver.Value
	if d.Loaded == nil {
		return checklist.NA("NVIDIA's kernel module is not loaded; a node alone proves nothing, because its libraries make /dev/nvidiactl without a driver")
	}
	var findings []host.Finding
	fail := func(file, seen, effect string, remedy host.Text) {
		findings = append(findings, host.Finding{Status: host.Fail, File: file, Seen: seen, Effect: effect, Remedy: remedy})
	}
	minors := host.Map(host.Filter(d.GPUs, func(g nvidia.GPU) bool { return g.Minor != nil }), func(g nvidia.GPU) int { return *g.Minor })
	wanted := nvidia.Nodes(minors...)
	for _, file := range wanted {
		node := d.Node(file)
		switch _, _, known := d.Numbers(file); {
		case !known: // its module is not loaded
			if file == nvidia.UVMNode {
				fail("/proc/devices", "module nvidia-uvm is not loaded: /proc/devices has no nvidia-uvm", "CUDA does not start in containers: "+unknownError, v.makeNodes(file))
			}
		case node == nil && file == nvidia.UVMNode+"-tools": // of profilers and debuggers
			findings = append(findings, host.Finding{
				Status: host.Warn, File: file, Seen: file + " is missing", Effect: "profilers and debuggers do not work in containers; a spec that names it does not resolve",
				Remedy: v.makeNodes(file),
			})
		case node == nil:
			fail(file, file+" is missing",
				fmt.Sprintf(`containers whose spec names it do not start: "failed to stat CDI host device "%s": no such file or directory"; without it CUDA reports %s`,
					file, lacking(file)), v.makeNodes(file))
		case node.Mode&0o006 != 0o006:
			findings = append(findings, host.Finding{
				Status: host.Warn, File: file, Seen: fmt.Sprintf("%s has mode %04o", file, uint32(node.Mode)&0o7777),
				Effect: "users other than root cannot open it in containers", Remedy: host.Plain("set NVreg_DeviceFileMode=0666 of module nvidia in /etc/modprobe.d, and reboot"),
			})
		}
	}
	for _, n := range d.Stale() {
		fail(n.Path, n.String(), "programs open the device of another driver, or none, and the runtime reports no error: "+unknownError,
			host.Textf("rm %s; %s", n.Path, v.makeNodes(n.Path)))
	}
	for _, n := range d.Nodes {
		minor, ok := container.MinorOf(n.Path)
		if !ok || slices.Contains(wanted, n.Path) {
			continue
		}
		if slices.ContainsFunc(d.GPUs, func(g nvidia.GPU) bool { return g.Minor == nil || *g.Minor == minor }) {
			continue // the node of a GPU, or of one whose number is not known
		}
		findings = append(findings, host.Finding{
			Status: host.Warn, File: n.Path, Seen: fmt.Sprintf("%s belongs to no GPU that is bound to the driver", n.Path),
			Effect: `a container that gets it starts with a node that cannot be opened: "No such device or address"`,
			Remedy: host.Plain("rm " + n.Path + ", and generate specs that name it again"),
		})
	}
	return checklist.OrPass(findings, "%s with the driver's numbers", host.Numbered(len(wanted), "device node"))
}

// lacking returns the message of CUDA without a node.
func lacking(file string) string {
	if file == nvidia.UVMNode {
		return unknownError
	}
	return noDevice
}
