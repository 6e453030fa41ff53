package guard

import "gpustack/host"

// text returns the content of a file of a process, for messages, or "" if it cannot be read.
func (g *guard) text(pid int, name string) string {
	data, _ := g.root.ReadFile(host.ProcessFile(pid, name))
	return string(data)
}

// opened returns the open files of a process; none if it has ended.
func (g *guard) opened(pid int) (files []host.Descriptor, err error) {
	_, err = host.ReadThreads(g.root, pid, func(thread int) (err error) {
		files, err = host.Descriptors(g.root, thread)
		return err
	})
	return files, err
}
