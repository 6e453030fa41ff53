package term

import (
	"context"
	"errors"
	"io"
	"testing"
)

// TestChangeAfterInterrupt: a change that a question needs is restored by a signal, and is not made
// after one.
func TestChangeAfterInterrupt(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		var r Run
		changed := false
		if interrupted {
			r.Interrupt(io.Discard)
		}
		_, err := r.change(func() error { changed = true; return nil }, func() { changed = false })
		if !errors.Is(err, context.Canceled) == interrupted || changed == interrupted {
			t.Errorf("after a signal %t: changed %t, %v", interrupted, changed, err)
		}
		r.Interrupt(io.Discard)
		if changed {
			t.Errorf("after a signal %t: not restored", interrupted)
		}
	}
}
