// Package selection decides which PCI functions may be assigned to guests: which functions options
// and the contract select ([Node.Choose]), which others must be assigned with them, and which
// options are accepted instead of refused ones. It also determines the current state of each
// function ([Node.States]).
//
// It does not read the machine (host/machine), refuse functions (host/gate) or plan changes
// (host/prepare, host/bind).
package selection
