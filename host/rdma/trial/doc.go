// Package trial tests RDMA ports by rping(1) of rdma-core, which connects through the RDMA
// connection manager and moves data by RDMA READ and RDMA WRITE, and measures them with the
// programs of perftest, which connect the same way. [Observe] chooses ports and addresses,
// [Machine.Loopback], [Machine.Listen] and [Machine.Peer] run the programs, on the machine or in
// containers. It changes nothing on the machine.
package trial
