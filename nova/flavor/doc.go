// Package flavor creates, changes and deletes flavors that request devices: it plans the difference
// to the flavors of a cloud, and makes the requests.
//
// It does not speak HTTP (nova/cloud), or print.
package flavor
