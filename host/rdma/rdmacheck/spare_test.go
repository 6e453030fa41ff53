package rdmacheck_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/tools/txtar"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/checklist"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma/rdmacheck"
)

// shape lays out a machine of a real shape, with further lines and files. Those that it has already
// are replaced.
func shape(t *testing.T, name, more string) host.Root {
	t.Helper()
	text, err := os.ReadFile("../../../integration/testdata/shapes/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	a, other := txtar.Parse(text), txtar.Parse([]byte(more))
	a.Comment = append(a.Comment, other.Comment...)
	for _, f := range other.Files {
		for i := range a.Files {
			if a.Files[i].Name == f.Name {
				a.Files = append(a.Files[:i], a.Files[i+1:]...)
				break
			}
		}
		a.Files = append(a.Files, f)
	}
	return hosttest.Lay(t, string(txtar.Format(a)))
}

// portFindings returns what the check says of ports that are not ACTIVE, and the verdict.
func portFindings(t *testing.T, root host.Root) ([]host.Finding, checklist.Verdict) {
	t.Helper()
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all, verdict, err := rdmacheck.Verify(rdmacheck.Observe(root, devices, change.Machine(root).Observe(), machine.Look[guard.Running]{}))
	if err != nil {
		t.Fatal(err)
	}
	var found []host.Finding
	for _, f := range all {
		if f.Check == "ports" && f.Status != host.Pass {
			found = append(found, f)
		}
	}
	return found, verdict
}

// asNobody runs a function in a thread without privileges, as users do, or as the user who runs the
// test. The thread ends with it.
func asNobody(t *testing.T, work func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // for good: the thread is of another user
			const keep, nobody = ^uintptr(0), 65534
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, nobody, keep); errno != 0 {
				t.Errorf("setresuid: %v", errno)
				return
			}
		}
		work()
	}()
	<-done
}

// TestSpare: of a card with one cable, the port without one is a warning unless the configuration
// of the host needs it, as rdma prepare reads it too.
func TestSpare(t *testing.T) {
	t.Parallel()
	const (
		ens3f1np1 = "sys/devices/pci0000:c0/0000:c0:01.0/0000:c1:00.1/net/ens3f1np1/"
		never     = "-- " + ens3f1np1 + "carrier_up_count --\n0\n"
		altname   = "-- run/udev/data/n5 --\nE:ID_NET_NAME_PATH=enp193s0f1np1\n-- " + ens3f1np1 + "ifindex --\n5\n"
		nm        = "-- etc/NetworkManager/system-connections/a.nmconnection --\n[connection]\ntype=ethernet\n"
		networkd  = "-- etc/systemd/network/a.network --\n[Match]\n"
		netplan   = "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    "
	)
	const adapter = `"vendor_id": "15b3", "product_id": "a2d6", "path": ["0000:c0:01.0"], `
	const record = `{"schema":1,"kind":"rdma record","adapters": [{"address": "0000:c1:00.1", ` + adapter +
		`"driver": "mlx5_core", "link_layer": "Ethernet", "for": "guests", "whole": true, "vfs": []}], "files": [], "allowed": []}`
	for _, test := range []struct {
		name, files string
		want        host.Status
		text        string // a part of the finding
	}{
		{"nothing names it", "", host.Warn, "no record and no network configuration needs it"},
		{"NetworkManager, on demand", nm + "interface-name=ens3f1np1\nautoconnect=false\n[ipv4]\nmethod=auto\n", host.Warn, "another port of the machine is ACTIVE"},
		{"NetworkManager", nm + "interface-name=ens3f1np1\n[ipv4]\nmethod=auto\n", host.Fail,
			"which is to carry the address by DHCP of ens3f1np1 (/etc/NetworkManager/system-connections/a.nmconnection:5: method=auto)"},
		{"networkd, a further name", altname + networkd + "Name=enp193s0f1np1\n[Network]\nAddress=10.9.0.1/24\n", host.Fail,
			"which is to carry the static address of ens3f1np1 (/etc/systemd/network/a.network:4: Address=10.9.0.1/24)"},
		{"networkd, a pattern with a static address", never + networkd + "Name=ens3f1*\n[Network]\nAddress=10.9.0.1/24\n", host.Fail,
			"/etc/systemd/network/a.network:4"},
		{"networkd, a pattern of others", networkd + "Name=ens3f0*\n[Network]\nAddress=10.9.0.1/24\n", host.Warn, "no network configuration needs it"},
		{"networkd, a pattern, and never a carrier", never + networkd + "Name=ens3f*\n[Network]\nDHCP=yes\n", host.Warn, "no network configuration needs it"},
		{"networkd, a pattern, and a lost carrier", "-- " + ens3f1np1 + "carrier_up_count --\n2\n" + networkd + "Name=ens3f*\n[Network]\nDHCP=yes\n",
			host.Fail, "/etc/systemd/network/a.network:4"},
		{"networkd, a port of a bond", networkd + "Name=ens3f1np1\n[Network]\nBond=bond0\n", host.Fail,
			"which is to carry the interface bond0 on ens3f1np1 (/etc/systemd/network/a.network:4: Bond=bond0)"},
		{"networkd, not required", networkd + "Name=ens3f1np1\n[Link]\nRequiredForOnline=no\n[Network]\nDHCP=yes\n", host.Warn, "no network configuration needs it"},
		{"netplan, DHCP", netplan + "ens3f1np1:\n      dhcp4: true\n", host.Fail, "/etc/netplan/50.yaml:4: dhcp4: true"},
		{"netplan, DHCP that is optional", netplan + "ens3f1np1:\n      dhcp4: true\n      optional: true\n", host.Warn, "no network configuration needs it"},
		{"netplan, DHCP that is optional, and what it generates", netplan + "ens3f1np1:\n      dhcp4: true\n      optional: true\n" +
			"-- run/systemd/network/10-netplan-ens3f1np1.network --\n[Match]\nName=ens3f1np1\n\n[Link]\nRequiredForOnline=no\n\n[Network]\nDHCP=ipv4\n",
			host.Warn, "no network configuration needs it"},
		{"netplan, a static address that is optional", netplan + "ens3f1np1:\n      addresses: [10.9.0.1/24]\n      optional: true\n", host.Fail,
			"/etc/netplan/50.yaml:4"},
		{"a file that cannot be parsed", "-- etc/netplan/50.yaml --\nnetwork: [\n", host.Fail, "it may be needed: /etc/netplan/50.yaml:1: yaml"},
		{"recorded", "-- var/lib/gpustack/rdma.json --\n" + record + "\n", host.Fail, "the network interface has no link"},
		{"a record that cannot be parsed", "-- var/lib/gpustack/rdma.json --\n" + record + "}\n", host.Fail, "it may be needed: /var/lib/gpustack/rdma.json"},
		{"a record for containers that cannot be parsed", "-- var/lib/gpustack/contract.json --\n{}}\n", host.Fail,
			"it may be needed: /var/lib/gpustack/contract.json"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			found, _ := portFindings(t, shape(t, "bluefield", test.files))
			if len(found) != 1 || found[0].Status != test.want || !strings.Contains(found[0].Seen+"\n"+found[0].Effect, test.text) {
				t.Errorf("want %s %q, got %+v", test.want, test.text, found)
			}
		})
	}
}

