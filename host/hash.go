package host

import (
	"crypto/sha256"
	"fmt"
)

// Hash returns the hash of a content, as records and documents have it: "sha256:" and a hexadecimal
// number.
func Hash(content []byte) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(content))
}
