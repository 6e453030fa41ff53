package host

import (
	"regexp"
	"sync"
)

// LazyRegexp returns a function that returns the regular expression expr. Its first call compiles
// it: a run uses few of the program's expressions, and compiling all of them takes longer than
// everything else that happens before main. Like [regexp.MustCompile], that call panics if expr is
// not a regular expression.
func LazyRegexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
