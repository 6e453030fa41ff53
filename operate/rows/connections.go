package rows

import (
	"context"
	"fmt"
	"time"

	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// connections are the databases and Placement of one run, as nova.conf and the options name them.
// The databases are opened when they are first needed, and once.
type connections struct {
	where     novadb.Where  // each database must answer within the time limit of the cloud
	down      time.Duration // service_down_time of nova.conf; 0 if it is not set or was not read
	cloud     cloud.Options // with the credentials of nova.conf, unless the user has some
	databases *novadb.Databases

	// Of signIn, both nil before:
	placement *cloud.Placement
	signErr   error
}

// readConnections reads from nova.conf the connections that the options do not give. It opens none.
func readConnections(root host.Root, o Options) (connections, error) {
	c := connections{cloud: o.Cloud, where: novadb.Where{API: o.API, Database: o.Database, Root: root, Limits: novadb.Limits{Connect: o.Cloud.Timeout}}}
	if there, err := root.Exists(o.Conf); o.Database != "" && (err != nil || !there) {
		return c, err // then only Placement and the templates of URLs would be read from nova.conf
	}
	d, err := nova.ReadDatabases(root, o.Conf)
	if err != nil {
		return c, err
	}
	if c.down = d.Down; !o.Cloud.HasCredentials() {
		c.cloud.Service = cloud.NewService(d.Placement)
	}
	c.where.Local, c.where.Parameters = d.Main, d.MainParameters
	// With the API database of another cloud, all instances would be missing.
	if o.Database == "" && o.API == "" {
		c.where.API, c.where.APIParameters = d.API, d.APIParameters
	}
	if c.where.API == "" && c.where.Database == "" {
		return c, host.WithHint(fmt.Errorf("%s: has no [api_database] connection", o.Conf),
			"run gpustack on a controller; or give --database with the URL of one cell, and --api-database with that of nova_api")
	}
	return c, nil
}

// open opens the databases.
func (c *connections) open(ctx context.Context) (err error) {
	if c.databases == nil {
		c.databases, err = novadb.Open(ctx, c.where)
	}
	return err
}

// openAll opens the databases, each of which must be readable.
func (c *connections) openAll(ctx context.Context) error {
	if err := c.open(ctx); err != nil {
		return err
	}
	return c.databases.Unread()
}

// hasPlacement reports whether the user or nova.conf has credentials for Placement.
func (c *connections) hasPlacement() bool {
	return c.cloud.HasCredentials() || c.cloud.Service != nil
}

// signIn authenticates with Placement, once: a Keystone that does not answer costs a run one deadline,
// however often the run needs Placement.
func (c *connections) signIn(ctx context.Context) (*cloud.Placement, error) {
	if c.placement == nil && c.signErr == nil {
		var signedIn *cloud.Cloud
		if signedIn, c.signErr = cloud.Connect(ctx, c.cloud); c.signErr == nil {
			c.placement, c.signErr = signedIn.Placement()
		}
	}
	return c.placement, c.signErr
}
