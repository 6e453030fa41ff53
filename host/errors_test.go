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
