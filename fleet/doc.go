// Package fleet evaluates the documents that gpustack has printed on many compute nodes: the output
// of host scan, host check and host guests, which [Read] reads. [Fleet.Layouts] finds layouts and
// [Fleet.Odd] the nodes that differ from theirs, [Diff] differences between two collections, and
// [Fleet.Plan] the order in which nodes can be taken out of service. It connects to no node: what
// brings the documents is the operator's.
//
// What a document does not show is unknown. A GPU counts as free only if the scan shows that it is
// ready for guests and a complete guest report shows that none has it: a guest that is powered off
// has its GPUs too, and host scan does not see it.
package fleet
