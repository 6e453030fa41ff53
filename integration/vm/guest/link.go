package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// upperName is the name of the interface that keepLink makes.
const upperName = "upper0"

// keepLink makes an interface of a kind on another one, or has it use the other in its kind's way,
// until it is killed. Interfaces that can be in another network namespace than the one below are
// moved to that of a process of its own.
func keepLink(kind, name string) (err error) {
	lower, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	undo, err := use(kind, lower)
	if err != nil {
		return fmt.Errorf("%s on %s: %w", kind, name, err)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM)
	fmt.Println("held")
	<-end
	return undo()
}

func use(kind string, lower netlink.Link) (undo func() error, err error) {
	a := netlink.NewLinkAttrs()
	a.Name, a.ParentIndex = upperName, lower.Attrs().Index
	alone := netlink.NewLinkAttrs()
	alone.Name = upperName
	switch kind {
	case "bridge":
		return enslave(&netlink.Bridge{LinkAttrs: alone}, lower)
	case "bond":
		return enslave(netlink.NewLinkBond(alone), lower)
	case "vrf":
		return enslave(&netlink.Vrf{LinkAttrs: alone, Table: 10}, lower)
	case "xdp":
		return program(lower)
	case "device":
		return apart(lower)
	case "vlan":
		return above(&netlink.Vlan{LinkAttrs: a, VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q})
	case "macvlan":
		return above(&netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE})
	case "macvtap":
		return above(&netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE}})
	case "ipvlan":
		return above(&netlink.IPVlan{LinkAttrs: a, Mode: netlink.IPVLAN_MODE_L2})
	case "ipvtap":
		return above(&netlink.IPVtap{IPVlan: netlink.IPVlan{LinkAttrs: a, Mode: netlink.IPVLAN_MODE_L2}})
	case "vxlan":
		return above(&netlink.Vxlan{LinkAttrs: alone, VxlanId: 7, VtepDevIndex: a.ParentIndex, Port: 4789, Learning: true})
	}
	return nil, errors.New("unknown kind")
}

// add adds an interface. The one before on the same interface may still be being removed.
func add(link netlink.Link) error {
	err := netlink.LinkAdd(link)
	for end := time.Now().Add(time.Minute); errors.Is(err, unix.EBUSY) && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		err = netlink.LinkAdd(link)
	}
	return err
}

func enslave(master, lower netlink.Link) (undo func() error, err error) {
	if err := add(master); err != nil {
		return nil, err
	}
	return func() error { return netlink.LinkDel(master) }, netlink.LinkSetMaster(lower, master)
}

func above(link netlink.Link) (undo func() error, err error) {
	if err := add(link); err != nil {
		return nil, err
	}
	made, err := netlink.LinkByName(upperName)
	if err != nil {
		return nil, err
	}
	return apart(made)
}

// apart moves an interface to the network namespace of a process. When that ends, the kernel
// removes the interface, or returns a device to the first namespace.
func apart(link netlink.Link) (undo func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	keeper := exec.Command(self, "hold", "/dev/null")
	keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := keeper.Start(); err != nil {
		return nil, err
	}
	undo = func() error { return errors.Join(keeper.Process.Kill(), ended(keeper)) }
	return undo, netlink.LinkSetNsPid(link, keeper.Process.Pid)
}

func ended(cmd *exec.Cmd) error {
	if err := cmd.Wait(); cmd.ProcessState == nil {
		return err
	}
	return nil
}

// program attaches a program of XDP that passes every packet (Linux, include/uapi/linux/bpf.h).
func program(link netlink.Link) (undo func() error, err error) {
	instructions := [...][8]byte{{0xb7, 0, 0, 0, 2}, {0x95}} // r0 = XDP_PASS; exit
	license := [...]byte{'G', 'P', 'L', 0}
	attributes := struct {
		kind, count      uint32
		program, license uint64
		rest             [96]byte
	}{
		kind: unix.BPF_PROG_TYPE_XDP, count: uint32(len(instructions)),
		program: uint64(uintptr(unsafe.Pointer(&instructions))), license: uint64(uintptr(unsafe.Pointer(&license))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes))
	if errno != 0 {
		return nil, errno
	}
	undo = func() error { return netlink.LinkSetXdpFdWithFlags(link, -1, unix.XDP_FLAGS_SKB_MODE) }
	return undo, netlink.LinkSetXdpFdWithFlags(link, int(fd), unix.XDP_FLAGS_SKB_MODE)
}
