// Package ansible tests the collection gpustack.nova, which is in the folder ansible of the
// repository, with ansible-core and ansible-lint of Debian: its modules on roots of examples and
// with the cloud of [gpustack/nova/cloud/cloudtest], and its documentation.
package ansible
