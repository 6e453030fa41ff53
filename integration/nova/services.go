package nova

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"gpustack/integration/service"
)

// up starts what does not run, in an order in which none waits long for another.
// nova-conductor and nova-scheduler end where Keystone does not answer, and a
// nova-compute that finds no conductor waits for it in steps of ten seconds.
func (l *Lab) up(ctx context.Context) error {
	glance := service.Together()
	if l.standIn == nil {
		glance = l.raise("glance")
	}
	var computes []service.Step
	for _, host := range l.hosts {
		computes = append(computes, l.raise("nova-compute-"+host))
	}
	return service.InTurn(
		l.raise("mariadb"),
		service.Together(
			l.raise("rabbitmq"),
			l.raise("keystone"),
			l.raise("placement"),
		),
		service.Together(
			service.InTurn(l.raise("nova-conductor"), service.Together(computes...)),
			l.raise("nova-scheduler"),
			l.raise("nova-api"),
			glance,
		),
	)(ctx)
}

// raise is the step that starts a service if it does not run.
func (l *Lab) raise(name string) service.Step {
	return func(ctx context.Context) error {
		s, err := l.service(name)
		if err != nil || s.Running() {
			return err
		}
		return l.timed(name, s.Start)(ctx)
	}
}

// down stops all services, the broker and the database last, for the others write to
// them. All are stopped, also where one does not stop well.
func (l *Lab) down() error {
	var others []service.Step
	for _, s := range l.services {
		if s.Name != "rabbitmq" {
			others = append(others, func(context.Context) error { return s.Stop() })
		}
	}
	err := service.Together(others...)(context.Background())
	for _, name := range []string{"rabbitmq", "mariadb"} {
		if s, unknown := l.service(name); unknown == nil { // else it never ran
			err = errors.Join(err, s.Stop())
		}
	}
	return err
}

// StartService starts one service and returns when it serves; a service of Nova does
// when it has reported itself up. Names are those of the services of OpenStack, with
// nova-compute-gpu1 and nova-compute-gpu2, and rabbitmq and mariadb.
func (l *Lab) StartService(ctx context.Context, name string) error {
	s, err := l.service(name)
	if err != nil {
		return err
	}
	return s.Start(ctx)
}

// StopService lets a service end as it likes to, or leaves one that does not run.
func (l *Lab) StopService(name string) error {
	s, err := l.service(name)
	if err != nil {
		return err
	}
	return s.Stop()
}

// Kill ends a service in the middle of what it does.
func (l *Lab) Kill(name string) error {
	s, err := l.service(name)
	if err != nil {
		return err
	}
	return s.Kill()
}

