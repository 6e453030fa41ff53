// Package journal remembers what was done to a machine, so that it can be taken
// back, and so that the next run can put right what a killed one left half done.
//
// An entry is written before anything is touched, and says for each file how to
// get from what was made of it back to what it was: the pieces of text that
// differ and no line beside them, so that no neighbour's secret gets into it.
//
// Does not: plan changes (host/edit and those above it), or print.
package journal
