// Package embedded carries cudaprobe in gpustack, compressed, if it was built with the tag cudaprobe:
// make build and make dist build cudaprobe for the same architecture before. A plain go build carries
// none. [Program] is all of it.
package embedded

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// Program returns cudaprobe for this architecture, nil if this binary carries none.
func Program() ([]byte, error) {
	if compressed == nil {
		return nil, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("the embedded cudaprobe: %w", err)
	}
	return io.ReadAll(r)
}
