package host

import (
	"fmt"
	"path"
)

// ModulesDir holds a folder for each installed kernel (modprobe(8)). It is a link
// into usr where /lib is one.
const ModulesDir = "/lib/modules"

// Kernels returns the releases of the kernels that are installed: those that
// depmod has listed the modules of. None is no error.
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
		list := path.Join(ModulesDir, name, "modules.dep")
		switch ok, err := root.Exists(list); {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", list, Cause(err))
		case ok:
			releases = append(releases, name)
		}
	}
	return releases, nil
}
