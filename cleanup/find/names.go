package find

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/cleanup/novadb"
	"gpustack/host"
)

// Nova compares names of hosts and nodes in SQL (nova/db/main/api.py:
// instance_get_all_by_host_and_node, migration_get_in_progress_and_error_by_host_and_node,
// service_get_by_host_and_binary, compute_node_get_by_host_and_nodename), so the collation of its
// columns decides whether letter case, accents and trailing blanks count. Here the database compares
// them too, while it reads: each name is read in the one spelling that compute_nodes has of all that
// are equal to it, and in Go names are texts.

// hostOf returns SQL for the spelling of a host in a column: that of the latest node, as a name which
// no node has stays as it is.
func hostOf(host string) string {
	return "COALESCE((SELECT c.host FROM compute_nodes c WHERE c.id = (SELECT MAX(s.id) FROM compute_nodes s WHERE s.host = " + host + ")), " + host + ")"
}

// nodeOf returns SQL for the spelling of a node of a host.
func nodeOf(host, node string) string {
	return "COALESCE((SELECT c.hypervisor_hostname FROM compute_nodes c WHERE c.id = (SELECT MAX(s.id) FROM compute_nodes s WHERE s.host = " + host +
		" AND s.hypervisor_hostname = " + node + ")), " + node + ")"
}

// neutral matches collations of no language. They differ in what they do with letters outside
// ASCII, but two texts of printable ASCII are equal at most if they differ in letter case and
// trailing blanks alone. (With a collation of Hungarian, "ccs" equals "cscs".) A test compares
// this with a server.
var neutral = host.LazyRegexp(`^(utf8|utf8mb3|utf8mb4|latin1|ascii)_` +
	`(bin|nopad_bin|0900_bin|general(_nopad)?_c[is]|swedish(_nopad)?_ci|unicode(_520)?(_nopad)?_ci|(0900|uca1400)(_nopad)?_a[is]_c[is])$`)

// collation returns the collation of all columns with names of hosts and nodes.
//
// Errors: some of them have another than others, so that a name can be equal to two that differ.
func collation(of map[string]string) (name string, err error) {
	columns := []string{"compute_nodes.host", "compute_nodes.hypervisor_hostname", "services.host", "instances.host", "instances.node",
		"migrations.source_compute", "migrations.source_node", "migrations.dest_compute", "migrations.dest_node"}
	by := map[string][]string{}
	for _, column := range columns {
		by[of[column]] = append(by[of[column]], column)
	}
	if len(by) == 1 {
		return of[columns[0]], nil
	}
	var all []string
	for _, collation := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%s of %s", collation, strings.Join(by[collation], ", ")))
	}
	return "", host.WithHint(fmt.Errorf("columns with names of hosts have different collations: %s", strings.Join(all, "; ")),
		"ALTER TABLE ... MODIFY ... COLLATE gives these columns one collation; until then Nova itself finds other hosts by one column than by another")
}

// plain returns whether a name equals no other plain name by a neutral collation.
func plain(name []byte) bool {
	return !slices.ContainsFunc(name, func(c byte) bool { return c <= ' ' || c > '~' || 'A' <= c && c <= 'Z' })
}

// spellNodes gives the nodes of hosts their one spelling, and notes the hosts that exist in several:
// Nova takes them for one.
func (r *reader) spellNodes(ctx context.Context, hosts []string, respell func(node int, host, name string)) error {
	r.ambiguous = map[string][]string{}
	for some := range slices.Chunk(hosts, batch) {
		err := r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
			var id int64
			var written, host, name string
			if err := rows.Scan(&id, &written, &host, &name); err != nil {
				return err
			}
			if n := r.nodes.index(id); n >= 0 {
				if !r.nodes.rows[n].deleted && !slices.Contains(r.ambiguous[host], written) {
					r.ambiguous[host] = append(r.ambiguous[host], written)
				}
				respell(n, host, name)
			}
			return nil
		}, "SELECT n.id, n.host, "+hostOf("n.host")+", "+nodeOf("n.host", "n.hypervisor_hostname")+
			" FROM compute_nodes n WHERE n.host IN ("+novadb.Places(len(some))+")", anys(some)...)
		if err != nil {
			return err
		}
	}
	for _, spellings := range r.ambiguous {
		slices.Sort(spellings)
	}
	maps.DeleteFunc(r.ambiguous, func(_ string, spellings []string) bool { return len(spellings) < 2 })
	return nil
}

// spell returns the spelling of a host that the operator names, "" if no node has it.
func (r *reader) spell(ctx context.Context, name string) (spelled string, err error) {
	if len(r.nodes.of(name)) > 0 || name == "" {
		return name, nil
	}
	err = r.query(ctx, "compute_nodes", func(rows *sql.Rows) error { return rows.Scan(&spelled) },
		"SELECT host FROM compute_nodes WHERE id = (SELECT MAX(s.id) FROM compute_nodes s WHERE s.host = ?)", name)
	return spelled, novadb.IgnoreNoName(err)
}
