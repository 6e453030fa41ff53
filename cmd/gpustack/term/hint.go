package term

import (
	"errors"
	"io/fs"
	"net"

	"gpustack/host"
)

// Explain returns an error each of whose parts has these hints instead of its own.
func Explain(err error, hints []host.Text) error {
	return errors.Join(host.Map(host.Split(err), func(part error) error { return host.WithHint(part, lines(hints)) })...)
}

// lines returns several hints as one, which has a line for each.
func lines(hints []host.Text) (all host.Text) {
	for _, hint := range hints {
		if len(all) > 0 && len(hint) > 0 {
			all = append(all, host.Plain("\n")...)
		}
		all = append(all, hint...)
	}
	return all
}

// Hint returns the hint of a part of an error, nil for none: a line for each error that it wraps.
func Hint(err error) host.Text {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return lines(host.Map(several.Unwrap(), Hint))
	}
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
