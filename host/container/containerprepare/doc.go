// Package containerprepare plans what containers need of a node: the CDI specs of the GPUs and
// RDMA adapters whose role is container. [Observe] reads, [NewWant] selects and refuses, [NewPlan]
// returns the files and the record.
//
// It writes nothing: host/change applies the plan, host/startup carries out the steps of every
// boot.
package containerprepare
