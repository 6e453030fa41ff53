// Package guard determines which PCI functions the host itself needs (those that carry
// its file systems and swap, its network connections and its console) and which its
// processes have open.
//
// Does not: know which guests use a function (host/guest), or refuse anything
// (host/prepare).
package guard
