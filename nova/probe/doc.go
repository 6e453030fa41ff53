// Package probe counts PCI functions inside a guest: [Script] is what the guest runs as user data,
// [Parse] reads the result from the guest's console, and [Compare] compares it with the devices
// that the guest should have.
//
// It is pure, values in and values out: it boots no guest and connects to nothing.
package probe
