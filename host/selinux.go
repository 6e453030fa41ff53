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
	// machine (container-selinux, container.te); Unknown if the policy has none.
	Devices Bool
}

// DeniesDevices reports whether containers are denied device nodes of the machine unless they run
// without SELinux labels.
func (s SELinux) DeniesDevices() bool {
	return s.Enforcing && s.Devices != Yes
}

// ReadSELinux reads SELinux. Without it, nothing is enforced.
func ReadSELinux(root Root) (s SELinux, err error) {
	read := func(name string) (Bool, error) {
		file := path.Join(SELinuxDir, name)
		data, err := root.ReadFile(file)
		if IsAbsent(err) {
			return Unknown, nil
		}
		if err != nil {
			return Unknown, err
		}
		text := strings.TrimSpace(string(data))
		on := strings.HasPrefix(text, "1") // a boolean is "1 1": its value now, and pending
		if !on && !strings.HasPrefix(text, "0") {
			return Unknown, fmt.Errorf("%s: %q is neither 0 nor 1", file, text)
		}
		return BoolOf(on), nil
	}
	enforcing, err := read("enforce")
	if err != nil || enforcing != Yes {
		return s, err
	}
	s.Enforcing = true
	s.Devices, err = read("booleans/container_use_devices")
	return s, err
}
