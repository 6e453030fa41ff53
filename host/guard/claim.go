package guard

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// ClaimCommand is the hidden command with which gpustack starts itself to claim a disk. "--" and
// the file follow.
const ClaimCommand = "claim-disk"

// Errors of Claim.
var (
	// ErrClaimed is the error of a disk that the kernel or a process uses, itself or a partition.
	ErrClaimed = host.WithHint(host.WithCode(errors.New("is in use: the kernel refuses to open it exclusively"), host.CodeInUse, ""),
		"'lsblk' and 'fuser -v' show what uses a disk")
	// ErrClaimTimeout is the error of a disk that does not answer.
	ErrClaimTimeout = host.WithHint(errors.New("opening it did not finish in time"), "the kernel log may say why: journalctl -k")
)

// Claim opens a disk exclusively in a process of its own, which keeps it open until it is released
// or this process ends. It is the second opinion on a disk that is about to leave the host:
// the kernel refuses it while anything has claimed the disk or a partition, which no file may show
// (open(2), O_EXCL; Linux, bd_may_claim in block/bdev.c). A mount meanwhile fails, so it is not for
// plans, checks and the boot. A disk that does not answer is an error after timeout.
func Claim(timeout time.Duration, disk string) (*host.Holding, error) {
	held, answer, err := host.HoldSelf(timeout, ClaimCommand, "--", disk)
	switch {
	case errors.Is(err, host.ErrTimeout):
		err = fmt.Errorf("%w (%s)", ErrClaimTimeout, timeout)
	case errors.Is(err, host.ErrStuck):
		err = fmt.Errorf("%w (%s): it is stuck in the kernel (uninterruptible sleep)", ErrClaimTimeout, timeout)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", disk, err)
	}
	number, err := strconv.Atoi(answer)
	if err == nil && number == 0 {
		return held, nil
	}
	released := held.Release()
	switch {
	case err != nil:
		err = fmt.Errorf("not a number: %q", answer)
	case unix.Errno(number) == unix.EBUSY:
		err = ErrClaimed
	default:
		err = unix.Errno(number)
	}
	return nil, errors.Join(fmt.Errorf("%s: %w", disk, err), released)
}

// ServeClaim is the work of that process: it prints the number of the kernel's error, or 0, and
// keeps the disk open until in ends.
func ServeClaim(disk string, in io.Reader, out io.Writer) error {
	fd, err := unix.Open(disk, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_EXCL|unix.O_CLOEXEC, 0)
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		errno = unix.EIO
	}
	if _, err := fmt.Fprintf(out, "%d\n", int(errno)); err != nil || errno != 0 {
		return err
	}
	io.Copy(io.Discard, in) //nolint:errcheck // an error ends it too
	unix.Close(fd)          //nolint:errcheck // only read from
	return nil
}
