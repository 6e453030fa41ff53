//go:build cudaprobe

package embedded

import _ "embed"

//go:embed cudaprobe-amd64
var program []byte

// Program returns cudaprobe for this architecture, nil if this binary carries none.
func Program() []byte { return program }
