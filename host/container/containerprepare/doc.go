// Package containerprepare plans what containers need of a node: the CDI specs of the GPUs and RDMA
// adapters whose role is container.
package containerprepare
