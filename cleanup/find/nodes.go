package find

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"sort"

	"gpustack/cleanup"
)

// nodes are all rows of compute_nodes, of which a cell may have more than 100,000: each costs few
// bytes besides its names, which are parts of one text.
type nodes struct {
	rows  []nodeRow // in the order of their ids
	texts string
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

func (n *nodes) len() int {
	return len(n.rows)
}

// at returns the node with an index.
func (n *nodes) at(i int) cleanup.Node {
	row := n.rows[i]
	node := cleanup.Node{ID: row.id, Host: n.text(row.host), Name: n.text(row.name), Deleted: row.deleted}
	if row.null {
		node.Odd = fmt.Sprintf("deleted of compute node %d is NULL", row.id)
	}
	return node
}

func (n *nodes) text(p part) string {
	return n.texts[p.begin : p.begin+uint32(p.size)]
}

// nameAt returns the name of the node with an index, in a column of compute_nodes.
func (n *nodes) nameAt(column string, i int) string {
	if column == hostNames {
		return n.text(n.rows[i].host)
	}
	return n.text(n.rows[i].name)
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

// all returns the nodes in the order of their ids.
func (n *nodes) all() iter.Seq[cleanup.Node] {
	return func(yield func(cleanup.Node) bool) {
		for i := range n.rows {
			if !yield(n.at(i)) {
				return
			}
		}
	}
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
	r.nodes.texts = string(texts)
	slices.SortFunc(r.nodes.rows, func(a, b nodeRow) int { return cmp.Compare(a.id, b.id) })
	return err
}

// nameIndex finds nodes by their names.
type nameIndex struct {
	nodes  *nodes
	column string
	order  []int32
}

// by returns the order of the nodes by a column of compute_nodes.
func (n *nodes) by(column string) nameIndex {
	x := nameIndex{n, column, make([]int32, n.len())}
	for i := range x.order {
		x.order[i] = int32(i)
	}
	slices.SortFunc(x.order, func(a, b int32) int { return cmp.Compare(n.nameAt(column, int(a)), n.nameAt(column, int(b))) })
	return x
}

// at returns the name with an index in the order of the names.
func (x nameIndex) at(i int) string {
	return x.nodes.nameAt(x.column, int(x.order[i]))
}

// find returns the indexes of the nodes with a name.
func (x nameIndex) find(name []byte) []int32 {
	begin := sort.Search(len(x.order), func(i int) bool { return x.at(i) >= string(name) })
	end := begin
	for end < len(x.order) && x.at(end) == string(name) {
		end++
	}
	return x.order[begin:end]
}
