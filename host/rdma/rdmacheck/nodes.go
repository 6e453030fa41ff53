package rdmacheck

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// The permissions that devtmpfs gives nodes by itself. Another program's udev rule has changed what
// differs (Linux, drivers/infiniband/core: uverbs_main.c, ucma.c and user_mad.c).
const (
	modeForAll  = 0o666
	modeForRoot = 0o600
	othersMay   = 0o006
)

// nodes checks the device nodes of adapters: present, with the kernel's numbers, for all users or
// for root only.
func (v view) nodes() []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
	}
	var findings []host.Finding
	checked := 0
	judge := func(n *rdma.Node, missing, denied string) {
		if n != nil {
			checked++
			findings = append(findings, judgeNode(*n, missing, denied)...)
		}
	}
	noUMAD := `fabric tools fail: "can't open UMAD port ((null):0)", "./libibnetdisc/ibnetdisc.c:802; can't open MAD port ((null):0)" (ibhosts)`
	noVerbs := `programs do not see the adapter: "No IB devices found" (ibv_devinfo), "No RDMA devices were detected" (rping)`
	for _, a := range v.Stack.Value.Adapters {
		if a.Name != "" && a.Verbs == nil && v.Stack.Value.VerbsABI != nil { // else a check of modules fails
			findings = append(findings, host.Finding{
				Status: host.Fail, File: uverbsDir, Seen: title(a) + " has no uverbs device", Effect: noVerbs,
				Remedy: host.Plain("the kernel log says why: journalctl -k --grep 'uverbs|infiniband'"),
			})
		}
		judge(a.Verbs, noVerbs,
			`programs of ordinary users, and containers whose device cgroup does not have it, cannot open the adapter: "Failed to open device"`)
		for _, p := range a.Ports {
			judge(p.UMAD, noUMAD, "")
			judge(p.ISSM, "no subnet manager can run on this port", "")
		}
	}
	judge(v.Stack.Value.CM, `connections by address fail: "failed to create RDMA CM event channel: No such file or directory"`,
		`connections by address fail for ordinary users: "failed to create RDMA CM event channel: No such file or directory"`)
	if findings == nil && checked == 0 {
		return checklist.NA("no device nodes, as modules or adapters are missing")
	}
	return checklist.OrPass(findings, "%s as the kernel makes them", host.Numbered(checked, "device node"))
}

// judgeNode judges one node: missing is the effect of its absence, denied that of permissions that
// are too narrow, "" for a node that must not be for all users.
func judgeNode(n rdma.Node, missing, denied string) []host.Finding {
	file := rdma.NodesDir + "/" + n.Name
	f := host.Finding{Status: host.Fail, File: file}
	switch numbers := fmt.Sprintf("%d:%d", n.Major, n.Minor); {
	case n.File == nil:
		f.Seen, f.Effect = file+" is missing", missing
		mode := modeForAll
		if denied == "" {
			mode = modeForRoot
		}
		f.Remedy = host.Textf("udevadm trigger --subsystem-match=infiniband_verbs --subsystem-match=infiniband_mad --subsystem-match=misc; "+
			"or: mknod -m %o %s c %d %d", mode, file, n.Major, n.Minor)
	case n.File.Major != n.Major || n.File.Minor != n.Minor:
		f.Seen = fmt.Sprintf("%s has the numbers %d:%d, but the kernel's are %s", file, n.File.Major, n.File.Minor, numbers)
		f.Effect = "programs open another device, or none: numbers follow the order in which adapters appear"
		f.Remedy = host.Textf("rm %s && mknod -m %o %s c %d %d", file, n.File.Mode, file, n.Major, n.Minor)
	case denied != "" && n.File.Mode&modeForAll != modeForAll:
		f.Status, f.Effect = host.Warn, denied
		f.Seen = fmt.Sprintf("%s has mode %04o instead of %04o", file, n.File.Mode, modeForAll)
		f.Remedy = host.Textf("remove the udev rule that sets it: grep -rl infiniband /etc/udev/rules.d; until the next boot: chmod %04o %s", modeForAll, file)
	case denied == "" && n.File.Mode&othersMay != 0:
		f.Status = host.Warn
		f.Seen = fmt.Sprintf("%s has mode %04o: all users can manage the fabric through it", file, n.File.Mode)
		f.Effect = "every user and container with this node can reconfigure switches and adapters of the fabric"
		f.Remedy = host.Textf("remove the udev rule that sets it: grep -rl umad /etc/udev/rules.d; until the next boot: chmod %04o %s", modeForRoot, file)
	default:
		return nil
	}
	return []host.Finding{f}
}
