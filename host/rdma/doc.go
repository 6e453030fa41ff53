// Package rdma reads RDMA adapters (InfiniBand, RoCE, iWARP) as the files below a root show them
// ([Scan]), and the record of what gpustack rdma prepare made of them ([ReadRecord]).
//
// It writes nothing and asks no netlink socket: a tree, an image and the live machine give the
// same answer.
package rdma
