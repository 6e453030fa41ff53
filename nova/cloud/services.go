package cloud

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/services"
)

// ComputeService is the nova-compute of a host.
type ComputeService struct {
	ID         string // a UUID; a number before microversion 2.53
	Host       string
	Zone       string // availability zone
	Up         bool
	Enabled    bool
	Unknown    bool      // its cell does not answer: neither Enabled nor Reason is known
	ForcedDown bool      // always false before microversion 2.11
	Reason     string    // why it is disabled
	Updated    time.Time // when it was changed or has reported last, by Nova's clock; zero: unknown
}

// utc returns a time without a zone, as Nova prints times to the microsecond.
func utc(text string) (time.Time, error) { return time.Parse("2006-01-02T15:04:05.999999", text) }

// serviceUUIDs is the microversion from which services have a UUID, by which they are changed
// (Pike).
const serviceUUIDs Microversion = 53

// ComputeServices returns the nova-compute services of all cells that answer, sorted by host. It
// requires an administrator. A service of a cell that does not answer is down, and has no zone
// (microversion 2.69).
func (c *Compute) ComputeServices(ctx context.Context) ([]ComputeService, error) {
	type answer struct { // for a cell that is down it lacks fields that gophercloud's type requires
		ID             json.RawMessage `json:"id"` // a number before microversion 2.53
		Host           string          `json:"host"`
		Zone           string          `json:"zone"`
		State          string          `json:"state"`
		Status         string          `json:"status"`
		ForcedDown     bool            `json:"forced_down"`
		DisabledReason string          `json:"disabled_reason"`
		UpdatedAt      string          `json:"updated_at"`
	}
	pager := services.List(c.client, services.ListOpts{Binary: "nova-compute"})
	all, err := listOf(ctx, c.cloud, "compute services", pager, objectsOf[answer]("services"), func(s *answer) ComputeService {
		updated, _ := utc(s.UpdatedAt) // of a cell that is down there is none
		return ComputeService{
			ID: strings.Trim(string(s.ID), `"`), Host: s.Host, Zone: s.Zone, Up: s.State == "up", Enabled: s.Status == "enabled",
			Unknown: s.Status != "enabled" && s.Status != "disabled", ForcedDown: s.ForcedDown, Reason: s.DisabledReason, Updated: updated,
		}
	})
	slices.SortFunc(all, func(a, b ComputeService) int { return strings.Compare(a.Host, b.Host) })
	return all, err
}

// DisableService takes the nova-compute of a host out of scheduling, or changes the reason of one
// that is disabled: at most 255 characters (nova/api/openstack/compute/schemas/services.py). It
// requires an administrator.
func (c *Compute) DisableService(ctx context.Context, s ComputeService, reason string) error {
	return c.putService(ctx, "disabling the compute service of "+s.Host, c.DisableRequest(s, reason))
}

// EnableService lets the scheduler use the nova-compute of a host. It requires an administrator.
func (c *Compute) EnableService(ctx context.Context, s ComputeService) error {
	return c.putService(ctx, "enabling the compute service of "+s.Host, c.EnableRequest(s))
}

// DisableRequest returns the request of DisableService.
func (c *Compute) DisableRequest(s ComputeService, reason string) Request {
	return c.serviceRequest(s, "disable-log-reason", map[string]any{"status": "disabled", "disabled_reason": reason})
}

// EnableRequest returns the request of EnableService.
func (c *Compute) EnableRequest(s ComputeService) Request {
	return c.serviceRequest(s, "enable", map[string]any{"status": "enabled"})
}

// serviceRequest returns the request that changes a service: by its id, or before microversion 2.53
// by an action that names its host (api-ref, os-services).
func (c *Compute) serviceRequest(s ComputeService, action string, body map[string]any) Request {
	if c.Microversion >= serviceUUIDs {
		return Request{http.MethodPut, "/os-services/" + s.ID, body}
	}
	delete(body, "status")
	body["host"], body["binary"] = s.Host, "nova-compute"
	return Request{http.MethodPut, "/os-services/" + action, body}
}

func (c *Compute) putService(ctx context.Context, doing string, r Request) error {
	return c.cloud.ask(ctx, doing, func(ctx context.Context) error {
		_, err := c.client.Put(ctx, c.client.ServiceURL(strings.TrimPrefix(r.Path, "/")), r.Body, nil, &gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}})
		return err
	})
}
