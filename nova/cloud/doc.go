// Package cloud reaches OpenStack's services, by the credentials that every client
// of OpenStack reads. It signs in, negotiates, repeats what was lost on the way, and
// says in one line what went wrong; what a request means is the caller's business.
//
// Does not: decide what to do there (nova/flavor, cleanup), or print.
package cloud
