// Package containertest starts a container with a GPU and proves that CUDA computes in it: with the
// program cudaprobe, which gpustack carries, or with a command of the image. [Observe] is where to
// begin. It pulls no image, and leaves no container and no file behind.
package containertest
