// Package rdmaprepare plans RDMA adapters whose virtual functions last: the record that gpustack
// boot carries out at each boot, and the files that load and configure modules. [Observe] reads,
// [NewWant] selects and refuses, [NewPlan] returns the files.
//
// It writes nothing, and makes no VF: host/startup does at boot.
package rdmaprepare
