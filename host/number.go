package host

import (
	"fmt"
	"strings"
)

// Numbered returns a number with its noun: "1 GPU", "2 NVSwitches", "3 libraries".
func Numbered(n int, noun string) string {
	stem, ies := strings.CutSuffix(noun, "ry")
	switch {
	case n == 1:
	case ies:
		noun = stem + "ries"
	case strings.HasSuffix(noun, "ch"), strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
