// Package prepare makes a machine ready to assign PCI functions to guests at its next boot: it
// says what should be, plans the files that differ, and records the result as a contract that the
// machine is compared with after its reboot (host/check). It runs the programs that regenerate
// boot menus and initramfs, and verifies what they wrote.
//
// Does not: read the machine (host/machine), decide which functions are assigned (host/selection),
// or bind functions now (host/bind).
package prepare
