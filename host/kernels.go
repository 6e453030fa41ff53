package host

import (
	"path"
)

// ModulesDir contains a directory for each installed kernel (modprobe(8)). Where /lib is a link
// to usr/lib, it lies below /usr.
const ModulesDir = "/lib/modules"

// Kernels returns the releases of the installed kernels: those with a list of modules, written
// by depmod or by the kernel's build. A machine without any is not an error.
func Kernels(root Root) ([]string, error) {
	names, err := IfPresent(root.ReadDir(ModulesDir))
	if err != nil {
		return nil, err
	}
	var releases []string
	for _, name := range names {
		for _, list := range []string{"modules.dep", "modules.builtin"} {
			list = path.Join(ModulesDir, name, list)
			ok, err := root.Exists(list)
			if err != nil {
				return nil, err
			}
			if ok {
				releases = append(releases, name)
				break
			}
		}
	}
	return releases, nil
}