func (l *Lab) service(name string) (*service.Service, error) {
	if name == "mariadb" && l.Database != nil {
		return l.Database.Service, nil
	}
	for _, s := range l.services {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%s: no such service", name)
}

// wsgiRelease is the first release of Nova that has modules for web servers, as Keystone of the
// same time does. Later ones have nothing else.
const wsgiRelease = 31

// define says what the services are, but MariaDB, which package mariadb knows.
func (l *Lab) define() error {
	rabbit, err := l.rabbit()
	if err != nil {
		return err
	}
	nova := []string{"--config-file", l.NovaConf}
	api := l.python("nova-api", "main.py", append([]string{"nova.cmd.api_os_compute"}, nova...)...)
	keystone := "keystone.server.wsgi:initialize_public_application"
	if l.NovaRelease >= wsgiRelease {
		keystone = "keystone.wsgi.api:application"
		api = l.python("nova-api", "wsgi.py", "nova.wsgi.osapi_compute:application", strconv.Itoa(l.ports.Nova))
	}
	l.services = []*service.Service{
		rabbit,
		{
			Program: l.python("keystone", "wsgi.py", keystone, strconv.Itoa(l.ports.Keystone)),
			Ready:   answers(l.KeystoneURL),
		},
		{
			Program: l.python("placement", "wsgi.py", "placement.wsgi:init_application", strconv.Itoa(l.ports.Placement)),
			Ready:   answers(l.PlacementURL),
		},
		{
			Program: api,
			Ready:   answers(l.NovaURL),
		},
		l.novaService("nova-conductor", "nova-conductor", "controller", append([]string{"nova.cmd.conductor"}, nova...)),
		l.novaService("nova-scheduler", "nova-scheduler", "controller", append([]string{"nova.cmd.scheduler"}, nova...)),
	}
	for _, host := range l.hosts {
		own := []string{"--config-file", l.host(host, "nova-compute.conf")}
		l.services = append(l.services, l.novaService("nova-compute-"+host, "nova-compute", host, slices.Concat([]string{"nova.cmd.compute"}, nova, own)))
	}
	return nil
}

// defineGlance adds Glance to the services, unless another server stands in.
func (l *Lab) defineGlance(installed bool) {
	if !installed {
		return
	}
	l.services = append(l.services, &service.Service{
		Program: l.python("glance", "main.py", "glance.cmd.api", "--config-file", l.state("conf", "glance-api.conf")),
		Ready:   answers(l.GlanceURL),
	})
}

// novaService is a service of Nova that reports to the database: it serves when it has
// done so once more than before. It does so as the last step of its start.
func (l *Lab) novaService(name, binary, host string, args []string) *service.Service {
	reports := func(ctx context.Context) (int, error) {
		rows, err := l.Database.Query(ctx, fmt.Sprintf("SELECT coalesce(sum(report_count), 0) FROM nova_cell1.services WHERE deleted = 0 AND `binary` = '%s' AND host = '%s'", binary, host))
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(rows[0][0])
	}
	var before int
	return &service.Service{
		Program: l.python(name, "main.py", args...),
		Prepare: func(ctx context.Context) (err error) {
			before, err = reports(ctx)
			return err
		},
		Ready: func(ctx context.Context) error {
			now, err := reports(ctx)
			if err == nil && now <= before {
				err = errors.New("has not reported itself up")
			}
			return err
		},
	}
}

// rabbit is RabbitMQ. Its script is called where Debian's own calls it, which would
// change to another user first. Erlang's epmd, which it starts in the background, goes
// with it.
func (l *Lab) rabbit() (*service.Service, error) {
	scripts, err := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
	if err != nil || len(scripts) != 1 {
		return nil, fmt.Errorf("rabbitmq: %d servers in /usr/lib/rabbitmq/lib, %w", len(scripts), err)
	}
	dir := l.state("rabbitmq")
	return &service.Service{
		Program: service.Program{
			Name: "rabbitmq",
			Argv: scripts,
			Env: append(l.environ(),
				"HOME="+dir, // of the cookie too
				"ERL_EPMD_ADDRESS=127.0.0.1",
				"ERL_EPMD_PORT="+strconv.Itoa(l.ports.Epmd),
				"RABBITMQ_DIST_PORT="+strconv.Itoa(l.ports.Dist),
				"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
				"RABBITMQ_NODENAME=lab@localhost",
				"RABBITMQ_CONFIG_FILE="+l.state("conf", "rabbitmq.conf"),
				"RABBITMQ_CONF_ENV_FILE=/dev/null",
				"RABBITMQ_ADVANCED_CONFIG_FILE=/dev/null",
				"RABBITMQ_ENABLED_PLUGINS_FILE="+l.state("conf", "enabled_plugins"),
				"RABBITMQ_MNESIA_BASE="+dir,
				"RABBITMQ_LOGS=-",
			),
			Log: l.log("rabbitmq"),
		},
		Ready: func(ctx context.Context) error { return greets(ctx, l.ports.Rabbit) },
	}, nil
}

// python is a program in Debian's Python, whatever python3 comes first in the PATH.
func (l *Lab) python(name, script string, args ...string) service.Program {
	return service.Program{
		Name: name,
		Argv: append([]string{"/usr/bin/python3", filepath.Join(l.dir, "python", script)}, args...),
		Env: append(l.environ(),
			"HOME="+l.dir,
			"OS_KEYSTONE_CONFIG_DIR="+l.state("conf"),
			"OS_PLACEMENT_CONFIG_DIR="+l.state("conf"),
			// From 33 on, Nova leaves eventlet; its services then do not end while RabbitMQ is busy.
			"OS_NOVA_DISABLE_EVENTLET_PATCHING=false",
			"OS_NOVA_CONFIG_DIR="+filepath.Dir(l.NovaConf),
			"OS_NOVA_CONFIG_FILES="+pasteConfig+";"+filepath.Base(l.NovaConf)),
		Log: l.log(name),
	}
}

func (l *Lab) environ() []string {
	return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TMPDIR=" + filepath.Join(l.dir, "tmp")}
}

func (l *Lab) log(name string) string {
	return filepath.Join(l.dir, "log", name+".log")
}

// answers asks an HTTP service for anything.
func answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		// Nova's versioned address wants a token; Glance's root offers choices.
		if response.StatusCode >= http.StatusInternalServerError {
			return errors.New(response.Status)
		}
		return nil
	}
}

// greets asks RabbitMQ for the begin of a session: a port alone may be open before
// the broker behind it is.
func greets(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address(port))
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	// AMQP 0-9-1, section 4.2.2: the server answers this with Connection.Start, whose
	// frame is of type 1.
	if _, err := io.WriteString(conn, "AMQP\x00\x00\x09\x01"); err != nil {
		return err
	}
	var frame [1]byte
	if _, err := io.ReadFull(conn, frame[:]); err != nil {
		return err
	}
	if frame[0] != 1 {
		return fmt.Errorf("answers with %q", frame)
	}
	return nil
}

func address(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
