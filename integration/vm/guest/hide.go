package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// hide opens a function and keeps the descriptor only as a message in a socket that no process
// receives (unix(7), SCM_RIGHTS): the function is in use, and no process has it among its open
// files. It ends, and the function is closed, when it is killed.
func hide(group, address string) error {
	t, fds := take(group, address)
	if !t.Device {
		return fmt.Errorf("%s: %s: %s", address, t.Step, t.Err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(pair[0], []byte("held"), unix.UnixRights(fds...), nil, 0); err != nil {
		return err
	}
	for _, fd := range fds {
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	fmt.Println("hidden")
	return unix.Pause()
}
