package host_test

import (
	"errors"
	"fmt"
	"testing"

	"gpustack/host"
)

// TestWithHint: a hint is found through errors that wrap it, and the outermost one counts.
func TestWithHint(t *testing.T) {
	errFull := host.WithHint(errors.New("disk full"), "free some space")
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"wrapped", fmt.Errorf("/etc/x: %w", errFull), "free some space"},
		{"hint of its own", host.WithHint(fmt.Errorf("/boot/x: %w", errFull), "remove old kernels"), "remove old kernels"},
	} {
		var hinted interface{ Hint() string }
		if !errors.As(test.err, &hinted) || hinted.Hint() != test.want || !errors.Is(test.err, errFull) {
			t.Errorf("%s: %v", test.name, hinted)
		}
	}
}
