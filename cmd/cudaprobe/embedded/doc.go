// Package embedded carries cudaprobe in gpustack, if it was built with the tag cudaprobe: make
// build and make dist build cudaprobe for the same architecture before. A plain go build carries
// none. [Program] is all of it.
package embedded
