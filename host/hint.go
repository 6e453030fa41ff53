package host

// hinted is an error together with what to do about it.
type hinted struct {
	err  error
	hint string
}

// WithHint returns err with a hint: what an operator can do about it, best a command that can be
// copied. The error has a method Hint() string, by which a caller finds the hint with errors.As;
// the outermost hint of a chain counts. Its text is that of err, and errors.Is and errors.As find
// err in it.
//
// Sentinel errors are made with it, so that each error carries its hint from where it is made:
//
//	var ErrLocked = host.WithHint(errors.New("another gpustack is changing this machine"), "wait until it is done")
func WithHint(err error, hint string) error {
	return &hinted{err, hint}
}

func (h *hinted) Error() string { return h.err.Error() }

// Unwrap returns the error without its hint.
func (h *hinted) Unwrap() error { return h.err }

// Hint returns what to do about the error.
func (h *hinted) Hint() string { return h.hint }
