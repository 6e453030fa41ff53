package cloud

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"gpustack/host"
)

// Server is an instance, as far as its user may see it.
type Server struct {
	ID       string `json:"id"`               // the server
	Name     string `json:"name"`             // the server's name
	Project  string `json:"project_id"`       // the project that owns it
	User     string `json:"user_id"`          // the user that owns it
	Status   string `json:"server_status"`    // Nova's status, such as "ACTIVE"
	Task     string `json:"task" null:"zero"` // Nova's task, such as "powering-off"; null for none
	Host     string // "" for users who are not administrators, and until the scheduler has chosen one
	Node     string // hypervisor_hostname, as Host
	Fault    string // Nova's message if the status is ERROR
	Created  time.Time
	Updated  time.Time
	Metadata map[string]string
	VMState  string // such as active; "" for users who may not see it
	Power    Power
	Flavor   ServerFlavor
}

// Power is what the hypervisor said last of a server (nova/compute/power_state.py).
type Power int

// States of power.
const (
	PowerNone      Power = 0 // unknown, or the guest does not exist
	PowerRunning   Power = 1
	PowerPaused    Power = 3
	PowerShutdown  Power = 4
	PowerCrashed   Power = 6
	PowerSuspended Power = 7
)

// ServerFlavor is the flavor with which a server was built.
type ServerFlavor struct {
	ID    string            // "" from microversion 2.47
	Name  string            // "" before microversion 2.47
	Specs map[string]string // its extra specs; nil: not in the answer
}

func flavorOfServer(body map[string]any) ServerFlavor {
	text := func(key string) string { s, _ := body[key].(string); return s }
	f := ServerFlavor{ID: text("id"), Name: text("original_name")}
	if specs, ok := body["extra_specs"].(map[string]any); ok {
		f.Specs = map[string]string{}
		for key, value := range specs {
			f.Specs[key] = fmt.Sprint(value)
		}
	}
	return f
}

func serverFromAPI(s *servers.Server) Server {
	return Server{
		ID: s.ID, Name: s.Name, Project: s.TenantID, User: s.UserID, Status: s.Status, Task: s.TaskState, Host: s.Host, Node: s.HypervisorHostname,
		Fault: s.Fault.Message, Created: s.Created, Updated: s.Updated, Metadata: s.Metadata,
		VMState: s.VmState, Power: Power(s.PowerState), Flavor: flavorOfServer(s.Flavor),
	}
}

// Networks of a new server that are not the id of one (microversion 2.37).
const (
	NetworkNone = "none"
	NetworkAuto = "auto"
)

// NewServer is a server to create.
type NewServer struct {
	Name, Image, Flavor string // Image and Flavor are ids
	// Network is the id of a network, NetworkNone or NetworkAuto. "" is what Nova does before
	// microversion 2.37 if no network is requested, which is NetworkAuto.
	Network     string
	Host        string // the host that is asked for, "" for any; requires microversion 2.74
	Zone        string // the availability zone, "" for any
	UserData    string // a script that the guest runs
	ConfigDrive bool
	Metadata    map[string]string
}

// ToServerCreateMap returns the body of the request. The options of gophercloud do not have host.
func (n NewServer) ToServerCreateMap() (map[string]any, error) {
	options := servers.CreateOpts{
		Name: n.Name, ImageRef: n.Image, FlavorRef: n.Flavor, AvailabilityZone: n.Zone, Metadata: n.Metadata, ConfigDrive: &n.ConfigDrive,
	}
	if n.UserData != "" {
		options.UserData = []byte(n.UserData)
	}
	switch n.Network {
	case "":
	case NetworkNone, NetworkAuto:
		options.Networks = n.Network
	default:
		options.Networks = []servers.Network{{UUID: n.Network}}
	}
	body, err := options.ToServerCreateMap()
	if err != nil {
		return nil, err
	}
	if n.Host != "" {
		body["server"].(map[string]any)["host"] = n.Host
	}
	return body, nil
}

// CreateServer creates a server and returns its id, in a request that is never retried. Unless Nova
// has rejected it (IsRefused), a request that failed may have been carried out, or may still be:
// the caller finds the server by its name and metadata.
func (c *Compute) CreateServer(ctx context.Context, n NewServer) (id string, err error) {
	err = c.cloud.ask(once(ctx), "creating server "+n.Name, func(ctx context.Context) error {
		made, err := servers.Create(ctx, c.client, n, nil).Extract()
		if err == nil {
			id = made.ID
		}
		return err
	})
	return id, err
}

// GetServer returns a server.
//
// Errors: ErrNotFound.
func (c *Compute) GetServer(ctx context.Context, id string) (Server, error) {
	return answerOf(ctx, c.cloud, "server "+id, func(ctx context.Context) (Server, error) {
		answer, err := servers.Get(ctx, c.client, id).Extract()
		if err != nil {
			return Server{}, err
		}
		return serverFromAPI(answer), nil
	})
}

// FindServers returns the servers whose name contains a text, oldest first: of all projects if the
// user may list them, otherwise (all is false) of the user's project.
func (c *Compute) FindServers(ctx context.Context, name string) (found []Server, all bool, err error) {
	list := func(all bool) ([]Server, error) {
		// Nova takes the name as a regular expression (nova/db/main/api.py,
		// _regex_instance_filter).
		pager := servers.List(c.client, servers.ListOpts{Name: name, AllTenants: all})
		return listOf(ctx, c.cloud, "servers", pager, servers.ExtractServers, serverFromAPI)
	}
	all = true
	found, err = list(all)
	// The policy os_compute_api:servers:detail:get_all_tenants is an administrator's.
	if errors.Is(err, ErrForbidden) {
		all = false
		found, err = list(all)
	}
	slices.Reverse(found) // Nova lists the newest first
	return found, all, err
}

