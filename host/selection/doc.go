// Package selection decides which PCI functions may be assigned to guests: what options and the
// contract select, what goes with it, why a function is refused, and which options are accepted
// instead. It also says what each function is to guests now.
//
// Does not: read the machine (host/machine), or plan changes (host/prepare, host/bind).
package selection
