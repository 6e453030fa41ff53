package nova

import (
	"path"
	"strings"

	"gpustack/nova/conf"
)

// HostNames returns the possible names of the host of a side: the option host, or else the names of
// the files and of their folders.
func (s Side) HostNames() (names []string) {
	if found := s.Find(conf.Name{Section: "DEFAULT", Key: "host"}); len(found) > 0 {
		return []string{found[len(found)-1].Value}
	}
	for _, f := range s.Files {
		names = append(names, strings.TrimSuffix(path.Base(f.Name), ".conf"), path.Base(path.Dir(f.Name)))
	}
	return names
}
