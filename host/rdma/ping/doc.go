// Package ping tests RDMA ports by rping(1) of rdma-core, which connects through the RDMA
// connection manager and moves data by RDMA READ and RDMA WRITE. What tests with other programs
// have in common with it is here, too: host/rdma/perf measures with it. [Observe] chooses ports and
// addresses, [Machine.Loopback], [Machine.Listen] and [Machine.Peer] run the test. It changes
// nothing on the machine.
package ping
