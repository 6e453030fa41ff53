package cloud

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"

	"gpustack/host"
)

// Project is a project of Keystone.
type Project struct {
	ID   string `json:"id"`
	Name string `json:"name"` // "" if the user may not read projects
}

// Project finds a project by its name or its ID. For a user who may not read projects, an ID is not
// verified.
//
// Errors: ErrNotFound; several projects with the name, in several domains.
func (c *Cloud) Project(ctx context.Context, nameOrID string) (Project, error) {
	what := "project " + nameOrID
	client, err := openstack.NewIdentityV3(c.provider, c.endpoints.options("identity"))
	if err != nil {
		return Project{}, doing(what, err)
	}
	found, err := listOf(ctx, c, what, projects.List(client, projects.ListOpts{Name: nameOrID}), projects.ExtractProjects,
		func(p *projects.Project) projects.Project { return *p })
	if errors.Is(err, ErrForbidden) && isUUID(nameOrID) {
		return Project{ID: nameOrID}, nil
	}
	switch {
	case err != nil:
		return Project{}, err
	case len(found) == 1:
		return Project{found[0].ID, found[0].Name}, nil
	case len(found) > 1:
		ids := host.Map(found, func(p projects.Project) string { return fmt.Sprintf("%s in domain %s", p.ID, p.DomainID) })
		return Project{}, &Error{Doing: what, Reason: "several projects have that name: " + strings.Join(ids, ", ")}
	}
	project, err := answerOf(ctx, c, what, func(ctx context.Context) (*projects.Project, error) {
		return projects.Get(ctx, client, nameOrID).Extract()
	})
	if err != nil {
		return Project{}, err
	}
	return Project{project.ID, project.Name}, nil
}

var uuid = host.LazyRegexp(`^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$`)

func isUUID(s string) bool {
	return uuid().MatchString(s)
}
