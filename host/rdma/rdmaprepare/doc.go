// Package rdmaprepare plans RDMA adapters whose virtual functions last: the record that gpustack
// boot carries out at each boot, and the files that load and configure modules. It writes nothing.
package rdmaprepare
