package host

// Split returns the errors that err joins, each a part of its own, in their order: none for nil.
func Split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return FlatMap(joined.Unwrap(), Split)
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
