package machine

// Look is what was read of a machine, or why it was not: an absent file, an unreadable one and
// malformed content are told apart by the error.
type Look[T any] struct {
	Value T      // the zero value unless Err is nil
	File  string // on the machine
	Err   error
}

// Saw returns what was read of a file, with the error of reading it.
func Saw[T any](file string, value T, err error) Look[T] {
	return Look[T]{value, file, err}
}

// Seen reports whether it was read.
func (l Look[T]) Seen() bool {
	return l.Err == nil
}
