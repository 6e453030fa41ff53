package explain

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
)

// cloudOfGroups answers for servers by their ids: the host that each is on.
type cloudOfGroups struct {
	group *cloud.ServerGroup
	hosts map[string]string
}

func (c cloudOfGroups) GroupOf(context.Context, string) (*cloud.ServerGroup, error) {
	return c.group, nil
}

func (c cloudOfGroups) ServerPlacing(_ context.Context, id string) (cloud.Placing, error) {
	host, there := c.hosts[id]
	switch {
	case !there:
		return cloud.Placing{}, fmt.Errorf("server %s: %w", id, cloud.ErrNotFound)
	case host == "secret":
		return cloud.Placing{}, fmt.Errorf("server %s: %w", id, cloud.ErrForbidden)
	}
	return cloud.Placing{ID: id, Host: host}, nil
}

// TestUnreadImage: the image of a server that cannot be read leaves the host unknown.
func TestUnreadImage(t *testing.T) {
	f := healthy(t)
	f.omit(ImageLink, cloud.ErrNotFound, host.Plain("give another image with --image"))
	if r := Judge(f); r.Verdict != Unknown {
		t.Error(r.Conclusion)
	}
}

// TestReadGroup: the other members count by their hosts; a group that cannot be read leaves the
// host unknown.
func TestReadGroup(t *testing.T) {
	c := cloudOfGroups{&cloud.ServerGroup{Name: "apart", Policy: "anti-affinity", Most: 2, Members: []string{"me", "a", "b", "c", "none", "gone"}},
		map[string]string{"me": "gpu9", "a": "gpu1", "b": "gpu1", "c": "gpu2", "none": ""}}
	f := healthy(t)
	hosttest.NoError(t, f.readGroup(t.Context(), c, "me"))
	if g := f.Group; g == nil || g.Name != "apart" || g.Most != 2 || !maps.Equal(g.Members, map[string]int{"gpu1": 2, "gpu2": 1}) {
		t.Errorf("%+v", f.Group)
	}
	f = healthy(t)
	c.hosts["c"] = "secret"
	if err := f.readGroup(t.Context(), c, "me"); err != nil || f.Group != nil {
		t.Fatal(err, f.Group)
	}
	if r := Judge(f); r.Verdict != Unknown || len(r.NotChecked) != 1 || r.NotChecked[0].Link != Filters {
		t.Errorf("%s: %+v", r.Conclusion, r.NotChecked)
	}
	f = healthy(t)
	c.group = nil
	if err := f.readGroup(t.Context(), c, "me"); err != nil || f.Group != nil || Judge(f).Verdict != Can {
		t.Error(err, f.Group)
	}
}
