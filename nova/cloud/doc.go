// Package cloud is a client of OpenStack's services, with the credentials that every OpenStack
// client reads. [Connect] authenticates; the clients of a [Cloud] negotiate microversions, retry
// requests that failed temporarily, and report each error in one line.
//
// It does not decide which requests to make (nova/flavor, cleanup), or print.
package cloud
