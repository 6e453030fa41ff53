package driver

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// ioctl requests to groups and containers, and their results (Linux, include/uapi/linux/vfio.h;
// Documentation/driver-api/vfio.rst).
const (
	vfioGetAPIVersion       = ';'<<8 | (100 + 0)
	vfioGroupGetStatus      = ';'<<8 | (100 + 3)
	vfioGroupSetContainer   = ';'<<8 | (100 + 4)
	vfioGroupUnsetContainer = ';'<<8 | (100 + 5)

	vfioAPIVersion  = 0
	vfioGroupViable = 1 << 0
)

// vfioGroupStatus is struct vfio_group_status.
type vfioGroupStatus struct {
	size, flags uint32
}

// ErrInUse means that a process, such as a guest's, has opened the group.
var ErrInUse = host.WithHint(host.WithCode(errors.New("is in use"), host.CodeInUse, ""), host.Textf("'%s' shows which guest has it",
	host.NewCommand("host guests")))

// TryGroup opens a group as QEMU does for a guest, adds it to a container, removes it from there
// and closes it again. The existence of the group's device node proves nothing: the kernel creates
// it with the first function of the group.
func (l Live) TryGroup(group int) error {
	const containerFile = "/dev/vfio/vfio"
	groupFile := fmt.Sprintf("/dev/vfio/%d", group)
	fd, err := l.open(groupFile)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s: %w", groupFile, ErrInUse)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	status := vfioGroupStatus{size: uint32(unsafe.Sizeof(vfioGroupStatus{}))}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), vfioGroupGetStatus,
		uintptr(unsafe.Pointer(&status))); errno != 0 { //nolint:gosec // an ioctl takes a pointer
		return fmt.Errorf("%s: its status: %w", groupFile, errno)
	}
	if status.flags&vfioGroupViable == 0 {
		return fmt.Errorf("%s: %w", groupFile, ErrNotViable)
	}
	container, err := l.open(containerFile)
	if err != nil {
		return err
	}
	defer unix.Close(container) //nolint:errcheck // nothing was written
	if version, err := unix.IoctlRetInt(container, vfioGetAPIVersion); err != nil || version != vfioAPIVersion {
		return fmt.Errorf("%s: version %d of its interface, not %d: %w", containerFile, version, vfioAPIVersion, errors.Join(err, unix.EPROTO))
	}
	err = unix.IoctlSetPointerInt(fd, vfioGroupSetContainer, container)
	if errors.Is(err, unix.EPERM) {
		err = ErrNotViable
	}
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, vfioGroupUnsetContainer, 0)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", groupFile, err)
	}
	return nil
}

func (l Live) open(name string) (int, error) {
	place, err := l.Runner.Root.Resolve(name)
	if err != nil {
		return -1, err
	}
	for {
		fd, err := unix.Open(place, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, host.OfFile(name, err)
		}
	}
}
