package term

import (
	"errors"
	"io/fs"
	"net"

	"gpustack/host"
)

// explained is an error whose hints replace those of its parts.
type explained struct {
	error
	hints []host.Text
}

// Unwrap returns the error in the form that [host.Split] accepts.
func (e *explained) Unwrap() []error {
	return []error{e.error}
}

// Explain returns an error with these hints instead of those of its parts.
func Explain(err error, hints []host.Text) error {
	return &explained{err, hints}
}

// Explained returns the hints of an error that [Explain] has returned, and false for another error.
func Explained(err error) (hints []host.Text, ok bool) {
	if e, ok := err.(*explained); ok { //nolint:errorlint // only the outermost one applies
		return e.hints, true
	}
	return nil, false
}

// Hints returns the hints of an error, in the order of its parts.
func Hints(err error) []host.Text {
	if given, ok := Explained(err); ok {
		return given
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return host.FlatMap(joined.Unwrap(), Hints)
	}
	if h := Hint(err); len(h) > 0 {
		return []host.Text{h}
	}
	return nil
}

// Hint returns the hint of an error, nil for none.
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
