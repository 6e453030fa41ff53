// Package perf measures the bandwidth and the latency of RDMA ports with the programs of perftest,
// which connect through the RDMA connection manager, on the machine and beside it in containers.
// Ports, addresses, routes, containers, counters and causes are those of host/rdma/ping. [Observe]
// is where to begin; [Parse] reads what a program of perftest reports. It changes nothing on the
// machine.
package perf
