// Package service runs the server programs that tests use, so that
// none outlives the test: each is the first process of a PID namespace of its own
// and is killed when the process that started it ends, however that ends. When the
// first process of such a namespace goes, the kernel kills the rest of it, see
// pid_namespaces(7): that is how helpers that put themselves in the background go
// too. It needs root, or CAP_SYS_ADMIN.
//
// So each program takes itself for process 1. Programs that name temporary files by
// their process, as MariaDB does, must not share a folder for them: set TMPDIR.
//
// It is independent of the programs, does not restart them and uses no shell.
package service
