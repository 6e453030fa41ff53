// Package modprobe reads the modules of each installed kernel and modprobe's configuration, and
// plans gpustack's own configuration files.
//
// It does not load modules or decide which functions they bind (host/prepare).
package modprobe
