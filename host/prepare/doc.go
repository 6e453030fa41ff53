// Package prepare configures a machine so that its next boot binds PCI functions for guests:
// [NewWant] determines the wanted configuration, [NewPlan] plans the files that differ, and the
// record is a contract with which host/check compares the machine after its reboot. [Rebuild] runs
// the programs that regenerate boot menus and initramfs images, and verifies what they wrote.
//
// It does not read the machine (host/machine), decide which functions are assigned
// (host/selection) or bind functions immediately (host/bind).
package prepare
