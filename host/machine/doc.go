// Package machine observes a machine: its PCI functions and their drivers, how it boots, what host
// prepare has recorded, and which guests and processes use functions. It is the only observer, with
// a function for each kind of command: [ObserveScan], [ObserveCheck], [ObservePrepare],
// [ObserveDrivers] and [ObserveRecord]. Each field distinguishes values that were read, are absent,
// or could not be read.
//
// It does not judge a machine (host/check), select functions (host/selection) or write anything.
package machine
