package host

import (
	"errors"
	"os"
)

// hinted is an error together with what to do about it.
type hinted struct {
	err  error
	hint Text
}

// WithHint returns err with a hint: what an operator can do about it, best a command that can be
// copied ([Textf]). The error has a method Hint() string, by which a caller finds the hint with
// errors.As; the outermost hint of a chain counts. Its text is that of err, and errors.Is and
// errors.As find err in it.
//
// Sentinel errors are made with it, so that each error carries its hint from where it is made:
//
//	var ErrLocked = host.WithHint(errors.New("another gpustack is changing this machine"), "wait until it is done")
func WithHint[T string | Text](err error, hint T) error {
	return &hinted{err, Textf("%s", hint)}
}

func (h *hinted) Error() string { return h.err.Error() }

// Unwrap returns the error without its hint.
func (h *hinted) Unwrap() error { return h.err }

// Hint returns what to do about the error.
func (h *hinted) Hint() string { return h.hint.String() }

// HintText returns what to do about the error, with commands as parts.
func (h *hinted) HintText() Text { return h.hint }

// AsRoot returns the hint for what a lack of permission prevented. What root itself may not do,
// root has to do elsewhere.
func AsRoot() Text { return asRoot(os.Geteuid()) }

func asRoot(uid int) Text {
	if uid == 0 {
		return Plain("root has no permission for it here, as in a container or on a read-only or network file system: " +
			"run gpustack on the host itself, outside of containers")
	}
	return Plain("run gpustack as root")
}

// HintOf returns the outermost hint of an error with its commands as parts, nil for none. An error
// that has a method Hint() string alone has no such parts.
func HintOf(err error) Text {
	var outermost interface{ Hint() string }
	if !errors.As(err, &outermost) {
		return nil
	}
	if h, ok := outermost.(interface{ HintText() Text }); ok {
		return h.HintText()
	}
	return Plain(outermost.Hint())
}
