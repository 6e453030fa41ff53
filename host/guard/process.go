package guard

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
)

// text returns the content of a file of a process, for messages, or "" if it cannot be read.
func (g *guard) text(pid int, name string) string {
	data, err := g.root.ReadFile(host.ProcessFile(pid, name))
	if err != nil {
		return ""
	}
	return string(data)
}

func (g *guard) line(pid int, name string) string {
	line, _, _ := strings.Cut(g.text(pid, name), "\n")
	return line
}

// command returns the name of a process, for messages.
func (g *guard) command(pid int) string {
	name := g.line(pid, "comm")
	if name == "" {
		return fmt.Sprintf("process %d", pid)
	}
	if c := container(g.text(pid, "cgroup")); c.ID != "" {
		return fmt.Sprintf("%s (pid %d, %s)", name, pid, c)
	}
	return fmt.Sprintf("%s (pid %d)", name, pid)
}

// opened returns the open files of a process; none if it has ended.
func (g *guard) opened(pid int) (files []host.Descriptor, err error) {
	_, err = host.ReadThreads(g.root, pid, func(thread int) (err error) {
		files, err = host.Descriptors(g.root, thread)
		return err
	})
	return files, err
}

// openedByName is opened, ordered by name.
func (g *guard) openedByName(pid int) ([]host.Descriptor, error) {
	files, err := g.opened(pid)
	slices.SortFunc(files, func(a, b host.Descriptor) int { return strings.Compare(a.Name, b.Name) })
	return files, err
}
