package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// podman plays the engine of that name, which is too slow for an emulated machine: it writes the
// specification of a container, into which the CDI library injects devices, and starts runc. The
// image is the machine's own file tree.
func podman(args []string) error {
	switch {
	case len(args) >= 2 && args[0] == "image" && args[1] == "inspect":
		fmt.Println("machine") // the id
		return nil
	case len(args) >= 2 && args[0] == "rm":
		return start("delete", "--force", args[len(args)-1])
	case len(args) >= 1 && args[0] == "run":
		return contain(args[1:])
	}
	return fmt.Errorf("unknown arguments %q", args)
}

// start runs runc.
func start(args ...string) error {
	cmd := exec.Command("runc", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// contain runs a container with the options that rdma test gives to podman. Of other options it
// would not know what they mean.
func contain(args []string) error {
	spec := podmanSpec()
	o, err := parseContainer(spec, args)
	if err != nil {
		return err
	}
	// This machine has no /var/run.
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs("/etc/cdi", "/run/cdi"))
	if err != nil {
		return err
	}
	if _, err := cache.InjectDevices(spec, o.devices...); err != nil {
		return err
	}
	bundle := filepath.Join("/run/bundles", o.name)
	defer os.RemoveAll(bundle)
	spec.Root = &oci.Root{Path: filepath.Join(bundle, "root")}
	spec.Linux.CgroupsPath = "/" + o.name
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(spec.Root.Path, 0o755), os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644)); err != nil {
		return err
	}
	// The root of an initramfs cannot be replaced by pivot_root(2).
	return start("run", "--no-pivot", "--bundle", bundle, o.name)
}

// podmanSpec returns what podman gives a container without options.
func podmanSpec() *oci.Spec {
	spec := &oci.Spec{
		Version: oci.Version,
		Process: &oci.Process{
			Cwd: "/", Env: []string{"PATH=" + os.Getenv("PATH")},
			Capabilities: &oci.LinuxCapabilities{},
			// The limit that podman gives by default.
			Rlimits: []oci.POSIXRlimit{{Type: "RLIMIT_MEMLOCK", Hard: 8 << 20, Soft: 8 << 20}},
		},
		Mounts: []oci.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro", "nosuid", "noexec", "nodev"}},
			{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs"},
		},
		Linux: &oci.Linux{
			Namespaces: []oci.LinuxNamespace{{Type: oci.PIDNamespace}, {Type: oci.MountNamespace}, {Type: oci.IPCNamespace}, {Type: oci.UTSNamespace}},
			Resources:  &oci.LinuxResources{Devices: []oci.LinuxDeviceCgroup{{Access: "rwm"}}},
		},
	}
	for _, dir := range []string{"/usr", "/bin", "/lib64", "/etc"} {
		spec.Mounts = append(spec.Mounts, oci.Mount{Destination: dir, Type: "bind", Source: dir, Options: []string{"rbind", "ro"}})
	}
	return spec
}

// containerOptions are the options of a container that are not in its spec.
type containerOptions struct {
	name    string
	devices []string // names of CDI
}

// parseContainer applies the arguments of podman run to a spec.
func parseContainer(spec *oci.Spec, args []string) (containerOptions, error) {
	o := containerOptions{name: "container"}
	for len(args) > 0 && strings.HasPrefix(args[0], "--") {
		option := args[0]
		if args = args[1:]; option == "--rm" {
			continue
		}
		if len(args) == 0 {
			return o, fmt.Errorf("%s: no value", option)
		}
		value := args[0]
		args = args[1:]
		switch option + " " + value {
		case "--pull never", "--network host", "--cap-drop ALL", "--log-driver none":
			continue
		case "--security-opt no-new-privileges":
			spec.Process.NoNewPrivileges = true
			continue
		case "--network none":
			spec.Linux.Namespaces = append(spec.Linux.Namespaces, oci.LinuxNamespace{Type: oci.NetworkNamespace})
			continue
		}
		switch option {
		case "--timeout":
		case "--name":
			o.name = value
		case "--user":
			user, group, _ := strings.Cut(value, ":")
			uid, badUser := strconv.ParseUint(user, 10, 32)
			gid, badGroup := strconv.ParseUint(group, 10, 32)
			if err := errors.Join(badUser, badGroup); err != nil {
				return o, err
			}
			spec.Process.User = oci.User{UID: uint32(uid), GID: uint32(gid)}
		case "--device":
			o.devices = append(o.devices, value)
		case "--entrypoint":
			spec.Process.Args = []string{value}
		default:
			return o, fmt.Errorf("unknown option %s %s", option, value)
		}
	}
	if len(args) == 0 {
		return o, errors.New("no image")
	}
	spec.Process.Args = append(spec.Process.Args, args[1:]...) // after the image
	return o, nil
}
