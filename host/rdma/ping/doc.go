// Package ping tests RDMA ports by rping(1) of rdma-core, which connects through the RDMA
// connection manager and moves data by RDMA READ and RDMA WRITE. It changes nothing on the machine.
package ping
