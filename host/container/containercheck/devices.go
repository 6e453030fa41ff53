package containercheck

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
)

// versioned matches the file name of a library with its version.
var versioned = host.LazyRegexp(`^lib(cuda|nvidia-[a-z0-9-]+|nvcuvid|cudadebugger)\.so\.(\d+\.\d+(?:\.\d+)?)$`)

// devices checks that devices which specs name by PCI address or UUID have the node of that device,
// and that libraries have the version of the loaded module. A node has another number after a card
// was added.
func (v view) devices() []host.Finding {
	switch {
	case !v.Specs.Seen():
		return checklist.Unread(v.Specs.File, v.Specs.Err)
	case !v.Driver.Seen():
		return checklist.Unread(v.Driver.File, v.Driver.Err)
	}
	var findings []host.Finding
	compared := 0
	for _, n := range v.namedNodes() {
		if n.device == "" {
			continue
		}
		f, ok := v.belongs(n)
		if ok {
			compared++
		}
		if f != nil {
			findings = append(findings, *f)
		}
	}
	findings = append(findings, v.mounted(versioned())...)
	findings = append(findings, v.lacking()...)
	if findings == nil && compared == 0 {
		return checklist.NA("no spec names a GPU or an adapter by address or UUID")
	}
	return checklist.OrPass(findings, "%s of the GPUs and adapters that specs name", host.Numbered(compared, "node"))
}

// lacking finds what compute on GPUs needs and devices of specs do not give: one finding for each
// part that a file lacks.
func (v view) lacking() (findings []host.Finding) {
	for _, g := range v.given {
		for _, lack := range g.Lacks {
			if slices.ContainsFunc(findings, func(f host.Finding) bool { return f.File == g.File && strings.HasSuffix(f.Seen, ": "+lack.Reason) }) {
				continue
			}
			remedy := host.Textf("generate the spec again, or use the one that '%s' writes", v.prepare())
			if container.IsSpec(g.File) {
				remedy = host.Textf("%s, or systemctl restart gpustack-boot.service for a spec that each boot writes", v.prepare())
			}
			findings = append(findings, host.Finding{Status: lack.Status, File: g.File, Seen: g.Name + ": " + lack.Reason, Effect: lack.Effect, Remedy: remedy})
		}
	}
	return findings
}

// isForGPU reports whether a device of a spec has a GPU.
func isForGPU(g container.Given) bool { return g.GPU }

// belongs compares the node of a device that is named by PCI address or UUID with that of the GPU
// or adapter. It reports whether there was something to compare.
func (v view) belongs(n namedNode) (f *host.Finding, ok bool) {
	address, byAddress := addressOf(n.device)
	fail := func(seen, effect string, remedy host.Text) *host.Finding {
		return &host.Finding{Status: host.Fail, File: n.file, Seen: n.field + ": " + n.title() + " " + seen, Effect: effect, Remedy: remedy}
	}
	if _, isGPU := container.MinorOf(n.path); isGPU {
		var g *nvidia.GPU
		for i := range v.Driver.Value.GPUs {
			shown := &v.Driver.Value.GPUs[i]
			if byAddress && shown.Address == address || shown.UUID != nil && *shown.UUID == n.device {
				g = shown
			}
		}
		switch {
		case g == nil && byAddress:
			return fail(fmt.Sprintf("names %s, but %s is not bound to NVIDIA's driver", n.path, address),
				`containers do not start, or get the node of another GPU or one that cannot be opened: "No such device or address"`,
				host.Textf("%s, or return the GPU to its driver: %s", v.without(address, n.file), host.NewCommand("host release").Flag("device", address.String()))), true
		case g == nil || g.Minor == nil:
			return nil, false
		}
		if want := fmt.Sprintf("/dev/nvidia%d", *g.Minor); path.Clean(n.path) != want {
			return fail(fmt.Sprintf("names %s, but the node of %s is %s", n.path, g.Address, want),
				"containers get another GPU than they request, without an error",
				"write the spec again: systemctl restart gpustack-boot.service, or nvidia-ctk cdi generate"), true
		}
		return nil, true
	}
	if uverbs, isVerbs := strings.CutPrefix(path.Clean(n.path), "/dev/infiniband/"); isVerbs && byAddress && strings.HasPrefix(uverbs, "uverbs") && v.Stack.Seen() {
		for _, a := range v.Stack.Value.Adapters {
			if a.Address == nil || *a.Address != address {
				continue
			}
			if a.Verbs == nil {
				break
			}
			if a.Verbs.Name != uverbs {
				return fail(fmt.Sprintf("names %s, but the node of %s is /dev/infiniband/%s", n.path, address, a.Verbs.Name),
					"containers get another adapter than they request, without an error", "systemctl restart gpustack-boot.service"), true
			}
			return nil, true
		}
		return fail(fmt.Sprintf("names %s, but %s has no RDMA device", n.path, address),
			`containers do not start, or programs in them see no adapter: "No IB devices found" (ibv_devinfo)`,
			host.Textf("%s; or %s", host.NewCommand("rdma check"), v.without(address, n.file))), true
	}
	return nil, false
}

// without returns how a function leaves the spec that a file has.
func (v view) without(a pci.Address, file string) host.Text {
	if v.isForContainers(a) {
		return host.NewCommand("container prepare").Flag("remove", a.String()).Text()
	}
	return host.Text("remove its device from " + file)
}

// addressOf returns the address by which a device is named, also one with its umad node.
func addressOf(device string) (a pci.Address, ok bool) {
	a, err := pci.ParseAddress(strings.TrimSuffix(device, "-umad"))
	return a, err == nil
}

// mounted finds specs that mount libraries of another version than the module's: those that
// nvidia-ctk wrote before an upgrade, one finding for each file.
func (v view) mounted(form *regexp.Regexp) (findings []host.Finding) {
	d := v.Driver.Value
	if d.Loaded == nil {
		return nil
	}
	seen := map[string]bool{}
	v.eachEdit(func(file, field, _, _ string, e *specs.ContainerEdits) {
		for i, m := range e.Mounts {
			if m == nil {
				continue
			}
			version := nvidia.Version("")
			if match := form.FindStringSubmatch(path.Base(m.HostPath)); match != nil {
				version = nvidia.Version(match[2])
			}
			if !differs(version, d.Loaded.Version) || seen[file] {
				continue
			}
			seen[file] = true
			remedy := host.Text("reboot if the driver was upgraded, then write the spec again: nvidia-ctk cdi generate --output=" + file)
			if container.IsSpec(file) {
				remedy = host.Textf("reboot if the driver was upgraded; if not: %s, or systemctl restart gpustack-boot.service for a spec that each boot writes",
					v.prepare())
			}
			findings = append(findings, host.Finding{
				Status: host.Fail, File: file, Seen: fmt.Sprintf("%s.mounts[%d].hostPath: %s is of version %s, the loaded module is %s", field, i, m.HostPath, version, d.Loaded.Version),
				Effect: "programs in containers fail: " + versionsDiffer + "; " + kernelMismatch,
				Remedy: remedy,
			})
		}
	})
	return findings
}
