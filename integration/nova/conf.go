package nova

import (
	"embed"
	"errors"
	"os"
	"path/filepath"
	"text/template"

	"gpustack/integration/service"
)

//go:embed conf
var confFiles embed.FS

//go:embed python
var pythonFiles embed.FS

// pasteConfig is what nova-api serves, as Debian has it.
const pasteConfig = "/usr/share/nova-common/api-paste.ini"

// ports are those of the services, all on 127.0.0.1.
type ports struct {
	Rabbit, Dist, Epmd, Keystone, Placement, Glance, Nova, Neutron int
}

// configure chooses ports and passwords, and lays out what the services are to find.
// The files that name the database are written when it is there.
func (l *Lab) configure() error {
	free, err := service.Ports(8)
	if err != nil {
		return err
	}
	l.ports = ports{free[0], free[1], free[2], free[3], free[4], free[5], free[6], free[7]}
	l.KeystoneURL = "http://" + address(l.ports.Keystone) + "/v3"
	l.NovaURL = "http://" + address(l.ports.Nova) + "/v2.1"
	l.PlacementURL = "http://" + address(l.ports.Placement)
	l.GlanceURL = "http://" + address(l.ports.Glance)
	l.NeutronURL = "http://" + address(l.ports.Neutron)
	l.AdminPassword, l.DemoPassword = secret("admin"), secret("demo")
	l.ServicePassword, l.RabbitPassword = secret("service"), secret("rabbit")
	l.Root, l.NovaConf = l.state(), l.state("etc/nova/nova.conf")

	dirs := []string{filepath.Join(l.dir, "log"), filepath.Join(l.dir, "tmp"), l.state("conf"), filepath.Dir(l.NovaConf), l.state("rabbitmq"),
		l.state("nova"), l.state("images"), l.state("staging"), l.state("tasks"), l.state("keys/fernet"), l.state("keys/credential")}
	for _, host := range l.hosts {
		dirs = append(dirs, l.host(host))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := os.CopyFS(l.dir, pythonFiles); err != nil {
		return err
	}
	if err := service.WriteWSGI(filepath.Join(l.dir, "python")); err != nil {
		return err
	}
	for _, host := range l.hosts {
		err := errors.Join(
			l.write(l.host(host, "nova-compute.conf"), "nova-compute.conf", map[string]string{"Host": host, "Dir": l.host(host)}),
			l.SetCards(host, "0000:84:00.0", "0000:88:00.0"))
		if err != nil {
			return err
		}
	}
	for _, name := range []string{"rabbitmq.conf", "enabled_plugins"} {
		if err := l.write(l.state("conf", name), name, l.values()); err != nil {
			return err
		}
	}
	return l.define()
}

// values are what the files in conf leave open.
func (l *Lab) values() map[string]any {
	return map[string]any{
		"Lab":    l,
		"Faked":  len(l.hosts) > 0,
		"Ports":  l.ports,
		"State":  l.state(),
		"Region": Region,
		"Paste":  pasteConfig,
		// The user as whom Nova speaks, by the section that says so.
		"Users": map[string]string{"keystone_authtoken": "nova", "placement": "placement", "neutron": "neutron"},
	}
}

// write makes a file from a template in conf.
func (l *Lab) write(file, name string, values any) error {
	text, err := template.New(name).Option("missingkey=error").ParseFS(confFiles, "conf/"+name)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(text.Execute(out, values), out.Close())
}
