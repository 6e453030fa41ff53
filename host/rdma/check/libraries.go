package check

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/rdma"
)

// ReadVerbs reads the parts of libibverbs below a root, which may be that of a container's image.
func ReadVerbs(root host.Root) Verbs {
	return readVerbs(root)
}

// Refuses returns why programs with these libraries do not see an adapter, with the message that
// they print, or "" if they see it. Libraries of a driver that is not known are not judged, and
// neither is a root without libibverbs.
func (v Verbs) Refuses(a rdma.Adapter) (why, message string) {
	const noDevices = `"No IB devices found" (ibv_devinfo)`
	name := provider(a)
	libraries := slices.DeleteFunc(slices.Clone(v.Folders), func(f VerbsFolder) bool { return f.Library == "" })
	switch {
	case name == "", len(libraries) == 0:
		return "", ""
	case !slices.ContainsFunc(v.Drivers, func(d DriverLine) bool { return d.provider() == name }):
		return fmt.Sprintf("no file in %s has the line \"driver %s\"", driverDir, name), noDevices
	}
	for _, folder := range libraries {
		if found, reason := folder.serves(name, v.Drivers); !found {
			message = noDevices
			if folder.Private > 0 {
				message = fmt.Sprintf(`"libibverbs: Warning: couldn't load driver 'lib%s-rdmav%d.so': …: cannot open shared object file", `, name, folder.Private) + noDevices
			}
			return reason, message
		}
		accepted, known := driverABI(name)
		if !known || a.Verbs == nil || a.Verbs.ABI == nil {
			continue
		}
		// Older libraries accept nothing newer, and newer libraries nothing older.
		if abi := *a.Verbs.ABI; abi > accepted.max && folder.Private <= rdmaCore44 || abi < accepted.min && folder.Private >= rdmaCore44 {
			return fmt.Sprintf("its library for %s does not accept version %d of the driver's interface", name, abi),
				fmt.Sprintf(`"Driver %s does not support the kernel ABI of %d"`, name, abi)
		}
	}
	return "", ""
}
