// Package devspec evaluates device_spec options as nova-compute does (nova/pci/devspec.py): which
// functions of a machine a spec matches, which tags Nova gives them, and which specs make
// nova-compute refuse to start. [Lines] parses them, [Hardware] matches them.
//
// It does not decide which specs a machine should have (nova), or report findings
// (nova/novacheck).
package devspec
