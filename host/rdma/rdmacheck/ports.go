package rdmacheck

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// ports checks that every port is ACTIVE, and names the cause if it is not; it only warns if
// another port of the machine is ACTIVE and neither a record nor the network configuration needs
// this one.
func (v view) ports() []host.Finding {
	active := 0
	findings := v.eachPort(func(a rdma.Adapter, p rdma.Port) []host.Finding {
		if isActive(p) {
			active++
			return nil
		}
		return []host.Finding{v.inactive(a, p)}
	})
	if findings == nil && active == 0 {
		return checklist.NA("no port on the host")
	}
	return checklist.OrPass(findings, "%s ACTIVE", host.Numbered(active, "port"))
}

// isActive reports whether a port is active.
func isActive(p rdma.Port) bool { return p.State == "ACTIVE" || p.State == "ACTIVE_DEFER" }

// inactive returns the finding of a port that is not active.
func (v view) inactive(a rdma.Adapter, p rdma.Port) host.Finding {
	name := portTitle(a, p)
	f := host.Finding{Status: host.Fail, File: portFile(a, p, "state"), Effect: "nothing can be sent or received through this port"}
	seen := fmt.Sprintf("%s is %s (%s)", name, p.State, p.PhysState)
	infiniBand := p.IsInfiniBand()
	spare := false
	if p.State == "DOWN" && v.unneeded(a) {
		unread := v.unread()
		if spare = unread == nil; !spare {
			f.Effect += "; it may be needed: " + inOneLine(unread)
		}
	}
	switch identity := v.ofVF(a); {
	case p.State == "":
		f.Status, f.Seen, f.Effect = host.NA, name+": the state is not shown by the kernel", ""
	case a.ManagesNVSwitches():
		f.Status, f.Seen = host.Warn, seen+": it belongs to NVIDIA's Fabric Manager, whose subnet manager configures it"
		f.Effect, f.Remedy = "CUDA programs fail on this host until the NVSwitches are configured", "systemctl status nvidia-fabricmanager"
	case spare:
		f.Status, f.Seen = host.Warn, seen+": nothing is connected, or it is switched off; another port of the machine is ACTIVE"
		f.Effect = "this port carries nothing, and no record needs it"
		f.Remedy = "connect it, or leave it as it is"
	case identity.policyDown:
		f.Seen = seen + ": the policy of this virtual function is Down"
		f.Remedy = host.Textf("ip link set IPOIB_INTERFACE vf %d state auto, with the IPoIB interface of %s; or %s, which sets it at every boot",
			identity.index, identity.pf, host.NewCommand("rdma prepare"))
	case infiniBand && a.IsVF() && (a.NodeGUID == nil || a.NodeGUID.IsZero() || p.GUID != nil && p.GUID.IsZero()):
		f.Seen = seen + ": this virtual function has no GUID"
		f.Remedy = host.Textf("%s sets stable GUIDs at every boot; then unbind and bind the function",
			host.NewCommand("rdma prepare").Flag("device", identity.pf).Flag("vfs", "N"))
	case p.State == "DOWN" && p.PhysState == "Disabled" && infiniBand:
		f.Seen = seen + ": the port is disabled"
		f.Remedy = host.Textf("ibportstate -C %s -P %d -D 0 enable", a.Name, p.Number)
	case p.State == "DOWN" && infiniBand:
		f.Seen = seen + ": no partner: no cable, or the other end is off"
		if p.PhysState != "Polling" {
			f.Seen = seen + ": the link does not train"
		}
		f.Remedy = "check cable and transceiver at both ends, and that the switch port is enabled: iblinkinfo on a host of the fabric"
	case p.State == "DOWN" && p.LinkLayer == rdma.LinkEthernet:
		f.Seen = seen + ": the network interface has no link or is down"
		f.Remedy = host.Text("ip link set " + interfaceOf(a) + " up; if it remains DOWN, check cable, transceiver and switch port: ethtool " + interfaceOf(a))
	case p.State == "INIT" && infiniBand && p.SMLID != nil && *p.SMLID == 0:
		f.Seen = seen + " with SM LID 0: no subnet manager has configured it"
		f.Remedy = "start a subnet manager in the fabric: on a managed switch, or on one host: apt-get install opensm, systemctl start opensm"
	case p.State == "INIT" && infiniBand:
		f.Seen = seen + ": the subnet manager has not activated it"
		f.Remedy = host.Text("see the log of the subnet manager, whose LID is in sm_lid: sminfo -C " + a.Name)
	case p.State == "ARMED":
		f.Seen = seen + ": the subnet manager stopped before it made the port ACTIVE"
		f.Remedy = "restart the subnet manager; its log names the ports that it cannot configure"
	default:
		f.Seen = seen
		f.Remedy = host.Text("ibstat " + a.Name + "; the kernel log may say more: journalctl -k")
	}
	return f
}

// unneeded reports whether no record that can be read needs a port of an adapter that is down, and
// another port of the machine is active. What is recorded for a function with two ports is met by
// one of them.
func (v view) unneeded(a rdma.Adapter) bool {
	if a.Address == nil || a.IsVF() {
		return false
	}
	recorded := v.forContainers(a) || v.Record.Value.At(*a.Address) != nil
	if recorded && !slices.ContainsFunc(a.Ports, isActive) {
		return false
	}
	return slices.ContainsFunc(v.Stack.Value.Adapters, func(other rdma.Adapter) bool {
		return other.Address != nil && !other.IsVF() && !other.ManagesNVSwitches() && slices.ContainsFunc(other.Ports, isActive)
	})
}

// unread returns the error of records that cannot be read, and so may need any port.
func (v view) unread() error {
	named := func(file string, err error) error {
		if err == nil {
			return nil
		}
		return errors.New(checklist.WithFile(file, err))
	}
	return errors.Join(named(v.Record.File, v.Record.Err), named(v.Containers.File, v.Containers.Err))
}

// inOneLine returns the text of errors that are joined.
func inOneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// vfIdentity is what the physical function of a virtual one shows of it.
type vfIdentity struct {
	pf         string // its address
	index      int
	policyDown bool
}

// ofVF returns the identity of an adapter that is a virtual function.
func (v view) ofVF(a rdma.Adapter) vfIdentity {
	id := vfIdentity{pf: "ADDRESS"}
	if !a.IsVF() {
		return id
	}
	if pf := a.Function.SRIOV.PF; pf != nil {
		id.pf = pf.String()
	}
	for _, owner := range v.Stack.Value.Adapters {
		for _, f := range owner.VFs {
			if f.Address == *a.Address {
				id.index, id.policyDown = f.Index, f.Policy == "Down"
			}
		}
	}
	return id
}

// interfaceOf returns a network interface of an adapter.
func interfaceOf(a rdma.Adapter) string {
	switch {
	case a.Parent != "":
		return a.Parent
	case len(a.Netdevs) > 0:
		return a.Netdevs[0]
	}
	return "INTERFACE"
}
