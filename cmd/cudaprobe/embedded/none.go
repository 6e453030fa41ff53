//go:build !cudaprobe || !(amd64 || arm64)

package embedded

var compressed []byte
