package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The requests of Linux, include/uapi/linux/vfio.h.
const (
	vfioType            = ';'
	vfioBase            = 100
	vfioGroupGetStatus  = vfioType<<8 | (vfioBase + 3)
	vfioGroupSetContain = vfioType<<8 | (vfioBase + 4)
	vfioGroupGetDevice  = vfioType<<8 | (vfioBase + 6)
	vfioSetIOMMU        = vfioType<<8 | (vfioBase + 2)
	vfioType1IOMMU      = 1
	vfioGroupViable     = 1
)

// taken says how far a group could be taken, with the kernel's words.
type taken struct {
	Viable bool   // the kernel's word for the group
	Device bool   // the function was handed out
	Step   string // that failed
	Err    string
}

// vfio takes a function as QEMU does: group, container, IOMMU, device.
func vfio(group, address string) error {
	t, _ := take(group, address)
	return json.NewEncoder(os.Stdout).Encode(t)
}

// take also returns all that it has opened.
func take(group, address string) (t taken, fds []int) {
	failed := func(step string, err error) bool {
		if err != nil {
			t.Step, t.Err = step, err.Error()
		}
		return err != nil
	}
	container, err := unix.Open("/dev/vfio/vfio", unix.O_RDWR, 0)
	if failed("open /dev/vfio/vfio", err) {
		return t, fds
	}
	fds = append(fds, container)
	g, err := unix.Open(filepath.Join("/dev/vfio", group), unix.O_RDWR, 0)
	if failed("open the group", err) {
		return t, fds
	}
	fds = append(fds, g)
	status := struct{ size, flags uint32 }{size: 8}
	if _, err := ioctl(g, vfioGroupGetStatus, unsafe.Pointer(&status)); failed("GET_STATUS", err) {
		return t, fds
	}
	t.Viable = status.flags&vfioGroupViable != 0
	fd := int32(container)
	if _, err := ioctl(g, vfioGroupSetContain, unsafe.Pointer(&fd)); failed("SET_CONTAINER", err) {
		return t, fds
	}
	if err := ioctlValue(container, vfioSetIOMMU, vfioType1IOMMU); failed("SET_IOMMU", err) {
		return t, fds
	}
	name, err := unix.BytePtrFromString(address)
	if failed("address", err) {
		return t, fds
	}
	device, err := ioctl(g, vfioGroupGetDevice, unsafe.Pointer(name))
	if failed("GET_DEVICE_FD", err) {
		return t, fds
	}
	fds = append(fds, device)
	t.Device = true
	return t, fds
}

// ioctl passes a pointer, which must stay one until the call, and returns the kernel's answer.
func ioctl(fd int, request uintptr, argument unsafe.Pointer) (int, error) {
	answer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
	if errno != 0 {
		return 0, errno
	}
	return int(answer), nil
}

func ioctlValue(fd int, request, argument uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, argument); errno != 0 {
		return errno
	}
	return nil
}
