// Package flavor makes flavors that ask for devices: what one should be, what differs
// from what the cloud has, and the requests that make it so.
//
// Does not: speak HTTP (nova/cloud), or print.
package flavor
