// Package prepare makes a machine ready to give PCI functions to guests: it
// observes the machine, says what should be, plans the files that differ, and
// records the result as a contract that the machine can be held against after its
// reboot. Check does so, and says of any machine how far it has come.
//
// Does not: write anything (host/journal applies the plan), or bind functions now
// (host/driver).
package prepare
