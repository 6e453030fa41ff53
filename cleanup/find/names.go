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

// checkCollations returns an error if some columns with names of hosts and nodes have another collation
// than others, so that a name can be equal to two that differ.
func checkCollations(of map[string]string) error {
	columns := []string{"compute_nodes.host", "compute_nodes.hypervisor_hostname", "services.host", "instances.host", "instances.node",
		"migrations.source_compute", "migrations.source_node", "migrations.dest_compute", "migrations.dest_node"}
	by := map[string][]string{}
	for _, column := range columns {
		by[of[column]] = append(by[of[column]], column)
	}
	if len(by) == 1 {
		return nil
	}
	all := host.Map(slices.Sorted(maps.Keys(by)), func(collation string) string {
		return fmt.Sprintf("%s of %s", collation, strings.Join(by[collation], ", "))
	})
	return host.WithHint(fmt.Errorf("columns with names of hosts have different collations: %s", strings.Join(all, "; ")),
		"ALTER TABLE ... MODIFY ... COLLATE gives these columns one collation; until then Nova itself finds other hosts by one column than by another")
}

// spellNodes gives nodes their one spelling, and notes the hosts that exist in several: Nova takes them
// for one. A repair reads the nodes while Nova's rows are locked: the server compares neighbours in the
// index of names, and not each node with others.
func (r *reader) spellNodes(ctx context.Context, respell func(node int, host, name string)) error {
	r.nodes.equal = map[string]string{}
	spelled := map[string][]string{} // of live nodes, by the spelling that is read
	several := func(column, group string) string {
		return "SELECT host FROM compute_nodes GROUP BY " + group + " HAVING MIN(CAST(" + column + " AS BINARY)) <> MAX(CAST(" + column + " AS BINARY))"
	}
	err := r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
		var id int64
		var written, host, name string
		if err := rows.Scan(&id, &written, &host, &name); err != nil {
			return err
		}
		if n := r.nodes.index(id); n >= 0 {
			if !r.nodes.rows[n].deleted && !slices.Contains(spelled[host], written) {
				spelled[host] = append(spelled[host], written)
			}
			respell(n, host, name)
		}
		return nil
	}, "SELECT n.id, n.host, "+hostOf("n.host")+", COALESCE("+nodeOf("n.host", "n.hypervisor_hostname")+", '') FROM ("+several("host", "host")+
		" UNION ALL "+several("hypervisor_hostname", "host, hypervisor_hostname")+") same JOIN compute_nodes n ON n.host = same.host")
	for host, all := range spelled {
		if slices.Sort(all); len(all) > 1 {
			r.nodes.equal[host] = fmt.Sprintf(`hosts "%s" exist, whose names the database treats as equal`, strings.Join(all, `" and "`))
		}
	}
	return err
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
