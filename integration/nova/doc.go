// Package nova starts a whole OpenStack control plane for tests: on one machine, as
// root, on loopback only, from Debian's packages and with nothing of the machine's
// own configuration. All that it writes is below one folder,
// and nothing runs on when the test does not.
//
// Real: MariaDB, RabbitMQ, Keystone, Placement, Glance, nova-api, nova-conductor,
// nova-scheduler and two nova-computes, gpu1 and gpu2, and so every row in their
// databases. They are those of the release of Debian that tests run in (SUITE, see .ci/inside);
// where it has no Glance, glance.go stands in. Not real: the hypervisor, which is Nova's own fake
// driver with two Quadro K4200 a host (python/lab/labdriver.py), Neutron, which says that there is
// nothing (neutron.go), and the web server before Keystone and Placement, which is that of Python's
// library. So this package does not test libvirt, PCI devices, NICs, live migration, several cells
// or TLS. Some times in nova.conf are shorter than in production, and say so there.
//
// Where to look: lab.go is the lab as tests see it, services.go what runs and in which
// order, schema.go and catalog.go what is there before any test, hosts.go what can be
// done to a compute host, save.go how a state is kept; conf and python hold the files
// that the services read.
package nova
