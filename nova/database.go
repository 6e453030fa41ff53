package nova

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/nova/conf"
)

// Databases is the settings of Nova's databases and of Placement in nova.conf
// (nova/conf/database.py, nova/conf/service.py).
type Databases struct {
	API  string        // URL of [api_database]; "" if it is not set, as on compute nodes
	Main string        // URL of [database]: the database of cell0 or of a cell, depending on the service
	Down time.Duration // service_down_time; 0 if it is not set

	// connection_parameters of both, in the form of a URL's query. Nova appends those of
	// [database] to the URLs of all cells (oslo_db/sqlalchemy/engines.py,
	// _extend_url_parameters; nova/db/main/api.py, create_context_manager).
	APIParameters, MainParameters string

	Placement map[string]string // the options of [placement] that are set
}

// Databases returns the settings from the files of a machine. Of an option with several values the
// last one counts. The URLs contain passwords.
func (s Side) Databases() (Databases, error) {
	var d Databases
	var errs []error
	single := func(section, key string) string {
		last, _ := s.last([]conf.Name{{Section: section, Key: key}})
		value, err := plain(last.Value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: [%s] %s: %w", last.File, last.Line(), section, key, err))
		}
		return value
	}
	d.API, d.APIParameters = single("api_database", "connection"), single("api_database", "connection_parameters")
	d.Main, d.MainParameters = single("database", "connection"), single("database", "connection_parameters")
	if text := single("DEFAULT", "service_down_time"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			errs = append(errs, fmt.Errorf("%s: [DEFAULT] service_down_time: %q is not a number of seconds", s.Name(), text))
		}
		d.Down = time.Duration(n) * time.Second
	}
	d.Placement = map[string]string{}
	for _, key := range []string{"auth_url", "auth_type", "username", "password", "project_name", "user_domain_name", "project_domain_name", "region_name", "valid_interfaces", "cafile", "insecure"} {
		if value := single("placement", key); value != "" {
			d.Placement[key] = value
		}
	}
	return d, errors.Join(errs...)
}

// ReadDatabases reads the settings of the databases from the files that the services of a
// controller read: file and those of nova.conf.d beside it.
func ReadDatabases(root host.Root, file string) (Databases, error) {
	names, err := Files(root, file, Controller)
	if err != nil {
		return Databases{}, err
	}
	side, err := ReadSide(root, Controller, names)
	if err != nil {
		return Databases{}, err
	}
	return side.Databases()
}

// errReference says that a value refers to another option or to the environment (oslo.config,
// cfg.py, ConfigOpts.StrSubWrapper), which only the service can resolve.
var errReference = errors.New("references to other options ($NAME) are not supported")

// plain returns a value as a service reads it, with $$ replaced by $.
func plain(value string) (string, error) {
	if strings.Contains(strings.ReplaceAll(value, "$$", ""), "$") {
		return "", errReference
	}
	return strings.ReplaceAll(value, "$$", "$"), nil
}
