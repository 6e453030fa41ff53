package machine

// Look is a value that was read from a machine, or the error of reading it, which distinguishes
// absent files, unreadable files and malformed content.
type Look[T any] struct {
	Value T      // the zero value if Err is set
	File  string // its path on the machine
	Err   error
}

// Saw returns the Look for a value read from a file and the error of reading it.
func Saw[T any](file string, value T, err error) Look[T] {
	return Look[T]{value, file, err}
}

// Seen reports whether the value was read.
func (l Look[T]) Seen() bool {
	return l.Err == nil
}