// ErrHidden says that Nova's policy hides the hosts of servers.
var ErrHidden = host.WithHint(errors.New("the cloud does not show on which host a server is"),
	"use an administrator, or a user with os_compute_api:os-extended-server-attributes and os_compute_api:os-migrations:index:host")

// ServersOn returns the servers of all projects on a host, those too that are only marked as
// deleted, sorted by name. It requires an administrator.
//
// Errors: ErrHidden.
func (c *Compute) ServersOn(ctx context.Context, host string) ([]Server, error) {
	all, err := c.serversOf(ctx, "servers on "+host, listed{servers.ListOpts{Host: host, AllTenants: true}, "&soft_deleted=true"})
	return slices.DeleteFunc(all, func(s Server) bool { return s.Host != host }), err // by a Nova without the filter
}

// Building returns the servers of all projects that are being built, sorted by name, those among
// them for which the scheduler has not chosen a host yet. It requires an administrator.
//
// Errors: ErrHidden.
func (c *Compute) Building(ctx context.Context) ([]Server, error) {
	return c.serversOf(ctx, "servers that are being built", listed{servers.ListOpts{Status: "BUILD", AllTenants: true}, ""})
}

// Unshelving returns the servers of all projects that were shelved, and are being unshelved. It
// requires an administrator.
//
// Errors: ErrHidden.
func (c *Compute) Unshelving(ctx context.Context) (all []Server, err error) {
	// In this order: nova-compute begins to spawn before it takes the server (unshelve_instance).
	for _, task := range []string{"unshelving", "spawning"} {
		list, err := c.serversOf(ctx, "servers that are unshelved", listed{servers.ListOpts{Status: "SHELVED_OFFLOADED", AllTenants: true}, "&task_state=" + task})
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// listed is which servers to list.
type listed struct {
	servers.ListOpts
	more string // of the query, which the options of gophercloud lack
}

// ToServerListQuery returns the query.
func (l listed) ToServerListQuery() (string, error) {
	query, err := l.ListOpts.ToServerListQuery()
	return query + l.more, err
}

func (c *Compute) serversOf(ctx context.Context, what string, which listed) (found []Server, err error) {
	hidden := false
	err = c.cloud.ask(ctx, what, func(ctx context.Context) error {
		pages, err := servers.List(c.client, which).AllPages(ctx)
		if err != nil {
			return err
		}
		answer, err := servers.ExtractServers(pages)
		if err != nil {
			return err
		}
		var hosts []struct {
			Host json.RawMessage `json:"OS-EXT-SRV-ATTR:host"` // null: none; nil: hidden
		}
		if err := servers.ExtractServersInto(pages, &hosts); err != nil {
			return err
		}
		found, hidden = nil, false
		for i := range answer {
			hidden = hidden || hosts[i].Host == nil
			found = append(found, serverFromAPI(&answer[i]))
		}
		return nil
	})
	if err == nil && hidden {
		return nil, fmt.Errorf("%s: %w", what, ErrHidden)
	}
	slices.SortFunc(found, func(a, b Server) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID)) })
	return found, err
}

// DeleteServer requests the deletion of a server. It is no error if the server does not exist.
func (c *Compute) DeleteServer(ctx context.Context, id string) error {
	return except(ErrNotFound, c.cloud.ask(ctx, "deleting server "+id, func(ctx context.Context) error {
		return servers.Delete(ctx, c.client, id).ExtractErr()
	}))
}

// ForceDeleteServer deletes a server that is only marked as deleted (SOFT_DELETED, with Nova's
// reclaim_instance_interval): it keeps its devices until then.
func (c *Compute) ForceDeleteServer(ctx context.Context, id string) error {
	return except(ErrNotFound, c.cloud.ask(ctx, "force-deleting server "+id, func(ctx context.Context) error {
		return servers.ForceDelete(ctx, c.client, id).ExtractErr()
	}))
}

// Errors of the console log of a server.
var (
	// ErrNoConsole says that the hypervisor of the server has no console log.
	ErrNoConsole = host.WithHint(errors.New("the hypervisor has no console log"), "run the test on a host whose hypervisor has one, such as libvirt with KVM")
	// ErrConsoleNotReady says that the console log cannot be read yet.
	ErrConsoleNotReady = host.WithHint(errors.New("the console log cannot be read yet"), "try again when the guest runs")
)

// Console returns the end of the console log of a server, at most 100 KiB (nova/virt/libvirt,
// MAX_CONSOLE_BYTES).
//
// Errors: ErrNoConsole, ErrConsoleNotReady.
func (c *Compute) Console(ctx context.Context, id string) (string, error) {
	text, err := answerOf(ctx, c.cloud, "console log of server "+id, func(ctx context.Context) (string, error) {
		return servers.ShowConsoleOutput(ctx, c.client, id, servers.ShowConsoleOutputOpts{}).Extract()
	})
	var e *Error
	if errors.As(err, &e) {
		// nova/api/openstack/compute/console_output.py: 404 also before the guest has a log
		// (ConsoleNotAvailable), 409 before it runs, 501 and on old releases 400 without support.
		switch e.Status {
		case http.StatusNotFound, http.StatusConflict:
			e.Kind = ErrConsoleNotReady
		case http.StatusNotImplemented, http.StatusBadRequest:
			e.Kind = ErrNoConsole
		}
	}
	return text, err
}
