// Package journal stores what was done to a machine: the entries, their lock and their list.
//
// An entry is written before anything is touched. It says for each file how to get from what it
// became back to what it was: the pieces of text that differ and no line beside them, so that no
// secret of a neighbouring line gets into it.
//
// It does not apply, recover or undo a change: that is host/change, the only package that
// imports this one.
package journal
