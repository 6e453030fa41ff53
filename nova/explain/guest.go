package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova/cloud"
)

// Options are the guest to explain: of a flavor, or of a server that has no host.
type Options struct {
	Flavor string // its name or id; "" for that of the server
	Server string // its id; "" for none
	Host   string // the only host to judge; "" for all
	Zone   string // "" for that of the server
	Image  string // its name or id; "" for that of the server
}

// Server is a server, and the host that it has or the fault for which it has none.
type Server struct {
	ID     string  `json:"id"`     // the server's id
	Name   string  `json:"name"`   // the server's name
	Status string  `json:"status"` // Nova's status, such as "ERROR"
	Host   *string `json:"host"`   // nil without a host, and for users whom Nova does not show it
	Fault  *string `json:"fault"`  // the message of Nova; nil for none
}

func newServer(s cloud.Placing) *Server {
	server := &Server{ID: s.ID, Name: s.Name, Status: s.Status}
	if s.Host != "" {
		server.Host = &s.Host
	}
	if s.Fault != "" {
		server.Fault = &s.Fault
	}
	return server
}

// HasHost reports whether the server has a host already: there is nothing to explain then.
func (s *Server) HasHost() bool {
	waits := s.Status == "ERROR" || s.Host == nil && slices.Contains([]string{"BUILD", "SHELVED_OFFLOADED"}, s.Status)
	return !waits
}

// Report returns the report on a server that has a host.
func (s *Server) Report() Report {
	r := newReport(nil)
	r.Verdict, r.Conclusion = Can, fmt.Sprintf("server %s is %s: nothing to explain", s.Name, s.Status)
	if s.Host != nil {
		r.Conclusion = fmt.Sprintf("server %s is %s on host %s: nothing to explain", s.Name, s.Status, *s.Host)
	}
	return r
}

// fromElsewhere returns the warning of a server whose fault may have nothing to do with the choice
// of a host.
func (s *Server) fromElsewhere() (warnings []string) {
	if s.Fault == nil || strings.Contains(*s.Fault, "No valid host") {
		return nil
	}
	return []string{"the fault of the server may have another reason than the choice of a host: " + *s.Fault}
}

// ReadGuest adds the guest to build: its flavor, image and zone. Of a server that has a host it
// adds only the name of its flavor. The server is nil where the options name none.
func (f *Facts) ReadGuest(ctx context.Context, c *cloud.Compute, o Options) (server *Server, warnings []string, err error) {
	f.Zone, f.Project = o.Zone, c.Scope().Project
	if o.Server == "" {
		err = f.readFlavor(ctx, c, o.Flavor)
	} else {
		server, err = f.readServer(ctx, c, o)
	}
	if err != nil || server != nil && server.HasHost() {
		return server, nil, err
	}
	if server != nil {
		warnings = server.fromElsewhere()
	}
	if o.Image != "" {
		image, err := c.Cloud().Image(ctx, o.Image)
		if err != nil {
			return server, warnings, err
		}
		f.Image = &image
	}
	return server, warnings, nil
}

// readFlavor reads the flavor with a name or an id.
func (f *Facts) readFlavor(ctx context.Context, c *cloud.Compute, nameOrID string) error {
	all, err := c.Flavors(ctx)
	if err != nil {
		return err
	}
	found, err := cloud.FindFlavor(all, nameOrID)
	if err != nil {
		return err
	}
	if found.ExtraSpecs, err = c.ExtraSpecs(ctx, found); err != nil {
		return err
	}
	if !found.Public {
		f.Projects, err = c.Access(ctx, found)
		if errors.Is(err, cloud.ErrForbidden) {
			f.omit(Flavor, err, host.Plain("use an administrator's credentials"))
			err = nil
		}
	}
	f.Flavor = found
	return err
}

// omit notes that a link cannot be judged, because of an error.
func (f *Facts) omit(l Link, err error, remedy host.Text) {
	f.Omitted = append(f.Omitted, Omission{Link: l, Reason: err.Error(), Remedy: remedy})
}

// readServer reads a server, and unless it has a host its flavor, image and zone.
func (f *Facts) readServer(ctx context.Context, c *cloud.Compute, o Options) (*Server, error) {
	s, err := c.ServerPlacing(ctx, o.Server)
	if errors.Is(err, cloud.ErrNotFound) {
		err = host.WithHint(err, "'openstack server list --all-projects' shows the ids; users see only the servers of their project")
	}
	if err != nil {
		return nil, err
	}
	server := newServer(s)
	f.Flavor = s.Flavor
	if server.HasHost() {
		return server, nil
	}
	f.Project = s.Project
	if f.Zone == "" {
		f.Zone = s.Zone
	}
	if !c.HasEmbeddedFlavors() || s.Flavor.ExtraSpecs == nil {
		if err := f.readFlavor(ctx, c, s.Flavor.Name); err != nil {
			return server, err
		}
	}
	if err := f.readGroup(ctx, c, s.ID); err != nil {
		return server, err
	}
	f.Volume = s.Image == "" && o.Image == ""
	if o.Image != "" || s.Image == "" {
		return server, nil
	}
	return server, f.readImage(ctx, c, s.Image)
}

// groups is what readGroup asks Nova.
type groups interface {
	GroupOf(ctx context.Context, server string) (*cloud.ServerGroup, error)
	ServerPlacing(ctx context.Context, id string) (cloud.Placing, error)
}

// readGroup reads the server group of a server, with the hosts of its other members.
func (f *Facts) readGroup(ctx context.Context, c groups, server string) error {
	g, err := c.GroupOf(ctx, server)
	if err != nil || g == nil {
		return f.unread(Groups, err)
	}
	group := &ServerGroup{Name: g.Name, Policy: g.Policy, Most: g.Most, Members: map[string]int{}}
	for _, id := range g.Members {
		if id == server {
			continue
		}
		member, err := c.ServerPlacing(ctx, id)
		if errors.Is(err, cloud.ErrNotFound) { // deleted meanwhile
			continue
		}
		if err != nil {
			return f.unread(Groups, err)
		}
		if member.Host != "" {
			group.Members[member.Host]++
		}
	}
	f.Group = group
	return nil
}

// readImage reads the image of a server, which may be deleted or another project's.
func (f *Facts) readImage(ctx context.Context, c *cloud.Compute, id string) error {
	image, err := c.Cloud().GetImage(ctx, id)
	switch {
	case errors.Is(err, cloud.ErrNotFound), errors.Is(err, cloud.ErrForbidden), errors.Is(err, cloud.ErrNoEndpoint):
		f.omit(ImageLink, err, host.Plain("give another image with --image"))
		return nil
	case err != nil:
		return err
	}
	f.Image = &image
	return nil
}

// Select leaves only the host with a name, unless that is "".
//
// Errors: a host that Nova does not have, and no host at all.
func (f *Facts) Select(name string) error {
	if name != "" {
		f.Hosts = slices.DeleteFunc(f.Hosts, func(h Host) bool { return h.Name != name && h.Node != name })
		if len(f.Hosts) == 0 {
			return host.WithHint(errors.New("--host "+host.WithoutCredentials(name)+": Nova has no such compute node"),
				"'openstack compute service list --service nova-compute' shows the hosts")
		}
	}
	if len(f.Hosts) > 0 {
		return nil
	}
	var why []string
	for _, source := range []Source{Services, Nodes} {
		if reason, unread := f.Unread[source]; unread {
			why = append(why, reason)
		}
	}
	return host.WithHint(fmt.Errorf("no compute node is known: %s", strings.Join(append(why, "no inventory or database is given"), "; ")),
		"use an administrator's credentials, or give --inventory or --database")
}
