// Package cloud has the use cases that join a cloud with files, databases and the journal of this
// machine: what nova configure, nova check and nova explain read and plan ([ObserveConfiguration],
// [Check], [Explain]), flavors and images, and the undo of objects ([PlanUndo]).
//
// Each reads values of several subjects and hands them to the package that decides: nova,
// nova/novacheck, nova/explain. It prints nothing and asks nothing.
package cloud
