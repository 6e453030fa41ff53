package ping

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Limits are how much memory a process may lock for RDMA.
type Limits struct {
	Memlock uint64 // RLIMIT_MEMLOCK, in bytes
	IPCLock bool   // CAP_IPC_LOCK is effective, which lifts the limit (capabilities(7))
}

// ReadLimits returns the limits of this process.
func ReadLimits() (Limits, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return Limits{}, fmt.Errorf("getrlimit(RLIMIT_MEMLOCK): %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return Limits{}, fmt.Errorf("capget: %w", err)
	}
	return Limits{limit.Cur, data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0}, nil
}

// Check returns an error if a process with the limits cannot register the memory of a test: two
// buffers of the size, and the pages of two messages. Whether a higher limit is enough depends on
// the adapter.
//
// Errors: ErrMemlock.
func (l Limits) Check(o Options) error {
	const page = 4096
	if least := uint64(2*(o.Size+page-1)/page*page + 2*page); !l.IPCLock && l.Memlock < least {
		return fmt.Errorf("%w: %d bytes, and messages of %d bytes need at least %d", ErrMemlock, l.Memlock, o.Size, least)
	}
	return nil
}

// CheckMemlock returns an error if this process cannot register the memory of a test.
func CheckMemlock(o Options) error {
	l, err := ReadLimits()
	if err != nil {
		return err
	}
	return l.Check(o)
}
