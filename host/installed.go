package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// PackageFile is the list of Debian's packages.
const PackageFile = "/var/lib/dpkg/status"

// Installed returns the versions, without their epochs, of what starts containers, of Nova and of its
// hypervisor that Debian's package manager has installed (deb-version(7)). On a machine without it
// there are none. The list of packages is read as a stream, and only these are recorded.
func Installed(root Root) (map[string]string, error) {
	names := []string{"docker.io", "docker-ce", "runc", "nova-common", "python3-nova", "libvirt-daemon", "qemu-system-x86", "qemu-system-arm"}
	f, err := root.Open(PackageFile)
	if IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	versions := map[string]string{}
	var kept strings.Builder
	name, installed := "", false
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadString('\n')
		switch key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); {
		case key == "Package":
			name, installed = value, false
		case key == "Status":
			installed = strings.HasSuffix(value, " installed")
		case key == "Version" && installed && slices.Contains(names, name):
			fmt.Fprintf(&kept, "Package: %s\nStatus: install ok installed\nVersion: %s\n\n", name, value)
			if _, after, ok := strings.Cut(value, ":"); ok {
				value = after
			}
			versions[name] = value
		}
		if errors.Is(err, io.EOF) {
			root.Record(PackageFile, []byte(kept.String()))
			return versions, nil
		}
		if err != nil {
			return nil, OfFile(PackageFile, err)
		}
	}
}
