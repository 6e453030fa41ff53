// Package prepare configures a machine so that its next boot binds PCI functions for guests: it
// determines the wanted configuration, plans the files that differ, and records the result as a
// contract with which host/check compares the machine after its reboot. It runs the programs that
// regenerate boot menus and initramfs images, and verifies what they wrote.
//
// It does not read the machine (host/machine), decide which functions are assigned
// (host/selection) or bind functions immediately (host/bind).
package prepare
