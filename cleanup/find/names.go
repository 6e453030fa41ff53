package find

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"gpustack/cleanup/novadb"
	"gpustack/host"
)

// names returns which names of hosts and nodes are equal. Nova compares them in SQL
// (nova/db/main/api.py: instance_get_all_by_host_and_node,
// migration_get_in_progress_and_error_by_host_and_node, service_get_by_host_and_binary,
// compute_node_get_by_host_and_nodename), so the collation of the column decides whether
// letter case, accents and trailing blanks count. names has the database compare them, by the
// collation that each column has now.
type names struct {
	reader     *reader
	collations map[string]collation // by table.column
	nodes      map[string]nameIndex // by column of compute_nodes
	groups     map[group]map[string][]string
	asked      map[question][]string
}

// collation is the collation of a column. The zero value compares bytes.
type collation struct {
	charset, name string
}

// group is a column of compute_nodes, compared by a collation.
type group struct {
	column string
	collation
}

// question is a name that compute_nodes does not have.
type question struct {
	group
	name string
}

// Columns of compute_nodes with the names of hosts and of nodes.
const (
	hostNames = "host"
	nodeNames = "hypervisor_hostname"
)

// columnsOf returns the columns with names of hosts, or of nodes.
func columnsOf(kind string) []string {
	if kind == nodeNames {
		return []string{"compute_nodes.hypervisor_hostname", "instances.node", "migrations.source_node", "migrations.dest_node"}
	}
	return []string{"compute_nodes.host", "services.host", "instances.host", "migrations.source_compute", "migrations.dest_compute"}
}

func kindOf(column string) string {
	if slices.Contains(columnsOf(nodeNames), column) {
		return nodeNames
	}
	return hostNames
}

func newNames(r *reader) *names {
	return &names{r, map[string]collation{}, map[string]nameIndex{}, map[group]map[string][]string{}, map[question][]string{}}
}

var plainName = host.LazyRegexp(`^\w+$`)

// load reads the names that have several spellings in compute_nodes, by each collation that a
// column has. Other names equal only themselves.
func (n *names) load(ctx context.Context) error {
	for column, c := range n.collations {
		if c != (collation{}) && (!plainName().MatchString(c.charset) || !plainName().MatchString(c.name)) {
			return fmt.Errorf("%s: collation %q of character set %q", column, c.name, c.charset)
		}
	}
	for _, kind := range []string{hostNames, nodeNames} {
		n.nodes[kind] = n.reader.nodes.by(kind)
		for _, column := range columnsOf(kind) {
			if err := n.loadGroup(ctx, group{kind, n.collations[column]}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *names) loadGroup(ctx context.Context, g group) error {
	if _, loaded := n.groups[g]; loaded || g.collation == (collation{}) {
		return nil
	}
	if n.distinct(g) {
		n.groups[g] = map[string][]string{}
		return nil
	}
	equal, text := map[string][]string{}, n.expression(g, "")
	err := n.reader.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
		var key, name string
		err := rows.Scan(&key, &name)
		if !slices.Contains(equal[key], name) {
			equal[key] = append(equal[key], name)
		}
		return err
	}, "SELECT g.name, n."+g.column+" FROM compute_nodes n JOIN (SELECT MIN("+text+") AS name FROM compute_nodes GROUP BY "+
		text+" HAVING COUNT(DISTINCT CAST("+g.column+" AS BINARY)) > 1) g ON "+n.expression(g, "n.")+" = g.name")
	if err != nil {
		return err
	}
	n.groups[g] = map[string][]string{}
	for _, spellings := range equal {
		slices.Sort(spellings)
		for _, name := range spellings {
			n.groups[g][name] = spellings
		}
	}
	return nil
}

// neutral matches collations of no language. They differ in what they do with letters outside
// ASCII, but two texts of printable ASCII are equal at most if they differ in letter case and
// trailing blanks alone. (With a collation of Hungarian, "ccs" equals "cscs".) A test compares
// this with a server.
var neutral = host.LazyRegexp(`^(utf8|utf8mb3|utf8mb4|latin1|ascii)_` +
	`(bin|nopad_bin|0900_bin|general(_nopad)?_c[is]|swedish(_nopad)?_ci|unicode(_520)?(_nopad)?_ci|(0900|uca1400)(_nopad)?_a[is]_c[is])$`)

// distinct returns whether no two names are equal by a collation for certain. The server would sort
// all names to tell, which takes longer than to read all rows of pci_devices.
func (n *names) distinct(g group) bool {
	if !neutral().MatchString(g.name) {
		return false
	}
	all := n.nodes[g.column]
	folded := map[string]string{}
	for i := range all.order {
		name := all.at(i)
		if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
			return false
		}
		fold := strings.ToLower(strings.TrimRight(name, " "))
		if fold == name {
			continue
		}
		if other, known := folded[fold]; known && other != name || len(all.find([]byte(fold))) > 0 {
			return false
		}
		folded[fold] = name
	}
	return true
}

