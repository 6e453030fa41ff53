// Package modprobe knows which modules each installed kernel has, what modprobe
// is told about them, and the files in which gpustack tells it more.
//
// Does not: load modules, or decide which functions are bound by them
// (host/prepare).
package modprobe
