//go:build !cudaprobe || !(amd64 || arm64)

package embedded

// Program returns cudaprobe for this architecture, nil if this binary carries none.
func Program() []byte { return nil }
