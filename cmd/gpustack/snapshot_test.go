package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
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

// secretNames are options with secrets: each word of the list in a name that is in use.
var secretNames = []string{"password", "rd.iscsi.password", "passwd", "inst.rootpw", "PWD", "luks_pass", "admin_pass", "passphrase", "client_secret",
	"systemd.set_credential", "cred", "api_token", "X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "sig", "auth", "proxy_auth", "psk",
	"api-key", "snmp.community", "private_data"}

// TestSnapshotSecrets plants a secret of every name in every file that a snapshot of a machine
// holds, as that file's readers would write it.
func TestSnapshotSecrets(t *testing.T) {
	root := hosttest.Lay(t, hosttest.Server{CPU: "GenuineIntel", More: `
-- proc/cmdline --
root=/dev/sda1 quiet
-- proc/mounts --
/dev/sda1 / ext4 rw 0 0
-- etc/fstab --
/dev/sda1 / ext4 rw 0 0
-- boot/grub/grub.cfg --
menuentry x {
linux /vmlinuz-6.1.0-28-amd64 root=/dev/sda1 ro quiet
}
-- etc/modprobe.d/x.conf --
options x y=z
-- etc/nova/nova.conf --
[DEFAULT]
my_ip = 10.0.0.1
-- etc/os-release --
ID=debian
-- etc/docker/daemon.json --
{"runtimes": {}}
`}.Archive())
	recorder := &textRecorder{text: map[string]string{}}
	u := term.UI{Talk: io.Discard, Quiet: true}
	node.ReadAll(context.Background(), newNode(&u, root.Recorded(recorder)))
	for _, name := range []string{"proc/cmdline", "proc/mounts", "etc/fstab", "etc/default/grub", "boot/grub/grub.cfg", "etc/modprobe.d/x.conf",
		"etc/nova/nova.conf", "etc/os-release", "etc/docker/daemon.json"} {
		if _, ok := recorder.text[name]; !ok {
			t.Errorf("a snapshot does not hold %s", name)
		}
	}
	for _, name := range []string{"etc/kernel/cmdline", "boot/loader/entries/x.conf", "etc/nvidia-container-runtime/config.toml"} { // of other machines
		recorder.text[name] = ""
	}
	const planted = "pl4nted"
	for name, text := range recorder.text {
		if strings.HasPrefix(name, "sys/") || strings.Contains(name, "lib/modules/") {
			continue // attributes of the kernel, lists of modules
		}
		for _, secret := range secretNames {
			url := "https://host/x?a=b&" + secret + "=" + planted + "&c=d"
			lines := []string{"x " + secret + "=" + planted + " y", secret + "=" + planted, "x " + secret + `="` + planted + ` y"`, "x y=" + url, "x " + url + " y"}
			switch {
			case path.Ext(name) == ".json":
				lines = append(lines, `{"`+secret+`":"`+planted+`","x":1}`, `{"x":1, "`+secret+`": "a\"`+planted+`"}`, `{"x":"`+url+`"}`)
			case strings.HasPrefix(name, "proc/"):
			case strings.HasSuffix(name, "fstab"):
				lines = append(lines, "//h/x /x cifs a,"+secret+"="+planted+",b 0 0")
			default:
				lines = append(lines, secret+" = "+planted, "\t"+secret+": "+planted, secret+` = "a `+planted+`"`, "x: "+url)
			}
			for _, line := range lines {
				data := []byte(text + line + "\n")
				got := node.MaskNova(name, snapshot.MaskBoot(name, data))
				if bytes.Contains(got, []byte(planted)) {
					t.Errorf("%s: %q", name, line)
				}
				if json.Valid([]byte(line)) && !json.Valid(snapshot.MaskBoot(name, []byte(line))) && path.Ext(name) == ".json" {
					t.Errorf("%s: %q is not JSON after masking", name, line)
				}
			}
		}
	}
}

// textRecorder keeps the texts of the files that are read.
type textRecorder struct {
	mu   sync.Mutex
	text map[string]string
}

func (r *textRecorder) File(name string, data []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && data != nil {
		r.text[name] = string(data)
	}
}
func (*textRecorder) Mode(string, fs.FileMode)    {}
func (*textRecorder) Link(string, string, error)  {}
func (*textRecorder) Dir(string, []string, error) {}