// expression returns the SQL for a column of compute_nodes in a collation. For the column's own
// collation it is the column itself, so that its index is used. A name that the collation's
// character set does not have becomes NULL, instead of the question marks that CONVERT writes.
func (n *names) expression(g group, table string) string {
	own, column := n.collations["compute_nodes."+g.column], table+g.column
	if g.collation == own {
		return column
	}
	converted := "CONVERT(" + column + " USING " + g.charset + ")"
	back := "CONVERT(" + converted + " USING " + cmp.Or(own.charset, "binary") + ")"
	return "IF(CAST(" + back + " AS BINARY) = CAST(" + column + " AS BINARY), " + converted + ", NULL) COLLATE " + g.name
}

// spellings returns the names in compute_nodes that are equal to a name in a column, by
// that column's collation.
func (n *names) spellings(ctx context.Context, column, name string) ([]string, error) {
	if name == "" {
		return nil, nil // NULL is equal to nothing
	}
	g := group{kindOf(column), n.collations[column]}
	if list, several := n.groups[g][name]; several {
		return list, nil
	}
	if len(n.nodes[g.column].find([]byte(name))) > 0 {
		return []string{name}, nil
	}
	if g.collation == (collation{}) {
		return nil, nil
	}
	q := question{g, name}
	list, asked := n.asked[q]
	if asked {
		return list, nil
	}
	err := n.reader.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
		var spelling string
		err := rows.Scan(&spelling)
		if !slices.Contains(list, spelling) {
			list = append(list, spelling)
		}
		return err
	}, "SELECT "+g.column+" FROM compute_nodes WHERE "+n.expression(g, "")+" = ?", name)
	if err = novadb.IgnoreNoName(err); err == nil {
		n.asked[q] = list
	}
	return list, err
}

// only returns whether a name of a host is in compute_nodes, in no other spelling that any column
// treats as equal.
func (n *names) only(host []byte) bool {
	for g, groups := range n.groups {
		if _, several := groups[string(host)]; several && g.column == hostNames {
			return false
		}
	}
	return len(n.nodes[hostNames].find(host)) > 0
}

// same returns whether a name in a column is that of a host or node in compute_nodes.
func (n *names) same(ctx context.Context, column, name, node string) (bool, error) {
	if name == "" || name == node {
		return name != "", nil
	}
	list, err := n.spellings(ctx, column, name)
	return slices.Contains(list, node), err
}

// exists returns whether a compute node of a host is not deleted.
func (n *names) exists(host string) bool {
	return slices.ContainsFunc(n.nodes[hostNames].find([]byte(host)), func(i int32) bool { return !n.reader.nodes.at(int(i)).Deleted })
}

// ambiguous returns the hosts that exist more than once for one of the columns, by each
// of their names.
func (n *names) ambiguous() map[string][]string {
	hosts := map[string][]string{}
	for g, groups := range n.groups {
		if g.column != hostNames {
			continue
		}
		for name, spellings := range groups {
			spellings = slices.DeleteFunc(slices.Clone(spellings), func(s string) bool { return !n.exists(s) })
			if len(spellings) > max(1, len(hosts[name])) {
				hosts[name] = spellings
			}
		}
	}
	return hosts
}
