package find

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sort"

	"gpustack/cleanup"
)

// nodes are all rows of compute_nodes, of which a cell may have more than 100,000: each costs few
// bytes besides its names, which are parts of one text.
type nodes struct {
	rows   []nodeRow // in the order of their ids
	byHost []int32   // their indexes in the order of their hosts
	texts  string
	equal  map[string]string // why a record of a host is odd: its name is equal to that of another one that exists
}

type nodeRow struct {
	id         int64
	host, name part // the same part if they are equal
	deleted    bool
	null       bool // whether deleted is NULL
}

// part is a part of a text.
type part struct {
	begin uint32
	size  uint16
}

// at returns the node with an index.
func (n *nodes) at(i int) cleanup.Node {
	row := n.rows[i]
	node := cleanup.Node{ID: row.id, Host: n.text(row.host), Name: n.text(row.name), Deleted: row.deleted}
	if node.Odd = n.equal[node.Host]; row.null {
		node.Odd = fmt.Sprintf("deleted of compute node %d is NULL", row.id)
	}
	return node
}

func (n *nodes) text(p part) string {
	return n.texts[p.begin : p.begin+uint32(p.size)]
}

// index returns the index of the node with an id, -1 if there is none.
func (n *nodes) index(id int64) int {
	i, there := slices.BinarySearchFunc(n.rows, id, func(row nodeRow, id int64) int { return cmp.Compare(row.id, id) })
	if !there {
		return -1
	}
	return i
}

// get returns the node with an id.
func (n *nodes) get(id int64) (node cleanup.Node, there bool) {
	i := n.index(id)
	if i < 0 {
		return node, false
	}
	return n.at(i), true
}

// of returns the nodes of a host, deleted ones too.
func (n *nodes) of(host string) (all []cleanup.Node) {
	hostAt := func(i int) string { return n.text(n.rows[n.byHost[i]].host) }
	for i := sort.Search(len(n.byHost), func(i int) bool { return hostAt(i) >= host }); i < len(n.byHost) && hostAt(i) == host; i++ {
		all = append(all, n.at(int(n.byHost[i])))
	}
	return all
}

// readNodes reads compute_nodes.
func (r *reader) readNodes(ctx context.Context) error {
	var texts []byte
	add := func(text []byte) part {
		p := part{uint32(len(texts)), uint16(len(text))} // the columns have at most 255 characters
		texts = append(texts, text...)
		return p
	}
	var id int64
	var host, name sql.RawBytes
	var deleted sql.NullInt64
	err := r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
		if err := rows.Scan(&id, &host, &name, &deleted); err != nil {
			return err
		}
		// Nova looks for deleted = 0, and so does not see a row with NULL.
		row := nodeRow{id: id, host: add(host), deleted: deleted.Int64 != 0 || !deleted.Valid, null: !deleted.Valid}
		if row.name = row.host; string(name) != string(host) {
			row.name = add(name)
		}
		r.nodes.rows = append(r.nodes.rows, row)
		return nil
	}, "SELECT id, host, hypervisor_hostname, deleted FROM compute_nodes")
	if err != nil {
		return err
	}
	slices.SortFunc(r.nodes.rows, func(a, b nodeRow) int { return cmp.Compare(a.id, b.id) })
	err = r.spellNodes(ctx, func(n int, host, name string) {
		r.nodes.rows[n].host, r.nodes.rows[n].name = add([]byte(host)), add([]byte(name))
	})
	r.nodes.texts = string(texts)
	r.nodes.byHost = make([]int32, len(r.nodes.rows))
	for i := range r.nodes.byHost {
		r.nodes.byHost[i] = int32(i)
	}
	slices.SortFunc(r.nodes.byHost, func(a, b int32) int {
		return cmp.Compare(r.nodes.text(r.nodes.rows[a].host), r.nodes.text(r.nodes.rows[b].host))
	})
	return err
}

// liveNodes returns the nodes of a host that are not deleted.
func (r *reader) liveNodes(host string) []cleanup.Node {
	return slices.DeleteFunc(r.nodes.of(host), func(n cleanup.Node) bool { return n.Deleted })
}

// lives returns whether an instance is on a live node of a host.
func (r *reader) lives(i cleanup.Instance, host string) bool {
	return slices.ContainsFunc(r.liveNodes(host), func(n cleanup.Node) bool { return i.On(n.Host, n.Name) })
}
