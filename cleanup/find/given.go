package find

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
	"gpustack/host"
)

// Given is a host that an option or a document names.
type Given struct {
	Host   string
	By     string // the option, or the file of a guest report
	Folder bool   // a report of a folder, which may be of another cloud, or an inventory
}

// errUnknown goes with a name that no database has.
var errUnknown = errors.New("no cell has it")

// CheckGiven returns an error for each host, instance and device of the options, and for each host
// of a report, that no cell has: nothing would be judged, or proved, for a mistyped name. others are
// such hosts of folders and inventories. If a cell cannot be read, it only reads the others, so that
// each cell is asked whether a host that is declared off is off, before anything else.
//
// Errors: ErrAlive, and those of the databases.
func CheckGiven(ctx context.Context, d *novadb.Databases, o Options) (others []string, err error) {
	given := slices.Clone(o.Given)
	if o.Host != "" {
		given = append(given, Given{Host: o.Host, By: "--host"})
	}
	if len(given)+len(o.off()) == 0 && o.Instance == "" && o.Address == "" {
		return nil, nil
	}
	s := search{given: given, options: o, known: map[string]bool{}, like: map[string][]string{}}
	for _, c := range d.All() {
		if err := inCell(ctx, d, c, o, func(r *reader) error { return s.in(ctx, r) }); err != nil {
			return nil, err
		}
	}
	if d.Unread() != nil {
		return nil, nil
	}
	if d.API != nil && o.Instance != "" {
		if err := s.look(ctx, d.API, "--instance", o.Instance, "SELECT instance_uuid FROM instance_mappings WHERE instance_uuid = ?", o.Instance); err != nil {
			return nil, err
		}
	}
	return s.unknown()
}

// search looks for what the options name.
type search struct {
	given   []Given
	options Options
	known   map[string]bool     // by host, and by option for others
	names   []string            // of all hosts and nodes
	like    map[string][]string // what the databases have instead, by option
}

// in looks in one cell.
func (s *search) in(ctx context.Context, r *reader) error {
	for i := range r.nodes.rows {
		s.names = append(s.names, r.nodes.at(i).Host, r.nodes.at(i).Name)
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	for _, g := range s.given {
		spelled, err := r.spell(ctx, g.Host)
		if err != nil {
			return err
		}
		s.known[g.Host] = s.known[g.Host] || spelled != ""
	}
	if ids, err := r.hostNodes(ctx); err != nil {
		return err
	} else if len(ids) > 1 {
		s.known[s.options.Host] = true
	}
	if u := s.options.Instance; u != "" {
		begins := strings.NewReplacer("%", "", "_", "").Replace(u[:min(len(u), 8)]) + "%"
		migration := r.column("migrations", "uuid", "instance_uuid")
		for statement, name := range map[string]string{
			"SELECT uuid FROM instances WHERE uuid = ?":                                          u,
			"SELECT instance_uuid FROM pci_devices WHERE instance_uuid = ? LIMIT 1":              u,
			"SELECT " + migration + " FROM migrations WHERE " + migration + " = ? LIMIT 1":       u,
			"SELECT uuid FROM instances WHERE deleted = 0 AND uuid LIKE ? ORDER BY uuid LIMIT 3": begins,
		} {
			if err := s.look(ctx, r.tx, "--instance", u, statement, name); err != nil {
				return err
			}
		}
	}
	if a := s.options.Address; a != "" {
		slot, _, _ := strings.Cut(a, ".")
		return s.look(ctx, r.tx, "--device", a, "SELECT address FROM pci_devices WHERE address = ? "+
			"UNION (SELECT DISTINCT address FROM pci_devices WHERE deleted = 0 AND address LIKE ? LIMIT 3)", a, slot+".%")
	}
	return nil
}

// look notes the names that a statement finds: whether what an option names is among them, and what is
// like it.
func (s *search) look(ctx context.Context, q novadb.Querier, option, wanted, statement string, args ...any) error {
	return novadb.Query(ctx, q, option, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		s.known[option] = s.known[option] || cleanup.KeyOf(name) == cleanup.KeyOf(wanted)
		s.like[option] = append(s.like[option], name)
		return err
	}, statement, args...)
}

// unknown returns an error for all names that were not found, and the hosts of folders.
func (s *search) unknown() (others []string, err error) {
	var errs []error
	refuse := func(text string, near []string) {
		err := fmt.Errorf("%s: %w", text, errUnknown)
		if len(near) > 0 {
			err = host.WithHint(err, host.Plain("did you mean "+host.Listed(near[:min(len(near), 3)], "or")+"?"))
		}
		errs = append(errs, err)
	}
	for _, g := range s.given {
		switch {
		case s.known[g.Host]:
		case g.Folder:
			others = append(others, g.Host)
		default:
			refuse(g.By+": host "+g.Host, slices.DeleteFunc(slices.Clone(s.names), func(name string) bool { return name == "" || plainHost(name) != plainHost(g.Host) }))
		}
	}
	for option, value := range map[string]string{"--instance": s.options.Instance, "--device": s.options.Address} {
		if value != "" && !s.known[option] {
			refuse(option+": "+value, s.like[option])
		}
	}
	slices.Sort(others)
	return slices.Compact(others), errors.Join(errs...)
}

// plainHost returns the letters and digits of the first label of a host's name, to find a name that
// differs in its domain, letter case or hyphens.
func plainHost(name string) string {
	name, _, _ = strings.Cut(cleanup.KeyOf(name), ".")
	return strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) {
			return c
		}
		return -1
	}, name)
}
