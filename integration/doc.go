// Package integration holds the binary against real parts: programs that do a
// part of its job, the machine it runs on, and what it was built to change. Its
// tests fail where such a part is missing; make integration runs them in a tree
// where all are installed (.ci/inside).
package integration
