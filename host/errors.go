package host

// Split returns the errors that err joins, each a part of its own, in their order: none for nil.
func Split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, Split(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
