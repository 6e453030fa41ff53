package node_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/snapshot"
	"gpustack/operate/node"
)

// TestSnapshot: what a use case observes and plans on a machine, or refuses, it does on a snapshot
// of it too, in which no password of Nova's is.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	const conf = "etc/nova/nova.conf"
	passwords := hosttest.Write(conf, "[DEFAULT]\ntransport_url = rabbit://nova:pl4nted@mq\n[pci]\ndevice_spec = {\"address\": \""+gpu1+"\"}\n")
	for name, step := range map[string]hosttest.Step{
		"a server":             hosttest.Steps(),
		"prepared":             func(t *testing.T, root host.Root) { prepared(t, root, nil) },
		"of containers":        ofContainers,
		"lent":                 lent,
		"the console":          hosttest.Write("sys/bus/pci/devices/"+gpu0+"/boot_vga", "1\n"),
		"passwords":            passwords,
		"a record of adapters": hosttest.Write("var/lib/gpustack/rdma.json", "{"),
		"no function":          hosttest.Remove("sys/bus/pci"),
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			step(t, root)
			var tree snapshot.Tree
			node.ReadAll(t.Context(), on(root.Recorded(tree.Masked(snapshot.MaskBoot, node.MaskNova))))
			dir := filepath.Join(t.TempDir(), "again")
			hosttest.NoError(t, tree.Unpack(dir))
			again := hosttest.Root(t, dir)
			before, after := replayed(t, root), replayed(t, again)
			hosttest.EqualIn(t, "machine and snapshot", before, after)
			if data, _ := again.ReadFile(conf); strings.Contains(string(data), "pl4nted") {
				t.Errorf("the snapshot has a password: %s", data)
			}
		})
	}
}

// TestMaskNova: the passwords of every file of Nova's are hidden, and other files are as they are.
func TestMaskNova(t *testing.T) {
	t.Parallel()
	const text = "[database]\nconnection = mysql://nova:pl4nted@db/nova\n"
	for name, masked := range map[string]bool{
		"etc/nova/nova.conf": true, "etc/kolla/nova-compute/nova.conf": true, "etc/nova/nova.conf.d/50-a.conf": true,
		"etc/neutron/neutron.conf": false, "etc/nova/policy.yaml": false,
	} {
		if got := string(node.MaskNova(name, []byte(text))); strings.Contains(got, "pl4nted") == masked || !strings.Contains(got, "connection = ") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// replayed returns what use cases find and plan on a machine, by name.
func replayed(t *testing.T, root host.Root) map[string]string {
	t.Helper()
	text := map[string]string{}
	for name, plan := range useCases(t) {
		for _, back := range []bool{false, true} {
			files, work, err := plan(root, back)
			lines := []string{fmt.Sprint(err), fmt.Sprint(work.Programs, work.Left)}
			for _, c := range files.Pending() {
				lines = append(lines, string(c.Action())+" "+c.Diff())
			}
			text[fmt.Sprintf("%s, back %v", name, back)] = strings.Join(lines, "\n")
		}
	}
	r, _, err := node.ReadScan(root, node.ScanOptions{})
	text["host scan"] = fmt.Sprint(outline(r), err)
	adapters, _, err := node.ReadRDMA(root, nil, true)
	text["rdma scan"] = fmt.Sprint(len(adapters.Adapters), adapters.Links, adapters.Warnings, err)
	all, _, _ := pci.Scan(root, pci.Options{})
	text["offered"] = lines(node.Offered(root, all).Value)
	_, reboot := node.Observe(t.Context(), root, true)
	text["reboot"] = reboot.String()
	for name, value := range text {
		text[name] = strings.ReplaceAll(value, root.Path("/"), "")
	}
	return text
}
