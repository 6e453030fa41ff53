// Package drain takes the compute service of a host out of scheduling with a reason that says who
// did it and since when ([NewDraining]), and back ([NewEnabling]), and reads what is left on the
// host ([Look]): servers, builds, resizes and migrations.
//
// The reason alone tells which services gpustack has disabled ([ParseReason]): another controller
// does not have the journal.
//
// It moves and stops no server. It does not speak HTTP (nova/cloud), or print.
package drain
