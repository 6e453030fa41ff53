package nova

import (
	"errors"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova/conf"
)

// Folders of deployment tools that run Nova's services in containers.
const (
	// kollaDir contains a folder for each service, with the files that its container gets
	// (kolla-ansible, ansible/roles/nova-cell/templates/nova-compute.json.j2).
	kollaDir = "/etc/kolla/"
	// tripleoDir contains the files that Puppet generated for the containers of TripleO
	// (tripleo-heat-templates, deployment/nova/nova-compute-container-puppet.yaml).
	tripleoDir = "/var/lib/config-data/puppet-generated/"
	// rhosoDir contains the files that get into nova.conf.d of nova-compute's container, if their
	// names match *nova*.conf (edpm-ansible, roles/edpm_nova/templates/config.json.j2).
	rhosoDir = "/var/lib/openstack/config/nova"
	// snapDir contains nova.conf, which Sunbeam's snap generates, and nova.conf.d for options of the
	// deployment; nova-compute is started with both and reads no other file
	// (snap-openstack-hypervisor, openstack_hypervisor/services.py, templates/nova.conf.j2).
	snapDir = "/var/snap/openstack-hypervisor/common/etc/nova"
)

// Installation is the files of services that a machine runs, which were installed in one way.
type Installation struct {
	Role      Role
	Files     []string // in the order in which the services read them
	Generated bool     // by a deployment tool, for containers
}

// generated returns the services of a role whose files a deployment tool generates for containers
// on the machine below root.
func generated(root host.Root, role Role) ([]Installation, error) {
	s := search{root: root}
	var all []Installation
	add := func(r Role, mains ...string) {
		found := Installation{Role: r, Generated: true}
		for _, main := range mains {
			if (r.Controls() && !role.Controls()) || (r.Computes() && !role.Computes()) || !s.exists(main) {
				continue
			}
			names, err := Files(root, main, r)
			s.err = errors.Join(s.err, err)
			found.Files = append(found.Files, names...)
		}
		if len(found.Files) > 0 {
			all = append(all, found)
		}
	}
	kolla := func(program string) string { return kollaDir + program + "/nova.conf" }
	add(Controller, kolla(programAPI), kolla(programScheduler), kolla(programConductor))
	add(Compute, kolla(programCompute))
	add(Controller, tripleoDir+"nova"+DefaultConf)
	add(Compute, tripleoDir+"nova_libvirt"+DefaultConf)
	if !role.Computes() {
		return all, s.err
	}
	snap, rhoso := search{root: root}, search{root: root}
	if snap.file(snapDir, path.Base(DefaultConf)); snap.names != nil {
		snap.folder(path.Join(snapDir, dropInDir))
	}
	rhoso.folder(rhosoDir)
	rhoso.names = slices.DeleteFunc(rhoso.names, func(name string) bool { return !strings.Contains(path.Base(name), "nova") })
	for _, found := range []search{snap, rhoso} {
		s.err = errors.Join(s.err, found.err)
		if len(found.names) > 0 {
			all = append(all, Installation{Role: Compute, Files: found.names, Generated: true})
		}
	}
	return all, s.err
}

// mains returns the file by which each service that reads the files is named: that of each
// container of kolla, or the first.
func (i Installation) mains() (names []string) {
	names = host.Filter(i.Files, func(name string) bool {
		return strings.HasPrefix(name, kollaDir) && path.Base(name) == path.Base(DefaultConf)
	})
	if names == nil {
		return i.Files[:1]
	}
	return names
}

// owner returns the tool that generates a file, as [conf.Owner] does, and where an operator sets
// what is wanted of it, "" if that is nothing.
func (o Options) owner(file string, text []byte, w Want) (owner, where string) {
	owner, where = conf.Owner(file, text)
	if owner == ownerKolla && strings.HasPrefix(file, kollaDir) {
		if paths, err := (kolla{o, w}).path(file); err == nil { // else the options cannot be rendered
			where = paths
		}
	}
	return owner, where
}

// ownerKolla is the name of kolla-ansible as [conf.Owner] returns it.
const ownerKolla = "kolla-ansible"

// installationsOf returns the services that the machine below root runs, as far as their files show
// it: those that deployment tools run in containers, and those that read /etc/nova/nova.conf. Where
// a tool runs the services of the role, /etc/nova/nova.conf counts only if there is a unit that
// reads it: else it is left over. role of the latter is All where it is not known.
//
// Errors: ErrUnset if there is none.
func installationsOf(root host.Root, role Role) ([]Installation, error) {
	all, err := generated(root, role)
	if err != nil {
		return nil, err
	}
	s := search{root: root}
	there := s.exists(DefaultConf)
	if s.err == nil && there && len(all) > 0 {
		units, err := packagedUnits(root, role.Programs()...)
		if err != nil {
			return nil, err
		}
		there = len(units) > 0
	}
	switch {
	case s.err != nil:
		return nil, s.err
	case !there && len(all) > 0:
		return all, nil
	}
	names, err := Files(root, DefaultConf, role)
	return append([]Installation{{Role: role, Files: names}}, all...), err
}

// refuseGenerated returns an error for each nova.conf of the role's services that a deployment tool
// generates, with where the tool reads what is wanted.
func refuseGenerated(root host.Root, o Options, w Want) error {
	all, err := generated(root, o.Role)
	errs := []error{err}
	s := search{root: root}
	other := ""
	if s.exists(DefaultConf) {
		other = DefaultConf
	}
	errs = append(errs, s.err)
	for _, found := range all {
		for _, file := range found.mains() {
			text, err := root.ReadFile(file)
			errs = append(errs, err)
			if owner, where := o.owner(file, text, w); where != "" {
				errs = append(errs, &OwnedError{file, owner, where, other})
			}
		}
	}
	return errors.Join(errs...)
}
