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

// computeSides reads files or, without any, those of each nova-compute of the machine below root, in
// the order in which the service reads them: of the one that packages install, and of those that
// deployment tools run in containers.
func computeSides(root host.Root, files []string) (sides []Side, err error) {
	sets := [][]string{files}
	if len(files) == 0 {
		sets = nil
		there, err := root.Exists(DefaultConf)
		if err != nil {
			return nil, err
		}
		if there {
			set, err := Files(root, DefaultConf, Compute)
			if err != nil {
				return nil, err
			}
			sets = append(sets, set)
		}
		generated, err := generated(root, Compute)
		if err != nil {
			return nil, err
		}
		sets = append(sets, host.Map(generated, func(in Installation) []string { return in.Files })...)
	}
	var errs []error
	for _, set := range sets {
		side, err := ReadSide(root, Compute, set)
		sides, errs = append(sides, side), append(errs, err)
	}
	return sides, errors.Join(errs...)
}

// HostOption is the option host of nova-compute, by which Nova identifies the compute node.
type HostOption struct {
	Files []string // the files that were read; none if there is no nova.conf
	Host  *string  // its value; nil if it is not set
	From  string   // the file that sets it
	Err   error    // why it could not be determined
}

// ReadHostOption reads the option host from files, or without files from those of every
// nova-compute of the machine. Two services with different values are an error, and so are two
// files of one: which of them counts depends on its command line.
func ReadHostOption(root host.Root, files []string) (found HostOption) {
	sides, err := computeSides(root, files)
	if err != nil {
		return HostOption{Err: err}
	}
	var errs []error
	for i, s := range sides {
		var mine Placed
		for _, f := range s.Files {
			found.Files = append(found.Files, f.Name)
			o, isSet := Side{Files: []conf.Source{f}}.last([]conf.Name{{Section: "DEFAULT", Key: "host"}})
			switch {
			case !isSet:
				continue
			case o.Value == "" || strings.ContainsAny(o.Value, "$\n"): // $ refers to another option
				errs = append(errs, fmt.Errorf("%s: host: cannot evaluate %q", f.Name, o.Value))
			case mine.File != "" && mine.Value != o.Value:
				errs = append(errs, fmt.Errorf("%s: host is %q, but %q in %s", f.Name, o.Value, mine.Value, mine.File))
			}
			mine = o
		}
		isSet := mine.File != ""
		if i > 0 && len(errs) == 0 && (isSet != (found.Host != nil) || isSet && mine.Value != *found.Host) {
			errs = append(errs, fmt.Errorf("%s and %s set different values of host: --conf names the file that nova-compute reads", found.Files[0], s.Files[0].Name))
		}
		if isSet {
			found.Host, found.From = &mine.Value, mine.File
		}
	}
	found.Err = errors.Join(errs...)
	return found
}

// ReadVirtType returns [libvirt] virt_type of nova-compute and the file that sets it: how guests
// are run. Of several files the last one counts. Both are "" where the option is not set, and where
// two services of the machine have different values.
func ReadVirtType(root host.Root) (value, file string, err error) {
	sides, err := computeSides(root, nil)
	if err != nil {
		return "", "", err
	}
	for i, s := range sides {
		o, _ := s.last([]conf.Name{{Section: "libvirt", Key: "virt_type"}})
		if i > 0 && o.Value != value {
			return "", "", nil
		}
		value, file = o.Value, o.File
	}
	return value, file, nil
}

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
	for _, key := range []string{"auth_url", "auth_type", "username", "password", "project_name", "user_domain_name", "project_domain_name",
		"region_name", "valid_interfaces", "cafile", "insecure"} {
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
