// Package flavor creates, changes and deletes flavors that request devices: [Observe] and
// [NewPlan] plan the difference to the flavors of a cloud, and [Kind] makes the requests.
//
// It does not speak HTTP (nova/cloud), or print.
package flavor
