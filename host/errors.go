package host

import "errors"

// Split returns the errors that err joins, each a part of its own, in their order: none for nil. An
// error that wraps several in a text of its own is one part.
func Split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if ok && errors.Join(joined.Unwrap()...).Error() == err.Error() {
		return FlatMap(joined.Unwrap(), Split)
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
