package vm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A Function is a PCI function that this process plays for QEMU, which has no device
// with a vendor of one's choice: its configuration space is answered from here, and
// its memory reads as zeros. QEMU knows it as x-pci-proxy-dev, the device of its
// multi-process mode (docs/devel/multi-process.rst, hw/remote/proxy.c), which asks a
// process at the other end of a socket for all that it is.
type Function struct {
	Vendor, Product                uint16
	SubsystemVendor, SubsystemName uint16
	Class                          uint16   // base class and subclass
	Memory                         []uint32 // the size of each BAR, a power of two
	Wide                           uint64   // the size of another BAR of 64 bits, at least 4 GiB; 0 for none
}

// The two functions of a Quadro K4200, the card of the talk.
var (
	k4200 = Function{
		Vendor: 0x10de, Product: 0x11b4, SubsystemVendor: 0x10de, SubsystemName: 0x1096, Class: 0x0300,
		Memory: []uint32{16 << 20, 64 << 20},
	}
	// A GPU with memory that is larger than the range of the emulated processor's addresses.
	huge = Function{
		Vendor: 0x10de, Product: 0x20b5, SubsystemVendor: 0x10de, SubsystemName: 0x1533, Class: 0x0302,
		Memory: []uint32{16 << 20}, Wide: 1 << 40,
	}
	k4200Audio = Function{
		Vendor: 0x10de, Product: 0x0e0a, SubsystemVendor: 0x10de, SubsystemName: 0x1096, Class: 0x0403,
		Memory: []uint32{16 << 10},
	}
)

// Offsets in configuration space (Linux, include/uapi/linux/pci_regs.h).
const (
	pciVendor      = 0x00
	pciCommand     = 0x04
	pciClass       = 0x0a
	pciHeaderType  = 0x0e
	pciBAR0        = 0x10
	pciSubsystem   = 0x2c
	pciLine        = 0x3c
	pciPin         = 0x3d
	configSize     = 256
	manyFunctions  = 0x80   // in the header type
	commandAllowed = 0x0407 // I/O, memory, bus master, no INTx

	widePrefetchable = 0xc // in a BAR
)

// space is a configuration space, and which bits of it can be written.
type space struct {
	bytes, mask [configSize]byte
}

func (f Function) space(siblings bool) *space {
	s := new(space)
	word := binary.LittleEndian.PutUint16
	word(s.bytes[pciVendor:], f.Vendor)
	word(s.bytes[pciVendor+2:], f.Product)
	word(s.bytes[pciClass:], f.Class)
	word(s.bytes[pciSubsystem:], f.SubsystemVendor)
	word(s.bytes[pciSubsystem+2:], f.SubsystemName)
	s.bytes[pciPin] = 1
	if siblings {
		s.bytes[pciHeaderType] = manyFunctions
	}
	word(s.mask[pciCommand:], commandAllowed)
	s.mask[pciLine] = 0xff
	for i, size := range f.Memory {
		binary.LittleEndian.PutUint32(s.mask[pciBAR0+4*i:], -size)
	}
	if f.Wide > 0 {
		at := pciBAR0 + 4*len(f.Memory)
		binary.LittleEndian.PutUint32(s.bytes[at:], widePrefetchable)
		binary.LittleEndian.PutUint64(s.mask[at:], -f.Wide)
	}
	return s
}

func (s *space) read(at, size int) (value uint64) {
	for i := range size {
		if at+i < configSize {
			value |= uint64(s.bytes[at+i]) << (8 * i)
		}
	}
	return value
}

func (s *space) write(at, size int, value uint32) {
	for i := range size {
		if at+i < configSize {
			b, mask := byte(value>>(8*i)), s.mask[at+i]
			s.bytes[at+i] = s.bytes[at+i]&^mask | b&mask
		}
	}
}

// What QEMU's device asks (include/hw/remote/mpqemu-link.h): a header with the
// command and the size of what follows, as C lays it out on this machine's kind.
const (
	cmdSyncMemory = iota
	cmdReturn
	cmdConfigWrite
	cmdConfigRead
	cmdBARWrite
	cmdBARRead
	cmdSetIRQ
	cmdReset
)

const headerSize = 16

// serve answers QEMU until it hangs up.
func (f Function) serve(line io.ReadWriter, siblings bool) error {
	config := f.space(siblings)
	for {
		var header [headerSize]byte
		if _, err := io.ReadFull(line, header[:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
				return nil
			}
			return err
		}
		size := binary.LittleEndian.Uint64(header[8:])
		if size > 4096 {
			return fmt.Errorf("QEMU sends %d bytes", size)
		}
		data := make([]byte, max(size, 24))
		if _, err := io.ReadFull(line, data[:size]); err != nil {
			return err
		}
		at, value, width := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:]), binary.LittleEndian.Uint32(data[8:])
		var answer uint64
		switch command := binary.LittleEndian.Uint32(header[:]); command {
		case cmdSyncMemory, cmdSetIRQ:
			continue // no answer is awaited
		case cmdConfigRead:
			answer = config.read(int(at), int(min(width, 4)))
		case cmdConfigWrite:
			config.write(int(at), int(min(width, 4)), value)
		case cmdBARRead, cmdBARWrite: // nothing is there
		case cmdReset:
			config = f.space(siblings)
		default:
			return fmt.Errorf("QEMU sends command %d", command)
		}
		reply := make([]byte, headerSize+8)
		binary.LittleEndian.PutUint32(reply, cmdReturn)
		binary.LittleEndian.PutUint64(reply[8:], 8)
		binary.LittleEndian.PutUint64(reply[headerSize:], answer)
		if _, err := line.Write(reply); err != nil {
			if errors.Is(err, unix.EPIPE) {
				return nil
			}
			return err
		}
	}
}

// A player plays functions for one QEMU.
type player struct {
	ends []*os.File // QEMU's
	all  sync.WaitGroup
	mu   sync.Mutex
	err  error
}

// play starts to answer for a function, and returns the number that the descriptor
// of QEMU's end will have there.
func (p *player) play(f Function, siblings bool) (fd int, err error) {
	for _, size := range f.Memory {
		if bits.OnesCount32(size) != 1 {
			return 0, fmt.Errorf("a BAR of %d bytes", size)
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "function"), os.NewFile(uintptr(pair[1]), "function")
	line, err := net.FileConn(ours)
	if err := errors.Join(err, ours.Close()); err != nil {
		return 0, errors.Join(err, theirs.Close())
	}
	p.ends = append(p.ends, theirs)
	p.all.Go(func() {
		err := f.serve(line, siblings)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = errors.Join(p.err, err, line.Close())
	})
	const firstInherited = 3
	return firstInherited + len(p.ends) - 1, nil
}

// started closes what QEMU has inherited.
func (p *player) started() (err error) {
	for _, end := range p.ends {
		err = errors.Join(err, end.Close())
	}
	p.ends = nil
	return err
}

// wait returns when QEMU has hung up on all functions.
func (p *player) wait() error {
	err := p.started()
	p.all.Wait()
	return errors.Join(err, p.err)
}
