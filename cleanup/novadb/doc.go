// Package novadb connects to the databases of a Nova deployment, nova_api and its cells, by the
// URLs of nova.conf and of nova_api.cell_mappings: [Open]. It reads these URLs, and the option
// files that they name, as SQLAlchemy, PyMySQL and mysqlclient do. Its connections have limits for
// every answer, so that a silent database never blocks a run.
//
// It does not know what rows mean (cleanup, cleanup/find), and shows no password.
package novadb