// TestSpareUsers: what users may not read changes no verdict, and is named.
func TestSpareUsers(t *testing.T) {
	t.Parallel()
	const dir = "/etc/NetworkManager/system-connections"
	for _, test := range []struct {
		name, files string
		want        host.Status
		text        string
	}{
		{"a folder of root", "", host.Warn, dir + ": permission denied"},
		{"and a file that needs the port", "-- etc/systemd/network/a.network --\n[Match]\nName=ens3f1np1\n[Network]\nAddress=10.9.0.1/24\n", host.Fail,
			"a.network:4: Address=10.9.0.1/24"},
		{"and a file that cannot be parsed", "-- etc/netplan/50.yaml --\nnetwork: [\n", host.Fail, "it may be needed: /etc/netplan/50.yaml:1: yaml"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := shape(t, "bluefield", test.files)
			if err := os.MkdirAll(root.Path(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(root.Path(dir), 0o700); err != nil {
				t.Fatal(err)
			}
			if os.Geteuid() != 0 { // its owner
				if err := os.Chmod(root.Path(dir), 0); err != nil {
					t.Fatal(err)
				}
			}
			for at := root.Path("/"); at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
				if err := os.Chmod(at, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			asNobody(t, func() {
				found, _ := portFindings(t, root)
				if len(found) != 1 || found[0].Status != test.want || !strings.Contains(found[0].Seen+"\n"+found[0].Effect, test.text) {
					t.Errorf("want %s %q, got %+v", test.want, test.text, found)
				}
			})
		})
	}
}

// TestContainersUnread: a record for containers that cannot be read leaves the verdict open, as
// that of rdma prepare does.
func TestContainersUnread(t *testing.T) {
	t.Parallel()
	root := shape(t, "bluefield", "-- var/lib/gpustack/contract.json --\n{}}\n")
	if _, verdict := portFindings(t, root); verdict != checklist.Unknown {
		t.Error(verdict)
	}
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	findings, _, err := rdmacheck.Verify(rdmacheck.Observe(root, devices, change.Machine(root).Observe(), machine.Look[guard.Running]{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Status == host.NA && f.File == machine.ContractFile && strings.Contains(f.Seen, machine.ContractFile+": ") {
			return
		}
	}
	t.Errorf("no finding names %s", machine.ContractFile)
}

// TestTwoPorts: of a function with two ports, as ConnectX-3 has, each is judged by its own
// interfaces, and what is recorded for the function is met by one of them.
func TestTwoPorts(t *testing.T) {
	t.Parallel()
	const folder = "sys/devices/pci0000:81/0000:81:00.0/"
	netdev := func(name, port, kind string) (links, files string) {
		at := folder + "net/" + name
		return "symlink sys/class/net/" + name + " -> ../../../" + at + "\nsymlink " + at + "/device -> ../..\n",
			"-- " + at + "/ifindex --\n1\n-- " + at + "/type --\n" + kind + "\n-- " + at + "/dev_port --\n" + port + "\n"
	}
	const address = "\n[Network]\nAddress=10.9.0.1/24\n"
	const record = `-- var/lib/gpustack/rdma.json --
{"schema":1,"kind":"rdma record","adapters": [{"address": "0000:81:00.0", "vendor_id": "15b3", "product_id": "1003", "path": [], "driver": "mlx4_core",
  "link_layer": "InfiniBand", "for": "guests", "whole": true, "vfs": []}], "files": [], "allowed": []}
`
	for _, test := range []struct {
		name, layer, kind string
		files             string
		second            string // its state
		want              []host.Status
	}{
		{"InfiniBand, one cable", "InfiniBand", "32", "", "1: DOWN", []host.Status{host.Warn}},
		{"InfiniBand, the port with the cable is configured", "InfiniBand", "32", "-- etc/systemd/network/a.network --\n[Match]\nName=net0" + address,
			"1: DOWN", []host.Status{host.Warn}},
		{"InfiniBand, the other port is configured", "InfiniBand", "32", "-- etc/systemd/network/a.network --\n[Match]\nName=net1" + address, "1: DOWN",
			[]host.Status{host.Fail}},
		{"Ethernet, the port with the cable is configured", "Ethernet", "1", "-- etc/systemd/network/a.network --\n[Match]\nName=net0" + address, "1: DOWN",
			[]host.Status{host.Warn}},
		{"Ethernet, the other port is configured", "Ethernet", "1", "-- etc/systemd/network/a.network --\n[Match]\nName=net1" + address, "1: DOWN",
			[]host.Status{host.Fail}},
		{"recorded", "InfiniBand", "32", record, "1: DOWN", []host.Status{host.Warn}},
		{"both cables", "InfiniBand", "32", "", "4: ACTIVE", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var links, files strings.Builder
			for i, name := range []string{"net0", "net1"} {
				l, f := netdev(name, string(rune('0'+i)), test.kind)
				links.WriteString(l)
				files.WriteString(f)
			}
			card := []hosttest.HCA{{Address: "0000:81:00.0", Device: "mlx4_0", Driver: "mlx4_core", Product: "1003", Ports: 2, LinkLayer: test.layer}}
			tree := hosttest.Fabric(card, files.String()+test.files)
			port := "-- " + folder + "infiniband/mlx4_0/ports/2/state --\n"
			if !strings.Contains(tree, port+"4: ACTIVE\n") {
				t.Fatal(tree)
			}
			tree = links.String() + strings.Replace(tree, port+"4: ACTIVE\n", port+test.second+"\n", 1)
			found, _ := portFindings(t, hosttest.Lay(t, tree))
			var got []host.Status
			for _, f := range found {
				got = append(got, f.Status)
			}
			if len(got) != len(test.want) || len(got) > 0 && got[0] != test.want[0] {
				t.Errorf("want %v, got %+v", test.want, found)
			}
		})
	}
	t.Run("recorded, no cable", func(t *testing.T) {
		t.Parallel()
		card := []hosttest.HCA{{Address: "0000:81:00.0", Device: "mlx4_0", Driver: "mlx4_core", Product: "1003", Ports: 2, State: "1: DOWN", Physical: "2: Polling"},
			{Address: "0000:0c:00.0", Device: "mlx5_0", Index: 2}}
		found, _ := portFindings(t, hosttest.Lay(t, hosttest.Fabric(card, record)))
		if len(found) != 2 || found[0].Status != host.Fail || found[1].Status != host.Fail {
			t.Errorf("%+v", found)
		}
	})
}
