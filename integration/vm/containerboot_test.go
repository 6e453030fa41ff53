package vm

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"gpustack/host/hosttest"
	"gpustack/integration/vm/agent"
)

// rdmaAtBoot makes two RDMA devices, in another order at each boot, so that their uverbs devices
// have other numbers. That of the network card is shown as if it were the card's: rdma_rxe has no
// PCI function, so what its classes show is played, while devices, numbers and nodes are the
// kernel's.
const rdmaAtBoot = `#!/bin/sh
set -eu
order="spare nic"
[ ! -e /etc/rdma-other ] || order="nic spare"
touch /etc/rdma-other
modprobe rdma_rxe
modprobe rdma_ucm
ip link add spare type dummy
for name in $order; do
	try=0
	until netdev=spare
		[ $name = spare ] || netdev=$(ls /sys/bus/pci/devices/$1/net)
		ip link set $netdev up && rdma link add rxe_$name type rxe netdev $netdev
	do
		[ $((try += 1)) -lt 300 ]
		sleep 0.2
	done
done
verbs=$(dirname $(grep -lx rxe_nic /sys/class/infiniband_verbs/uverbs*/ibdev))
uverbs=${verbs##*/}
at=/run/played/pci0000:00/$1
mkdir -p $at/infiniband/mlx5_0 $at/infiniband_verbs/$uverbs /run/played/infiniband /run/played/infiniband_verbs
cat /sys/class/infiniband/rxe_nic/node_type >$at/infiniband/mlx5_0/node_type
echo mlx5_0 >$at/infiniband_verbs/$uverbs/ibdev
cat $verbs/dev >$at/infiniband_verbs/$uverbs/dev
ln -s ../.. $at/infiniband_verbs/$uverbs/device
ln -s $at/infiniband/mlx5_0 /run/played/infiniband/mlx5_0
ln -s $at/infiniband_verbs/$uverbs /run/played/infiniband_verbs/$uverbs
echo $uverbs >/run/played/uverbs
for class in infiniband infiniband_verbs; do
	mount --bind /run/played/$class /sys/class/$class
done
`

const hcaSpec = "/run/cdi/gpustack-hca.json"

// containersAtBoot gives an RDMA adapter to containers, whose spec each boot has to write again,
// and installs a container engine that notes the spec that it finds when it starts.
func (m machine) containersAtBoot() {
	m.t.Helper()
	m.write("/usr/local/sbin/rdma-at-boot", rdmaAtBoot)
	// Nothing waits until the devices are there.
	m.write("/etc/systemd/system/rdma-at-boot.service", fmt.Sprintf(`[Unit]
DefaultDependencies=no
After=local-fs.target systemd-modules-load.service
Before=gpustack-boot.service
[Service]
ExecStart=sh /usr/local/sbin/rdma-at-boot %s
[Install]
WantedBy=multi-user.target
`, network))
	m.write("/etc/systemd/system/docker.service", "[Service]\nType=oneshot\nExecStart=cp "+hcaSpec+" /run/docker-saw\n[Install]\nWantedBy=multi-user.target\n")
	m.run("sh", "-ec", "chmod 644 /etc/systemd/system/*.service; systemctl --quiet enable rdma-at-boot docker; sh /usr/local/sbin/rdma-at-boot $1", "sh", network)
	out := m.run("gpustack", "container", "prepare", "--hca", network, "--yes")
	hosttest.ContainsIn(m.t, "it does not say that each boot writes the spec", "written now, and at each boot as the machine is then:", out)
	m.givesUverbs("uverbs1", m.run("cat", hcaSpec))
	hosttest.ContainsIn(m.t, "again", "nothing to do", m.run("gpustack", "container", "prepare", "--yes"))
}

// givesUverbs: a spec gives containers the uverbs device that the kernel has made of the network
// card, which has the number that is expected.
func (m machine) givesUverbs(want, spec string) {
	m.t.Helper()
	kernels := strings.TrimSpace(m.run("cat", "/run/played/uverbs"))
	if kernels != want || !strings.Contains(spec, `"/dev/infiniband/`+want+`"`) {
		m.t.Errorf("the kernel has %s, want %s\n%s", kernels, want, spec)
	}
	if reply := m.try("test", "-c", path.Join("/dev/infiniband", want)); reply.Status != 0 {
		m.t.Errorf("%s is no node", want)
	}
}

// containersGotSpec: the engine has found the spec with the number of this boot. The undo of what
// another boot has written takes it away, and leaves the VFs.
func (m machine) containersGotSpec() {
	m.t.Helper()
	m.run("sh", "-ec", `i=0; while [ ! -e /run/docker-saw ]; do [ $i -lt 600 ]; i=$((i+1)); sleep 0.2; done`)
	m.givesUverbs("uverbs0", m.run("cat", "/run/docker-saw"))
	reply := m.try("gpustack", "container", "check", "-o", "json")
	var report struct {
		Findings []struct{ Check, Status, Seen string }
	}
	if err := json.Unmarshal([]byte(reply.Stdout), &report); err != nil {
		m.t.Fatalf("%v: %s", err, reply.Stderr)
	}
	for _, f := range report.Findings {
		if f.Check == "record" && f.Status != "pass" {
			m.t.Errorf("container check: %+v", f)
		}
	}
	vfs := m.aboutVFs(nvmeCard)
	m.run("gpustack", "undo", "--yes")
	if reply := m.try("test", "-e", hcaSpec); reply.Status == 0 {
		m.t.Errorf("%s remains after undo", hcaSpec)
	}
	if now := m.aboutVFs(nvmeCard); now.Count != vfs.Count || len(now.Drivers) != len(vfs.Drivers) {
		m.t.Errorf("VFs: %+v, before undo: %+v", now, vfs)
	}
	m.run("sh", "-ec", "systemctl --quiet disable rdma-at-boot docker; cd /etc; rm rdma-other systemd/system/rdma-at-boot.service systemd/system/docker.service /usr/local/sbin/rdma-at-boot")
}

// write writes a file of root's, and the folder that it is in.
func (m machine) write(name, text string) {
	m.t.Helper()
	reply, err := m.Ask(m.t.Context(), agent.Request{
		Argv: []string{"sh", "-ec", `umask 077; [ -d "${1%/*}" ] || busybox mkdir -p "${1%/*}"; cat >"$1"`, "sh", name}, Stdin: text,
	})
	if err != nil || reply.Status != 0 {
		m.t.Fatalf("%s: %v: %s", name, err, reply.Stderr)
	}
}

// boot returns the id of the machine's boot.
func (m machine) boot() string {
	return strings.TrimSpace(m.run("cat", "/proc/sys/kernel/random/boot_id"))
}
