package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is struct dm_ioctl (linux/dm-ioctl.h), and what a table with one target adds to it.
type mapping struct {
	Version                                         [3]uint32
	Size, Start, Targets, Open, Flags, Event, Unset uint32
	Device                                          uint64
	Name                                            [128]byte
	UUID                                            [129]byte
	Data                                            [7]byte
	FirstSector, Sectors                            uint64
	Status, Next                                    uint32
	Target                                          [16]byte
	Parameters                                      [64]byte
}

// Device mapper's requests: _IOWR(0xfd, number, struct dm_ioctl).
const (
	mapHeader = 312
	mapMake   = 3
	mapRemove = 4
	mapResume = 6
	mapLoad   = 9
)

// makeMap makes a device of device mapper that is the first MiB of a disk, as LVM does; without a
// disk it removes the device.
func makeMap(name, disk string) error {
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	requests := []uintptr{mapMake, mapLoad, mapResume}
	if disk == "" {
		requests = []uintptr{mapRemove}
	}
	for _, request := range requests {
		m := mapping{Version: [3]uint32{4}, Start: mapHeader}
		copy(m.Name[:], name)
		if request == mapLoad {
			m.Targets, m.Sectors = 1, 2048
			copy(m.Target[:], "linear")
			copy(m.Parameters[:], disk+" 0")
		}
		m.Size = uint32(binary.Size(m))
		var b bytes.Buffer
		if err := binary.Write(&b, binary.LittleEndian, m); err != nil {
			return err
		}
		code := uintptr(3)<<30 | mapHeader<<16 | 0xfd<<8 | request
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), code, uintptr(unsafe.Pointer(&b.Bytes()[0]))); errno != 0 {
			return fmt.Errorf("device mapper's request %d: %w", request, errno)
		}
	}
	return nil
}
