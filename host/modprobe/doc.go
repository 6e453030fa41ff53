// Package modprobe reads the modules of each installed kernel ([ReadModules]) and modprobe's
// configuration ([ReadConf]), and plans gpustack's own configuration files ([Functions.Plan]).
//
// It does not load modules or decide which functions they bind (host/prepare).
package modprobe
