package chain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gpustack/integration/service"
	"gpustack/integration/vm"
	"gpustack/integration/vm/agent"
)

// memory is that of a compute node in MiB. libvirt, nova-compute and its helpers take half of it,
// a guest with two GPUs 192 MiB and what its QEMU needs.
const memory = 3072

// A Host is a server that is to be a compute node.
type Host struct {
	Name string // of the machine, and so Nova's host
	// MyIP is Nova's my_ip, on the network card that leads to the other host. Two hosts must not
	// have the same: Nova would take the other's disks for its own (nova/virt/libvirt/driver.py,
	// _is_path_shared_with).
	MyIP string
	// Wire and Peer are the ports of 127.0.0.1 at the two ends of the cable between both hosts:
	// this end, and that of the other host.
	Wire, Peer int
	// SSH is the port of 127.0.0.1 that leads to the machine's sshd.
	SSH int
}

// Pair returns two hosts, gpu1 and gpu2, with a cable between them.
func Pair() ([2]Host, error) {
	ports, err := service.Ports(4)
	if err != nil {
		return [2]Host{}, err
	}
	return [2]Host{
		{Name: "gpu1", MyIP: "192.168.77.1", Wire: ports[0], Peer: ports[1], SSH: ports[2]},
		{Name: "gpu2", MyIP: "192.168.77.2", Wire: ports[1], Peer: ports[0], SSH: ports[3]},
	}, nil
}

// A Machine is a compute node that runs. Its methods are not for use by several goroutines at once.
type Machine struct {
	*vm.Machine
	Host    Host
	Overlay string // the file that gets what it writes to its disk

	siteConf string // the digest of nova.conf as the site left it, before nova configure
}

// Addresses of its two GPUs, both of them Quadro K4200 with an audio function.
var Addresses = []string{"0000:01:00.0", "0000:02:00.0"}

// Start starts a machine that boots from a disk, whose format is raw or qcow2 and which stays as it
// is, and makes it the host. Its files are in a folder whose name must be short, for the socket in
// it. The programs come as vm.WriteLab writes them.
func Start(ctx context.Context, dir string, h Host, disk, format, lab string) (*Machine, error) {
	overlay := filepath.Join(dir, "overlay")
	if err := vm.Overlay(ctx, overlay, disk, format); err != nil {
		return nil, err
	}
	topology, boot := h.parts(overlay, lab)
	started, err := vm.Start(ctx, dir, topology, boot)
	if err != nil {
		return nil, err
	}
	m := &Machine{Machine: started, Host: h, Overlay: overlay}
	if _, err := m.Run(ctx, "sh", "-euc", identify, "sh", h.Name, h.id()[:32], h.MyIP, h.mac()); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", h.Name, err), m.Kill())
	}
	return m, nil
}

// parts is what the machine is made of. The cable is a pair of UDP sockets, for which no end needs
// to be there before the other: each machine can be restarted while the other runs.
//
// event_idx=off: QEMU 7.2 may lose an interrupt of a virtio device while a function is played
// ("Blocked re-entrant IO on MemoryRegion: vtd-ir": QEMU drops its big lock for the function, and
// another thread raises the interrupt meanwhile). With event indexes, the device then waits for the
// driver for ever, and a network card is dead; without them, the next packet interrupts again
// (Virtual I/O Device specification, 2.7.7).
func (h Host) parts(overlay, lab string) (vm.Topology, vm.Boot) {
	topology := vm.Server(h.Name, memory,
		"virtio-net-pci,netdev=site,event_idx=off,romfile=,mac=52:54:00:00:00:10",
		"virtio-net-pci,netdev=cable,event_idx=off,romfile=,mac="+h.mac())
	boot := append(vm.FromOverlay(overlay, lab),
		"-uuid", h.uuid(), // else libvirt makes up one at each start
		"-netdev", fmt.Sprintf("user,id=site,hostfwd=tcp:127.0.0.1:%d-:22", h.SSH),
		"-netdev", fmt.Sprintf("socket,id=cable,udp=127.0.0.1:%d,localaddr=127.0.0.1:%d", h.Peer, h.Wire))
	return topology, boot
}

