package host

import (
	"errors"
	"io/fs"
	"strings"
)

// FileError is the error of a file or folder below a root. Its text is the path on that machine and
// the cause, as all messages show them.
type FileError struct {
	Name string // absolute, without the root
	Err  error
}

// OfFile returns err as the error of a file below a root, without the operation and path that the
// standard library adds, or nil for nil.
func OfFile(name string, err error) error {
	if err == nil {
		return nil
	}
	return &FileError{Name: "/" + strings.TrimPrefix(name, "/"), Err: Cause(err)}
}

func (e *FileError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// IsAbsent reports whether err means that a file does not exist, as opposed to a file that
// cannot be read. It is false for ENOTDIR, a file in place of a directory.
func IsAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist)
}

// IfPresent returns what a method of [Root] has read, or nothing if the file or folder is absent.
func IfPresent[T any](read T, err error) (T, error) {
	if IsAbsent(err) {
		var nothing T
		return nothing, nil
	}
	return read, err
}

// Cause returns err without the file that a [FileError] names, or without the operation and path of
// the standard library, for messages that name the file in their own way.
func Cause(err error) error {
	if file, ok := err.(*FileError); ok { //nolint:errorlint // what wraps it says more than the file
		return file.Err
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
