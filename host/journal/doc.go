// Package journal stores the record of changes of a machine: its entries, their lock and their
// list. [Store.Lock] opens it for writing, [Store.Observe] reads it without a lock.
//
// An entry is written before anything is changed. For each file it contains what is needed to
// restore the content before the change from the content after it: only the parts of text that
// differ, without the lines around them, so that no secret of a neighbouring line is recorded.
//
// It does not apply, recover or undo a change: that is the task of host/change, the only package
// that imports this one.
package journal
