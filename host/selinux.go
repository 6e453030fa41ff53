package host

import (
	"fmt"
	"path"
	"strings"
)

// SELinuxDir is the file system in which the kernel shows SELinux.
const SELinuxDir = "/sys/fs/selinux"

// SELinux is what the kernel shows of SELinux.
type SELinux struct {
	Enforcing bool
	// Devices is the boolean container_use_devices, with which containers may use device nodes of the
	// machine (container-selinux, container.te).
	Devices bool
}

// DeniesDevices reports whether containers are denied device nodes of the machine unless they run
// without SELinux labels.
func (s SELinux) DeniesDevices() bool {
	return s.Enforcing && !s.Devices
}

// ReadSELinux reads SELinux. Without it, nothing is enforced.
func ReadSELinux(root Root) (s SELinux, err error) {
	read := func(name string) (bool, error) {
		data, err := root.ReadFile(path.Join(SELinuxDir, name))
		if IsAbsent(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", path.Join(SELinuxDir, name), Cause(err))
		}
		return strings.HasPrefix(string(data), "1"), nil // a boolean is "1 1": its value now, and pending
	}
	if s.Enforcing, err = read("enforce"); err != nil || !s.Enforcing {
		return s, err
	}
	s.Devices, err = read("booleans/container_use_devices")
	return s, err
}
