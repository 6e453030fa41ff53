package nova

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gpustack/integration/mariadb"
	"gpustack/integration/service"
)

// Region is the one that all endpoints are in.
const Region = "RegionOne"

// A Lab is a running control plane.
type Lab struct {
	KeystoneURL  string // with /v3
	NovaURL      string // with /v2.1
	PlacementURL string
	GlanceURL    string
	NeutronURL   string

	// Passwords of the users admin and demo, of Nova and the other services, and of
	// RabbitMQ. None occurs by chance, so that a test can look for it in what a
	// program prints. The one of the database is Database.Password.
	AdminPassword, DemoPassword, ServicePassword, RabbitPassword string

	NovaRelease int // the major number of its version, 26 for Zed

	// Database is the server with the databases nova_api, nova_cell0, nova_cell1,
	// keystone, placement and glance. Its name as a service is mariadb.
	Database *mariadb.Server
	NovaConf string // the nova.conf of all services of Nova
	Root     string // the folder below which NovaConf is etc/nova/nova.conf

	dir      string
	hosts    []string // those with a fake nova-compute
	ports    ports
	services []*service.Service // all but the database
	neutron  *http.Server
	standIn  *http.Server // in place of Glance; nil where that is installed

	mu      sync.Mutex
	timings []Timing
}

// A Timing is how long a step of the lab took.
type Timing struct {
	Step string
	Took time.Duration
}

// Start brings up a lab below dir, which must be empty and have a short name: sockets
// lie in it. Its compute hosts are gpu1 and gpu2, with a fake hypervisor.
func Start(ctx context.Context, dir string) (*Lab, error) {
	return launch(ctx, &Lab{dir: dir, hosts: []string{"gpu1", "gpu2"}})
}

// StartControllers brings up a lab without compute hosts, in which Nova's intervals are those of
// production, as emulated machines need them, and nova.conf has no options for PCI devices yet.
func StartControllers(ctx context.Context, dir string) (*Lab, error) {
	return launch(ctx, &Lab{dir: dir})
}

// launch starts a lab. A service that does not come up, although nothing ended, is left behind with
// its lab, once: now and then one of them waits for another without end as it starts.
func launch(ctx context.Context, l *Lab) (*Lab, error) {
	again := &Lab{dir: filepath.Join(l.dir, "again"), hosts: l.hosts}
	first, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	err := l.tryStart(first)
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return l, err
	}
	fmt.Fprintf(os.Stderr, "%v\nthe lab is started once more\n", err)
	return again, again.tryStart(ctx)
}

// tryStart starts the lab, or stops it and says what its services were doing.
func (l *Lab) tryStart(ctx context.Context) (err error) {
	if l.NovaRelease, err = installed(); err != nil {
		return err
	}
	if err = l.start(ctx); err == nil {
		return nil
	}
	errs := []error{fmt.Errorf("start the lab: %w", err)}
	if errors.Is(err, context.DeadlineExceeded) {
		for _, s := range l.services {
			if s.Running() && s.Name != "rabbitmq" { // which Erlang would end
				errs = append(errs, s.Doing(errors.New("was running")))
			}
		}
	}
	return errors.Join(append(errs, l.Stop())...)
}

// installed returns the release of Nova that Debian's package has.
func installed() (int, error) {
	const pattern = "/usr/lib/python3/dist-packages/nova-*-info"
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d releases of Nova are installed", len(found))
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", pattern, err)
	}
	_, version, _ := strings.Cut(filepath.Base(found[0]), "-")
	major, _, _ := strings.Cut(version, ".")
	return strconv.Atoi(major)
}

func (l *Lab) start(ctx context.Context) error {
	if err := l.configure(); err != nil {
		return err
	}
	if err := l.startNeutron(); err != nil {
		return err
	}
	glance, err := hasGlance()
	if err == nil && !glance {
		err = l.startStandIn()
	}
	if err != nil {
		return err
	}
	l.defineGlance(glance)
	glanceSchema, makeImage := l.timed("schema of glance", l.glanceSchema), l.timed("image", l.makeImage)
	if !glance {
		glanceSchema, makeImage = service.Together(), service.Together()
	}
	return service.InTurn(
		service.Together(
			l.raise("rabbitmq"),
			service.InTurn(
				l.timed("mariadb", l.makeDatabases),
				service.Together(
					l.timed("schemas of nova", l.novaSchemas),
					l.timed("schema of placement", l.placementSchema),
					glanceSchema,
					service.InTurn(
						l.timed("schema of keystone", l.keystoneSchema),
						l.raise("keystone"),
						l.timed("users and endpoints", l.makeCatalog),
					),
				),
			),
		),
		l.up,
		service.Together(
			makeImage,
			l.timed("hosts found", func(ctx context.Context) error { return l.HostsFound(ctx, 2*len(l.hosts)) }),
		),
	)(ctx)
}

// Stop ends all that runs. The files stay.
func (l *Lab) Stop() error {
	err := l.down()
	for _, server := range []*http.Server{l.neutron, l.standIn} {
		if server != nil {
			err = errors.Join(err, server.Close())
		}
	}
	return err
}

// Env is the environment of a client that is admin, in the project admin.
func (l *Lab) Env() []string {
	return l.env("admin", l.AdminPassword)
}

// DemoEnv is the environment of a client that is demo, who is a mere member of the
// project demo.
func (l *Lab) DemoEnv() []string {
	return l.env("demo", l.DemoPassword)
}

func (l *Lab) env(user, password string) []string {
	return []string{
		"OS_AUTH_URL=" + l.KeystoneURL,
		"OS_IDENTITY_API_VERSION=3",
		"OS_USERNAME=" + user,
		"OS_PASSWORD=" + password,
		"OS_PROJECT_NAME=" + user,
		"OS_USER_DOMAIN_NAME=Default",
		"OS_PROJECT_DOMAIN_NAME=Default",
		"OS_REGION_NAME=" + Region,
	}
}

// Log returns what a service has printed so far.
func (l *Lab) Log(name string) (string, error) {
	s, err := l.service(name)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(s.Log)
	return string(text), err
}

// Timings returns how long each step took, in the order in which they ended.
func (l *Lab) Timings() []Timing {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.timings)
}

// FromMachine is the host and port of one of the lab's URLs as a machine reaches them whose QEMU
// translates its network (-netdev user): the loopback of this machine is 10.0.2.2 there.
func FromMachine(url string) string {
	return strings.Replace(url, "127.0.0.1", "10.0.2.2", 1)
}

// ReleaseName is the release as gpustack's --release accepts it.
func (l *Lab) ReleaseName() string {
	return strconv.Itoa(l.NovaRelease)
}

// RabbitURL is the transport_url of Nova's services.
func (l *Lab) RabbitURL() string {
	return "rabbit://openstack:" + l.RabbitPassword + "@" + address(l.ports.Rabbit) + "/"
}

// timed is a step that notes how long it took.
func (l *Lab) timed(name string, step service.Step) service.Step {
	return func(ctx context.Context) error {
		begin := time.Now()
		err := step(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.timings = append(l.timings, Timing{name, time.Since(begin)})
		return err
	}
}

// secret is a password that says in a message whose it is.
func secret(whose string) string {
	return whose + rand.Text()
}

// state is a path in the folder that Save keeps.
func (l *Lab) state(elem ...string) string {
	return filepath.Join(append([]string{l.dir, "state"}, elem...)...)
}
