// Package probe counts PCI functions inside a guest: it makes the script that the guest runs as
// user data, reads the result from the guest's console, and compares it with the devices that the
// guest should have. It is pure: values in, values out.
package probe
