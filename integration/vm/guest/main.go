// Command guest is this package's own part inside a machine: the init of the small
// one, a service of the Debian one, and what tests ask of the kernel that no program
// of Debian's can: whether VFIO would let a guest have a group.
//
//	guest                     serves requests on the second serial port, as process 1 too
//	guest vfio GROUP ADDRESS  takes a function as QEMU would, and says how far it came
//	guest hold FILE...        opens files, says so, and holds them
//	guest hide GROUP ADDRESS  takes a function as vfio does, so that no process shows it
//	guest map NAME DISK       makes a device of device mapper; without a disk, removes it
//	podman ...                plays podman, of which it is another name
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/integration/vm/agent"
)

func main() {
	run, failed := run, 1
	if filepath.Base(os.Args[0]) == "podman" {
		run, failed = podman, 125 // podman-run(1)
	}
	err := run(os.Args[1:])
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		os.Exit(exit.ExitCode()) // of a container, which has said why
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(failed)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		return serve()
	case len(args) == 3 && args[0] == "vfio":
		return vfio(args[1], args[2])
	case len(args) >= 2 && args[0] == "hold":
		return hold(args[1:])
	case len(args) == 2 && args[0] == "map":
		return makeMap(args[1], "")
	case len(args) == 3 && args[0] == "map":
		return makeMap(args[1], args[2])
	case len(args) == 3 && args[0] == "hide":
		return hide(args[1], args[2])
	}
	return fmt.Errorf("unknown arguments %q", args)
}

// port is the second serial port: its driver is part of every kernel, so that talking
// needs no module and no PCI function.
const port = "/dev/ttyS1"

func serve() error {
	if os.Getpid() == 1 {
		if err := initialize(); err != nil {
			return err // the kernel panics, and says why on the console
		}
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	line, err := os.OpenFile(port, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	if err := raw(line); err != nil {
		return err
	}
	return agent.Serve(line, strings.TrimSpace(string(boot)))
}

// raw has the port pass bytes as they are.
func raw(line *os.File) error {
	fd := int(line.Fd())
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("%s: %w", port, err)
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

// hold keeps files open until it is killed.
func hold(names []string) error {
	for _, name := range names {
		if _, err := unix.Open(name, unix.O_RDWR, 0); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	fmt.Println("held")
	return unix.Pause()
}
