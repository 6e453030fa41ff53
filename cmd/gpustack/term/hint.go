package term

import (
	"errors"
	"io/fs"
)

// explained is an error whose hints replace those of its parts.
type explained struct {
	error
	hints []string
}

// Unwrap returns the error in the form that [host.Split] accepts.
func (e *explained) Unwrap() []error {
	return []error{e.error}
}

// Explain returns an error with these hints instead of those of its parts.
func Explain(err error, hints []string) error {
	return &explained{err, hints}
}

// Explained returns the hints of an error that [Explain] has returned, and false for another error.
func Explained(err error) (hints []string, ok bool) {
	if e, ok := err.(*explained); ok { //nolint:errorlint // only the outermost one applies
		return e.hints, true
	}
	return nil, false
}

// Hints returns the hints of an error, in the order of its parts.
func Hints(err error) []string {
	if given, ok := Explained(err); ok {
		return given
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, Hints(e)...)
		}
		return all
	}
	if h := Hint(err); h != "" {
		return []string{h}
	}
	return nil
}

// Hint returns the hint of an error, or "".
func Hint(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	if errors.Is(err, fs.ErrPermission) {
		return "run gpustack as root"
	}
	return ""
}
