// Package cloud is a client of OpenStack's services, with the credentials that every OpenStack
// client reads. It authenticates, negotiates microversions, retries requests that failed
// temporarily, and reports each error in one line.
//
// It does not decide which requests to make (nova/flavor, cleanup), or print.
package cloud
