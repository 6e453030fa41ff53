// Package hardware reads the facts of a machine that its PCI functions do not show ([Read]):
// product, BIOS and board, CPUs, memory and huge pages of each NUMA node, disks and network
// interfaces.
//
// Values come from jaypipes/ghw, which reports neither what it could not read nor what it left
// out: a file without an answer is "unknown", 0 or false, an unreadable folder an empty list, and
// one odd NUMA node ends the list. So every file that ghw reads is read here first, below the root:
// what is absent, unreadable or malformed there is nil, with a warning that names the file. A
// subject for which ghw would leave the root, or wait for a pipe, is not read with ghw at all.
//
// Serial numbers, UUIDs and MAC addresses are never read for the result: inventories are sent to
// other machines, and nothing in them needs more than the product and the PCI address.
package hardware
