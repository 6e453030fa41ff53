package containercheck

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// devices checks that devices which specs name by PCI address or UUID have the node of that device,
// and that libraries have the version of the loaded module. A node has another number after a card
// was added.
func (v view) devices() []host.Finding {
	switch {
	case !v.Driver.Seen():
		return checklist.Unread(v.Driver.File, v.Driver.Err)
	}
	var findings []host.Finding
	compared := 0
	for _, g := range v.given {
		of, n := v.belong(g)
		findings, compared = append(findings, of...), compared+n
	}
	findings = append(findings, v.mounted()...)
	findings = append(findings, v.apart()...)
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

// apart finds a spec that gives containers an adapter while each network namespace has its own.
func (v view) apart() []host.Finding {
	i := slices.IndexFunc(v.given, func(g container.Given) bool {
		return slices.ContainsFunc(g.Nodes, func(node string) bool { return path.Dir(node) == rdma.NodesDir })
	})
	if mode := v.Stack.Value.Netns; i < 0 || mode == nil || *mode != rdma.NetnsExclusive {
		return nil
	}
	return []host.Finding{{Status: host.Warn, File: v.given[i].File, Seen: v.given[i].Name + " is of an adapter, and network namespaces are exclusive",
		Effect: `programs in containers cannot open it: "Failed to open device"`, Remedy: host.Plain(rdma.OwnNamespace)}}
}

// isForGPU reports whether a device of a spec has a GPU.
func isForGPU(g container.Given) bool { return g.GPU }

// belong compares the nodes that a container gets by a device which is named by PCI address or UUID
// with that of the GPU or adapter. compared is how many nodes there were to compare.
func (v view) belong(g container.Given) (findings []host.Finding, compared int) {
	a, byAddress := addressOf(g.Device)
	want, isKnown := "", byAddress
	for _, shown := range v.Driver.Value.GPUs {
		if byAddress && shown.Address == a || shown.UUID != nil && *shown.UUID == g.Device {
			if shown.Minor == nil {
				return nil, 0
			}
			a, want, isKnown = shown.Address, fmt.Sprintf("/dev/nvidia%d", *shown.Minor), true
		}
	}
	if adapter := v.Stack.Value.At(a); adapter != nil && adapter.Verbs != nil {
		want = path.Join(rdma.NodesDir, adapter.Verbs.Name)
	}
	for _, node := range g.Nodes {
		_, isGPU := container.MinorOf(node)
		if !isKnown || !isGPU && !v.Stack.Seen() {
			continue
		}
		compared++
		f := host.Finding{Status: host.Fail, File: g.File}
		switch {
		case node == want:
			continue
		case want != "":
			f.Seen = fmt.Sprintf("%s names %s, but the node of %s is %s", g.Name, node, a, want)
			f.Effect = "containers get another adapter than they request, without an error"
			if isGPU {
				f.Effect = "containers get another GPU than they request, without an error"
			}
			switch {
			case container.IsSpec(g.File):
				f.Remedy = v.rewrite()
			case strings.HasPrefix(g.Name, "nvidia.com/gpu="):
				f.Remedy = host.Plain("write the spec again: nvidia-ctk cdi generate --output=" + g.File)
			default:
				f.Remedy = host.Plain("have the program that writes " + g.File + " write it again")
			}
		case isGPU:
			f.Seen = fmt.Sprintf("%s names %s, but %s is not bound to NVIDIA's driver", g.Name, node, a)
			f.Effect = `containers do not start, or get the node of another GPU or one that cannot be opened: "No such device or address"`
			f.Remedy = host.Textf("%s, or return the GPU to its driver: %s", v.without(a, g.File), host.NewCommand("host release").Flag("device", a.String()))
		default:
			f.Seen = fmt.Sprintf("%s names %s, but %s has no RDMA device", g.Name, node, a)
			f.Effect = `containers do not start, or programs in them see no adapter: "No IB devices found" (ibv_devinfo)`
			f.Remedy = host.Textf("%s; or %s", host.NewCommand("rdma check"), v.without(a, g.File))
		}
		findings = append(findings, f)
	}
	return findings, compared
}

// without returns how a function leaves the spec that a file has.
func (v view) without(a pci.Address, file string) host.Text {
	if v.isForContainers(a) {
		return host.NewCommand("container prepare").Flag("remove", a.String()).Text()
	}
	return host.Plain("remove its device from " + file)
}

// addressOf returns the address by which a device is named, also one with its umad node.
func addressOf(device string) (a pci.Address, ok bool) {
	a, err := pci.ParseAddress(strings.TrimSuffix(device, "-umad"))
	return a, err == nil
}

// mounted finds specs that mount libraries of another version than the module's: those that
// nvidia-ctk wrote before an upgrade, one finding for each file.
func (v view) mounted() (findings []host.Finding) {
	for _, g := range v.given {
		if g.Other == "" || slices.ContainsFunc(findings, func(f host.Finding) bool { return f.File == g.File }) {
			continue
		}
		remedy := host.Plain("reboot if the driver was upgraded, then write the spec again: nvidia-ctk cdi generate --output=" + g.File)
		if container.IsSpec(g.File) {
			remedy = host.Textf("reboot if the driver was upgraded; if not: %s, or systemctl restart gpustack-boot.service for a spec that each boot writes",
				v.prepare())
		}
		findings = append(findings, host.Finding{
			Status: host.Fail, File: g.File, Seen: fmt.Sprintf("%s: containers get %s, the loaded module is %s", g.Name, g.Other, v.Driver.Value.Loaded.Version),
			Effect: "programs in containers fail: " + versionsDiffer + "; " + kernelMismatch,
			Remedy: remedy,
		})
	}
	return findings
}
