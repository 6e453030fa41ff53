package nova

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/nova/conf"
)

// computeFiles returns the configuration files of each nova-compute of the machine below root, in
// the order in which the service reads them: of the one that packages install, and of those that
// deployment tools run in containers.
func computeFiles(root host.Root) (sets [][]string, err error) {
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
	for _, in := range generated {
		sets = append(sets, in.Files)
	}
	return sets, err
}

// HostOption is the option host of nova-compute, by which Nova identifies the compute node.
type HostOption struct {
	Files []string // the files that were read; none if there is no nova.conf
	Host  *string  // its value; nil if it is not set
	From  string   // the file that sets it
	Err   error    // why it could not be determined
}

// ReadHostOption reads the option host from files, or without files from those of every
// nova-compute of the machine. Two services with different values are an error.
func ReadHostOption(root host.Root, files []string) HostOption {
	sets := [][]string{files}
	if len(files) == 0 {
		var err error
		if sets, err = computeFiles(root); err != nil {
			return HostOption{Err: err}
		}
	}
	var found HostOption
	for i, set := range sets {
		o := readHostOption(root, set)
		if i > 0 && o.Err == nil && !same(o.Host, found.Host) {
			o.Err = fmt.Errorf("%s and %s set different values of host: --conf names the file that nova-compute reads", found.Files[0], set[0])
		}
		found.Err = errors.Join(found.Err, o.Err)
		found.Files = append(found.Files, set...)
		if o.Host != nil {
			found.Host, found.From = o.Host, o.From
		}
	}
	return found
}

func same(a, b *string) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// readHostOption reads the files of one nova-compute.
func readHostOption(root host.Root, files []string) HostOption {
	found := HostOption{Files: files}
	var errs []error
	for _, name := range files {
		file, err := readConf(root, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		options := file.Find(conf.Name{Section: "DEFAULT", Key: "host"})
		if len(options) == 0 {
			continue
		}
		// Within a file the last value counts. Which of several files counts depends on the command
		// line of the service, so all files must have the same value.
		value := options[len(options)-1].Value
		switch {
		case value == "" || strings.ContainsAny(value, "$\n"): // $ refers to another option
			errs = append(errs, fmt.Errorf("%s: host: cannot evaluate %s", name, strconv.Quote(value)))
		case found.Host != nil && *found.Host != value:
			errs = append(errs, fmt.Errorf("%s: host is %s, but %s in %s", name, strconv.Quote(value), strconv.Quote(*found.Host), found.From))
		}
		found.Host, found.From = &value, name
	}
	found.Err = errors.Join(errs...)
	return found
}

// ReadVirtType returns [libvirt] virt_type of nova-compute and the file that sets it: how guests
// are run. Of several files the last one counts. Both are "" where the option is not set, and where
// two services of the machine have different values. An error comes with the file that it concerns.
func ReadVirtType(root host.Root) (value, file string, err error) {
	sets, err := computeFiles(root)
	if err != nil {
		return "", DefaultConf, err
	}
	name := conf.Name{Section: "libvirt", Key: "virt_type"}
	for i, set := range sets {
		var v, f string
		for _, n := range set {
			parsed, err := readConf(root, n)
			if err != nil {
				return "", n, err
			}
			if options := parsed.Find(name); len(options) > 0 {
				v, f = options[len(options)-1].Value, n
			}
		}
		if i > 0 && v != value {
			return "", "", nil
		}
		value, file = v, f
	}
	return value, file, nil
}
