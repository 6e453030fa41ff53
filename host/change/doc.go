// Package change is the engine of every change: the only code that begins, records, applies,
// recovers and undoes one.
//
// What is changed is a kind: files (in this package), drivers of PCI functions (host/driver), rows
// of Nova's databases (cleanup), objects of OpenStack's APIs (nova/flavor). A kind plugs in with
// two types:
//
//   - a [Kind], which makes a [Change] of a recorded [Entry];
//   - a [Change], planned or recorded: what the entry records of it, how it is applied and undone,
//     and how it is recovered after a run that was killed.
//
// The engine does the rest, the same for every kind:
//
//	Apply    lock, Check, record (applying), Change.Apply, programs (rebuilding), done
//	Undo     lock, Rewrite, Check, undoing, Change.Undo, programs (unbuilding), undone
//	Recover  lock, Check, Rewrite, Change.Recover or the programs that are left, done or undone
//
// A change answers each step with an [Outcome]: it stands, nothing of it remains, it is undone, or
// it is open, that is, only a later run can determine or end it. The engine turns that into the
// status of the entry. When ctx ends, a change ends its running step and rolls back what it must
// not leave half made; its error wraps the cause of ctx and says what was rolled back.
//
// Other programs may have changed the files since. [Files.Rewrite] adapts the entry: where the
// change is recorded by value ([edit.Meaning]), the entry then leads from what a file is now to
// what remains without these values. Another file that was edited prevents the undo.
//
// Where a change consists of steps that are made all or none, [Run] makes them and rolls back. A
// change whose parts stand by themselves, as transactions do, has its own loop and calls save
// before and after each part.
//
// To add a kind: a constant in host/journal for its name and the field that keeps its detail, a
// Kind and a Change beside the code that knows the subject, a line in [Left.Text] that says what
// ends an interrupted entry, and a case in cmd/gpustack's undo that shows it.
//
// What files configure may be in use: [Files.Permit] is asked before they are changed, and before
// the change is undone.
//
// It does not plan (host/edit and the packages above) and does not print.
package change
