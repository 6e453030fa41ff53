package rdmacheck_test

import (
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/checklist"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/rdma/rdmacheck"
)

// shape lays out a machine of a real shape, with further lines and files. Those that it has already
// are replaced.
func shape(t *testing.T, name, more string) host.Root {
	t.Helper()
	text := hosttest.Read(t, "../../../integration/testdata/shapes/"+name+".txtar")
	a, other := txtar.Parse([]byte(text)), txtar.Parse([]byte(more))
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
	devices := hosttest.Devices(t, root)
	all, verdict, err := rdmacheck.Verify(rdmacheck.Observe(root, devices, change.Machine(root).Observe()))
	hosttest.NoError(t, err)
	var found []host.Finding
	for _, f := range all {
		if f.Check == "ports" && f.Status != host.Pass {
			found = append(found, f)
		}
	}
	return found, verdict
}

// TestSpare: of a card with one cable, the port without one is a warning unless a record needs it.
func TestSpare(t *testing.T) {
	t.Parallel()
	const adapter = `"vendor_id": "15b3", "product_id": "a2d6", "bridges": ["0000:c0:01.0"], `
	const record = `{"schema":1,"kind":"rdma record","adapters": [{"address": "0000:c1:00.1", ` + adapter +
		`"driver": "mlx5_core", "link_layer": "Ethernet", "for": "guests", "whole": true, "vfs": []}], "files": [], "allowed": []}`
	for _, test := range []struct {
		name, files string
		want        host.Status
		text        string // a part of the finding
	}{
		{"nothing names it", "", host.Warn, "another port of the machine is ACTIVE"},
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

// TestContainersUnread: a record for containers that cannot be read leaves the verdict open, as
// that of rdma prepare does.
func TestContainersUnread(t *testing.T) {
	t.Parallel()
	root := shape(t, "bluefield", "-- var/lib/gpustack/contract.json --\n{}}\n")
	if _, verdict := portFindings(t, root); verdict != checklist.Unknown {
		t.Error(verdict)
	}
	devices := hosttest.Devices(t, root)
	findings, _, err := rdmacheck.Verify(rdmacheck.Observe(root, devices, change.Machine(root).Observe()))
	hosttest.NoError(t, err)
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
	const record = `-- var/lib/gpustack/rdma.json --
{"schema":1,"kind":"rdma record","adapters": [{"address": "0000:81:00.0", "vendor_id": "15b3", "product_id": "1003", "bridges": [], "driver": "mlx4_core",
  "link_layer": "InfiniBand", "for": "guests", "whole": true, "vfs": []}], "files": [], "allowed": []}
`
	for _, test := range []struct {
		name, layer, kind string
		files             string
		second            string // its state
		want              []host.Status
	}{
		{"InfiniBand, one cable", "InfiniBand", "32", "", "1: DOWN", []host.Status{host.Warn}},
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
			if physical := strings.Replace(port, "/state", "/phys_state", 1); test.second == "1: DOWN" {
				tree = strings.Replace(tree, physical+"5: LinkUp\n", physical+"2: Polling\n", 1)
			}
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
