// Package selection decides which PCI functions may be assigned to guests: which functions options
// and the contract select, which others must be assigned with them, why a function is refused, and
// which options are accepted instead. It also determines the current state of each function.
//
// It does not read the machine (host/machine) or plan changes (host/prepare, host/bind).
package selection
