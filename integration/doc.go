// Package integration tests the binary with real parts: programs that do part of its job, the
// machine that it runs on, and the systems that it changes. Its tests fail where such a part is
// missing; make integration runs them in a tree where all are installed (.ci/inside).
package integration
