// Package guard determines which PCI functions the host itself needs, because its file systems,
// swap, network connections or console depend on them, and which ones its processes have open.
//
// It does not determine which guests use a function (host/guest), and it refuses nothing: that is
// host/prepare's part.
package guard
