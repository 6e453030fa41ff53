package host

import (
	"fmt"
	"path"
)

// ModulesDir holds a folder for each installed kernel (modprobe(8)). It is a link
// into usr where /lib is one.
const ModulesDir = "/lib/modules"

// Kernels returns the releases of the kernels that are installed: those whose
// modules are listed, by depmod or by the kernel's own build. None is no error.
func Kernels(root Root) ([]string, error) {
	names, err := root.ReadDir(ModulesDir)
	if IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ModulesDir, Cause(err))
	}
	var releases []string
	for _, name := range names {
		for _, list := range []string{"modules.dep", "modules.builtin"} {
			list = path.Join(ModulesDir, name, list)
			ok, err := root.Exists(list)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list, Cause(err))
			}
			if ok {
				releases = append(releases, name)
				break
			}
		}
	}
	return releases, nil
}
