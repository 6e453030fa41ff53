package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/container/containerprepare"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
	"gpustack/host/selection"
	"gpustack/host/snapshot"
	"gpustack/operate/node"
)

// TestSnapshotPlans: the plan of each prepare for the tree of a snapshot is that for its machine.
func TestSnapshotPlans(t *testing.T) {
	t.Parallel()
	const adapter = "0000:0c:00.0"
	pf := hosttest.Address(t, adapter)
	commands, files := hosttest.HCA{Address: adapter, Device: "mlx5_0", Total: 8, LinkLayer: "Ethernet", Class: "0200"}.Archive()
	root := hosttest.Lay(t, commands+hosttest.Server{CPU: "GenuineIntel", More: files + `-- sys/devices/pci0000:0c/0000:0c:00.0/net/eth7/address --
b8:ce:f6:00:12:34
-- sys/devices/pci0000:0c/0000:0c:00.0/net/eth7/type --
1
-- sys/devices/pci0000:0c/0000:0c:00.0/net/eth7/ifindex --
7
-- sys/devices/pci0000:0c/0000:0c:00.0/net/eth7/flags --
0x1003
-- sys/module/ib_core/parameters/netns_mode --
Y
-- usr/lib/systemd/systemd --
-- usr/bin/gpustack --
-- usr/sbin/update-initramfs --
-- usr/lib/systemd/system/docker.service --
[Service]
ExecStart=/usr/bin/dockerd
LimitMEMLOCK=64M
-- usr/lib/systemd/system/nvidia-cdi-refresh.service --
[Service]
-- etc/nvidia-container-toolkit/nvidia-cdi-refresh.env --
NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/run/cdi/nvidia.yaml
-- etc/modules-load.d/gpustack-rdma.conf --
# of an administrator
-- etc/network/interfaces --
auto ib0
-- etc/tmpfiles.d/vfs.conf --
w /sys/bus/pci/devices/0000:0d:00.0/sriov_numvfs - - - - 4
-- etc/cron.d/vfs --
@reboot root echo 4 > /sys/bus/pci/devices/0000:0d:00.0/sriov_numvfs; report --password pl4nted
0 3 * * * root mysqldump -u nova -ppl4nted nova
-- etc/rc.local --
#!/bin/sh
curl -u root:pl4nted http://report/
-- etc/udev/rules.d/vfs.rules --
# pl4nted
-- etc/init.d/vfs --
#!/bin/sh
mysql -ppl4nted nova; echo 4 > /sys/bus/pci/devices/0000:0d:00.0/sriov_numvfs
-- etc/modprobe.d/vfs.conf --
options mlx4_core num_vfs=4
softdep mlx5_core pre: vfio-pci
-- etc/containers/systemd/nova_compute.container --
[Container]
Image=kolla/nova-compute
Environment=X=pl4nted
-- sys/kernel/iommu_groups/1/type --
DMA
`}.Archive())
	image := cpio("usr/lib/modules/6.1.0-28-amd64/kernel/drivers/infiniband/core/ib_core.ko")
	hosttest.NoError(t, os.WriteFile(root.Path("/boot/initrd.img-6.1.0-28-amd64"), image, 0o600))
	again := replayed(t, root)
	for _, name := range []string{"/etc/udev/rules.d/vfs.rules", "/etc/init.d/vfs", "/etc/rc.local", "/etc/cron.d/vfs", "/etc/containers/systemd/nova_compute.container"} {
		if data, err := again.ReadFile(name); err != nil && !host.IsAbsent(err) || strings.Contains(string(data), "pl4nted") {
			t.Errorf("%s: %v, a snapshot holds %q", name, err, data)
		}
	}
	for name, plan := range map[string]func(host.Root) []string{
		"host prepare": func(root host.Root) []string {
			m := prepare.Observe(root, machine.ObservePrepare(root, true), selection.Options{})
			want, err := prepare.NewWant(m, selection.Options{})
			if err != nil {
				return []string{err.Error()}
			}
			p, err := prepare.NewPlan(m, want)
			return append(texts(p.Files, err), append(p.Warnings, fmt.Sprint(p.Programs))...)
		},
		"rdma prepare for guests":     rdmaPlan(rdmaprepare.Options{Add: []pci.Address{pf}, VFs: 2}),
		"rdma prepare for containers": rdmaPlan(rdmaprepare.Options{Add: []pci.Address{pf}, VFs: 2, Use: rdma.ForContainers, Netns: rdma.NetnsExclusive}),
		"rdma prepare as a whole":     rdmaPlan(rdmaprepare.Options{Add: []pci.Address{pf}, Whole: true, Use: rdma.ForContainers}),
		"container prepare": func(root host.Root) []string {
			m, err := containerprepare.Observe(root, machine.ObserveRecord(root, nil, true))
			if err != nil {
				return []string{err.Error()}
			}
			want, err := containerprepare.NewWant(m, containerprepare.Options{HCAs: []pci.Address{pf}})
			if err != nil {
				return []string{err.Error()}
			}
			p, err := containerprepare.NewPlan(m, want)
			return append(texts(append(p.Files, p.Boot...), err), append(p.Warnings, p.Notes...)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := plan(root)
			if len(before) < 2 {
				t.Errorf("refused: %q", before)
			}
			hosttest.EqualIn(t, "plan", before, plan(again))
		})
	}
}

// replayed returns the tree of a snapshot of a machine.
func replayed(t *testing.T, root host.Root) host.Root {
	t.Helper()
	var tree snapshot.Tree
	u := term.UI{Talk: io.Discard, Quiet: true}
	node.ReadAll(t.Context(), newNode(&u, root.Recorded(tree.Masked(snapshot.MaskBoot, node.MaskNova))))
	dir := filepath.Join(t.TempDir(), "again")
	hosttest.NoError(t, tree.Unpack(dir))
	return hosttest.Root(t, dir)
}

// rdmaPlan returns what plans options of rdma prepare.
func rdmaPlan(o rdmaprepare.Options) func(host.Root) []string {
	return func(root host.Root) []string {
		m, err := rdmaprepare.Observe(root, machine.ObserveRecord(root, nil, true), o)
		if err != nil {
			return []string{err.Error()}
		}
		want, err := rdmaprepare.NewWant(m, o)
		if err != nil {
			return []string{err.Error()}
		}
		p, err := rdmaprepare.NewPlan(m, want)
		return append(texts(p.Files, err), p.Warnings...)
	}
}

// texts returns a plan of files as text.
func texts(plan edit.Changes, err error) []string {
	text := []string{fmt.Sprint(err)}
	for _, c := range plan {
		text = append(text, string(c.Action())+" "+c.Diff())
	}
	return text
}

// cpio returns an archive of the new portable format with an empty file (Linux,
// Documentation/driver-api/early-userspace/buffer-format.rst).
func cpio(name string) []byte {
	var b strings.Builder
	for i, entry := range []string{name, "TRAILER!!!"} {
		mode := map[bool]int{true: 0o100644}[i == 0]
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", i+1, mode, 0, 0, 1, 0, 0, 0, 0, 0, 0, len(entry)+1, 0, entry)
		b.WriteString(strings.Repeat("\x00", (4-b.Len()%4)%4))
	}
	return []byte(b.String())
}
