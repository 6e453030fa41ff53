package term

import (
	"errors"
	"io/fs"
	"net"

	"gpustack/host"
)

// Explain returns an error each of whose parts has these hints, a line for each, instead of its
// own.
func Explain(err error, hints []host.Text) error {
	var lines host.Text
	for i, hint := range hints {
		if i > 0 {
			hint = append(host.Plain("\n"), hint...)
		}
		lines = append(lines, hint...)
	}
	return errors.Join(host.Map(host.Split(err), func(part error) error { return host.WithHint(part, lines) })...)
}

// Hint returns the hint of a part of an error, nil for none.
func Hint(err error) host.Text {
	var network *net.OpError
	switch hint := host.HintOf(err); {
	case hint != nil:
		return hint
	case !errors.Is(err, fs.ErrPermission):
		return nil
	case errors.As(err, &network):
		return host.Plain("a rule of this machine, such as a firewall's, denies the connection")
	}
	return host.AsRoot()
}
