package host

import (
	"errors"
	"reflect"
)

// Split returns the errors that err joins, each a part of its own, in their order: none for nil. An
// error that wraps several in a text of its own is one part.
func Split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	// Joins of joins, as a loop makes them, have long texts, which are not compared.
	if ok && (reflect.TypeOf(err) == reflect.TypeOf(errors.Join(err)) || errors.Join(joined.Unwrap()...).Error() == err.Error()) {
		return FlatMap(joined.Unwrap(), Split)
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
