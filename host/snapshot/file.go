package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"gpustack/host"
)

// WriteFile writes the tree to a new file in the format of its name. On an error it leaves no file.
func (t *Tree) WriteFile(file string) error {
	format, err := FormatOf(file)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return host.WithHint(fmt.Errorf("%s: exists already", file), "choose another name, or remove it")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, host.Cause(err))
	}
	if err := errors.Join(t.Write(out, format), out.Sync(), out.Close()); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", file, err), os.Remove(file))
	}
	return nil
}

// ReadFile reads a tree from a file in the format of its name, or from in for [Standard].
func ReadFile(file string, in io.Reader) (*Tree, error) {
	if file == Standard {
		tree, err := readAny(in)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return tree, nil
	}
	format, err := FormatOf(file)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, host.WithHint(fmt.Errorf("%s: %w", file, host.Cause(err)),
			host.Textf("on the machine, '%s' writes it", host.NewCommand("host snapshot").Arg(filepath.Base(file)).Elsewhere()))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, host.Cause(err))
	}
	defer f.Close() //nolint:errcheck // only read from
	tree, err := Read(f, format)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return tree, nil
}
