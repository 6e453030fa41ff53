// Package conf reads nova.conf as oslo.config does, and changes single options of
// it with every other byte in its place.
//
// Does not: know what an option means, or which release has it (nova), or write
// files (host/edit).
package conf
