// Package boot knows the kernel's arguments, and where boot loaders keep them.
//
// Does not: write files (host/edit), or run the programs that make menus of them.
package boot
