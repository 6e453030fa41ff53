// Package cdi reads the specs of the Container Device Interface, by which podman, docker,
// containerd and CRI-O give devices to containers, and judges them: what the CDI library says of a
// file, what it does not see, and which device a name leads to. [Read] reads both folders. It
// writes nothing and starts no program.
//
// The library is tags.cncf.io/container-device-interface v1.1.1: its parser and its validators
// judge here too, on bytes and values, because its own readers follow links out of a root.
package cdi