// recipe is what a boot depends on beside the disk, which the cache's key contains: the machine's
// hardware, and so the drivers of a State. The ports of the cable differ each time.
func (h Host) recipe() (string, error) {
	topology, _ := h.parts("", "")
	text, err := json.Marshal(topology)
	return string(text) + identify, err
}

// id is the same for a name each time, and another for each name.
func (h Host) id() string {
	sum := sha256.Sum256([]byte(h.Name))
	return hex.EncodeToString(sum[:])
}

func (h Host) uuid() string {
	id := h.id()
	return strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:32]}, "-")
}

func (h Host) mac() string {
	id := h.id()
	return "52:54:00:" + strings.Join([]string{id[:2], id[2:4], id[4:6]}, ":")
}

// identify gives a machine its name, its machine-id(5) and the address on the cable. Both hosts
// boot from the same disk. A host guests report contains the machine-id.
const identify = `
hostname "$1"
echo "$1" >/etc/hostname
echo "$2" >/etc/machine-id
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$1" >/etc/hosts
printf '[Match]\nMACAddress=%s\n[Network]\nAddress=%s/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n' "$4" "$3" >/etc/systemd/network/cable.network
networkctl reload
`

// Run runs a program in the machine, which must succeed, and returns what it printed.
func (m *Machine) Run(ctx context.Context, argv ...string) (string, error) {
	reply, err := m.Ask(ctx, agent.Request{Argv: argv})
	return outcome(argv, reply, err)
}

// outcome is what a program printed that must have succeeded.
func outcome(argv []string, reply agent.Reply, err error) (string, error) {
	if err == nil && reply.Status != 0 {
		err = fmt.Errorf("%q: exit status %d: %s%s", argv, reply.Status, reply.Stdout, reply.Stderr)
	}
	return reply.Stdout, err
}

// A State is what a reboot changes: the arguments that the kernel got, and the driver of each PCI
// function by its address, "" where it has none.
type State struct {
	Arguments string
	Drivers   map[string]string
}

// State returns how the machine booted.
func (m *Machine) State(ctx context.Context) (State, error) {
	arguments, err := m.Run(ctx, "cat", "/proc/cmdline")
	if err != nil {
		return State{}, err
	}
	drivers, err := m.Run(ctx, "sh", "-c", `cd /sys/bus/pci/devices; for d in *; do t=$(readlink $d/driver); echo "$d ${t##*/}"; done`)
	if err != nil {
		return State{}, err
	}
	s := State{Arguments: strings.TrimSpace(arguments), Drivers: map[string]string{}}
	for line := range strings.Lines(drivers) {
		address, driver, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		s.Drivers[address] = driver
	}
	return s, nil
}

// Lab writes the disk with the programs of machines to a folder, and returns the file.
func Lab(ctx context.Context, dir string, p vm.Programs) (string, error) {
	file := filepath.Join(dir, "lab")
	return file, vm.WriteLab(ctx, file, map[string]string{"gpustack": p.Gpustack, "guest": p.Guest})
}

// fingerprint identifies the contents of a file.
func fingerprint(file string) (string, error) {
	data, err := os.ReadFile(file)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}

// copyFile copies a file to a new one, which may be in another file system.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Ready is an error unless host check finds the machine ready.
func (m *Machine) Ready(ctx context.Context) error {
	out, err := m.Run(ctx, "gpustack", "host", "check", "-o", "json")
	if err != nil {
		return err
	}
	var report struct{ Verdict string }
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		return fmt.Errorf("host check: %w", err)
	}
	if report.Verdict != "ready" {
		return fmt.Errorf("host check: verdict %q:\n%s", report.Verdict, out)
	}
	return nil
}
