// Package mariadb starts a MariaDB server of its own for tests: Debian's mariadbd
// with its data below a folder of the test's, on a socket there and a free port of
// 127.0.0.1. No settings of the machine are read, and no server of the machine is
// touched.
//
// Real: the server, its SQL, its locks, its users, and what is left of the data when
// it is killed. Not real: what would survive a loss of power, for nothing is synced to
// the disk; a cluster; TLS.
package mariadb
