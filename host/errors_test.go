package host_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestSplit: what is printed as an error each is what was joined, and no text is lost.
func TestSplit(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"none":             {nil, nil},
		"one":              {a, []string{"a"}},
		"joined":           {errors.Join(a, errors.Join(nil, b)), []string{"a", "b"}},
		"wrapped":          {fmt.Errorf("x: %w", errors.Join(a, b)), []string{"x: a\nb"}},
		"both wrapped":     {fmt.Errorf("entry 1: %w: %w", a, b), []string{"entry 1: a: b"}},
		"joined, and both": {errors.Join(b, fmt.Errorf("%w: %w", a, b)), []string{"b", "a: b"}},
	} {
		hosttest.EqualIn(t, name, test.want, host.Map(host.Split(test.err), error.Error), cmpopts.EquateEmpty())
	}
}

// unread is an error whose text nobody asks for.
type unread struct{ *testing.T }

func (e unread) Error() string {
	e.T.Error("a text is read")
	return "unread"
}

// TestSplitReadsNoText: errors that a loop has joined one after the other are split without their
// texts, whose length grows with the square of their number.
func TestSplitReadsNoText(t *testing.T) {
	err := errors.Join(errors.Join(errors.Join(unread{t}), unread{t}), unread{t})
	hosttest.Equal(t, 3, len(host.Split(err)))
}
