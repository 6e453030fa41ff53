package guard

import (
	"errors"
	"strings"

	"gpustack/host"
)

// Connection returns SSH_CONNECTION of the ssh session that a process belongs to, or "" if it
// belongs to none. It reads the environments of the process and its ancestors, because sudo does
// not pass the variable on. The child of an ancestor that ends meanwhile belongs to another one.
func Connection(root host.Root, pid int) (string, error) {
	for child := 0; pid > 0; {
		connection, parent, err := connectionOf(root, pid)
		if child > 0 && host.HasEnded(err) {
			now, childErr := parentOf(root, child)
			if childErr != nil || now == pid {
				return "", errors.Join(err, childErr)
			}
			pid = now
			continue
		}
		if err != nil || connection != "" {
			return connection, err
		}
		child, pid = pid, parent
	}
	return "", nil
}

// connectionOf returns SSH_CONNECTION of a process, and its parent if it has none.
func connectionOf(root host.Root, pid int) (connection string, parent int, err error) {
	file := host.ProcessFile(pid, "environ")
	environ, err := root.ReadFile(file)
	if err != nil {
		return "", 0, err
	}
	for variable := range strings.SplitSeq(string(environ), "\x00") {
		if value, ok := strings.CutPrefix(variable, "SSH_CONNECTION="); ok {
			return value, 0, nil
		}
	}
	parent, err = parentOf(root, pid)
	return "", parent, err
}

func parentOf(root host.Root, pid int) (int, error) {
	file := host.ProcessFile(pid, "stat")
	text, err := root.ReadFile(file)
	var stat host.ProcessStat
	if err == nil {
		stat, err = host.ParseProcessStat(string(text))
	}
	if err != nil {
		return 0, host.OfFile(file, err)
	}
	return stat.Parent, nil
}
