// Package engine starts containers of images that are on this machine, for tests: with podman,
// docker or nerdctl, without root and without a capability, and with the devices that it is given.
// It pulls no image, and leaves no container behind. [Find] is where to begin.
package engine
