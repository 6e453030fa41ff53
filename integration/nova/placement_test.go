package nova

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	"gpustack/host/hosttest"
	product "gpustack/nova"
)

// Releases of Nova in which Placement gets to know more of a device.
const (
	pciInPlacement = 27 // the scheduler asks for it
	liveMigratable = 31
	oneTimeUse     = 32
)

// deviceClass is the resource class of a K4200 in Placement
// (nova/compute/pci_placement_translator.py).
const deviceClass = "CUSTOM_PCI_10DE_11B4"

// TestDevicesInPlacement: compute nodes and a controller that nova configure has told to track the
// devices in Placement. Each is a provider there, a server's devices are allocated one by one,
// and nova explain names what Nova's scheduler found missing, from Placement's answers.
func TestDevicesInPlacement(t *testing.T) {
	if lab.NovaRelease < pciInPlacement {
		return // nova-scheduler does not ask Placement for devices yet
	}
	inPlacement(t)
	nova := compute(t)
	succeed(t, "flavor", "create", "K4200:2", "--vcpus", "1", "--ram", "64", "--disk", "0", "--yes")
	t.Cleanup(func() { succeed(t, "flavor", "delete", "gpu.k4200.2", "--yes") }) // after the servers
	flavor := rows(t, "SELECT flavorid FROM nova_api.flavors WHERE name = 'gpu.k4200.2'")[0][0]

	want := [][]string{}
	for _, host := range lab.hosts {
		for _, card := range []string{"84", "88"} {
			want = append(want, []string{host + "_0000:" + card + ":00.0", deviceClass, "1", "0"})
		}
	}
	hosttest.EqualIn(t, "inventories of devices", want, inventories(t))
	explains(t, "all are free", []string{"gpu1 can", "gpu2 can"}, "--flavor", "gpu.k4200.2")
	first := request(t, nova, flavor, "", "ACTIVE")
	host := hostOfServer(t, first)
	hosttest.EqualIn(t, "allocations of devices", [][]string{{host + "_0000:84:00.0", "1"}, {host + "_0000:88:00.0", "1"}}, held(t, first))
	of := "instance " + t.Name()
	hosttest.EqualIn(t, "nova devices by Placement alone", onBoth(host, of, "placement"), devices(t, lab.Env()))
	hosttest.EqualIn(t, "nova devices by both", onBoth(host, of, "database and placement"), devices(t, lab.Env(), "--conf", "controller="+lab.NovaConf))
	testFreedByPlacement(t, "gpu.k4200.2")
	explains(t, "one host is used up", onHost(host, "rows", "can"), "--flavor", "gpu.k4200.2")
	second := request(t, nova, flavor, "", "ACTIVE")
	explains(t, "no host", []string{"gpu1 rows", "gpu2 rows"}, "--server", request(t, nova, flavor, "", "ERROR"))
	remove(t, nova, first)
	remove(t, nova, second)
	until(t, "Placement's books are empty", func() bool { return len(allocations(t)) == 0 })
}

// TestLiveMigratable: an alias with live_migratable gets devices whose device_spec says the same,
// and no others. Placement does not know the key.
func TestLiveMigratable(t *testing.T) {
	if lab.NovaRelease < liveMigratable {
		return // Nova rejects the key
	}
	inPlacement(t, "live_migratable=yes")
	nova := compute(t)
	flavor := newFlavor(t, nova, "live-migratable", 1)
	server := request(t, nova, flavor, "", "ACTIVE")
	if got := held(t, server); len(got) != 1 {
		t.Errorf("allocations of devices: %q", got)
	}
	explains(t, "devices are free", []string{"gpu1 can", "gpu2 can"}, "--flavor", "live-migratable")
	remove(t, nova, server)

	// An alias of devices that are not live-migratable: all are.
	conf := hosttest.Read(t, lab.NovaConf)
	lines := strings.Split(conf, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "alias") {
			lines[i] = strings.Replace(line, `"live_migratable": "yes"`, `"live_migratable": "no"`, 1)
		}
	}
	hosttest.NoError(t, os.WriteFile(lab.NovaConf, []byte(strings.Join(lines, "\n")), 0o600))
	restart(t, "nova-scheduler", "nova-api")
	said := explains(t, "no such device", []string{"gpu1 rows", "gpu2 rows"}, "--server", request(t, nova, flavor, "", "ERROR"))
	hosttest.ContainsIn(t, "explain", "2 have no K4200 with the tags of the alias", said)
}

// TestOneTimeUse: a device that can be used once is reserved in Placement since its first guest,
// and stays so when the guest is gone. What nova explain says is enough to give it to a guest
// again.
func TestOneTimeUse(t *testing.T) {
	if lab.NovaRelease < oneTimeUse {
		return // device_spec has no such key
	}
	inPlacement(t, "--one-time-use")
	nova := compute(t)
	flavor := newFlavor(t, nova, "once", 2)
	server := request(t, nova, flavor, "", "ACTIVE")
	host := hostOfServer(t, server)
	reserved := func() (names []string) {
		for _, i := range inventories(t) {
			if i[3] == "1" {
				names = append(names, i[0])
			}
		}
		return names
	}
	both := []string{host + "_0000:84:00.0", host + "_0000:88:00.0"}
	until(t, "the devices are reserved", func() bool { return slices.Equal(reserved(), both) })
	explains(t, "a guest has them", onHost(host, "rows", "can"), "--flavor", "once")
	remove(t, nova, server)
	time.Sleep(12 * time.Second) // two audits
	if got := reserved(); !slices.Equal(got, both) {
		t.Errorf("reserved after the guest: %q, want %q", got, both)
	}
	hosttest.EqualIn(t, "nova devices", onBoth(host, "to-clean", "placement"), devices(t, lab.Env()))
	said := explains(t, "its guest is gone", onHost(host, "placement", "can"), "--flavor", "once")
	hosttest.ContainsIn(t, "explain", "one-time-use", said)
}

// onHost is what nova explain says of both hosts: of the one, and of the other.
func onHost(host, one, other string) []string {
	links := []string{host + " " + one, theOther(host) + " " + other}
	slices.Sort(links)
	return links
}

// inPlacement has both compute nodes and the controller track their K4200 in Placement, as nova
// configure tells them to. What is given is for the devices: keys of the alias, or flags. All
// ends with the test, which Nova itself cannot: Restore does it.
func inPlacement(t *testing.T, more ...string) {
	t.Helper()
	hosttest.NoError(t, lab.Save(t.Context()))
	t.Cleanup(func() {
		if err := lab.Restore(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	alias, flags := "K4200=10de:11b4,device_type=type-PCI", []string{}
	for _, m := range more {
		if strings.HasPrefix(m, "--") {
			flags = append(flags, m)
		} else {
			alias += "," + m
		}
	}
	// The versions are those of Debian 13; the fake driver has none.
	configure(t, append([]string{"--role", "compute", "--placement", "--libvirt", "11.3.0", "--qemu", "10.0.0", "--alias", alias}, flags...)...)
	restart(t, "nova-compute-gpu1", "nova-compute-gpu2")
	until(t, "the cards are providers", func() bool { return len(inventories(t)) == 4 })
	configure(t, "--role", "controller", "--placement", "--alias", alias)
	restart(t, "nova-scheduler", "nova-api")
}

// configure runs nova configure on the lab's own nova.conf, which must change.
func configure(t *testing.T, args ...string) {
	t.Helper()
	argv := append([]string{"nova", "configure", "--root", lab.Root, "--release", lab.ReleaseName(), "--yes"}, args...)
	stdout, stderr, status := command(t, nil, argv...)
	if status != 0 || strings.Contains(stdout+stderr, "nothing to do") {
		t.Fatalf("%q: exit status %d\n%s%s", args, status, stdout, stderr)
	}
}

// restart restarts services of the lab.
func restart(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		hosttest.NoError(t, errors.Join(lab.StopService(name), lab.StartService(t.Context(), name)))
	}
}

// inventories are those of devices in Placement: provider, resource class, total and reserved.
func inventories(t *testing.T) [][]string {
	t.Helper()
	return rows(t, "SELECT p.name, c.name, i.total, i.reserved FROM placement.inventories i JOIN placement.resource_providers p ON p.id = i.resource_provider_id"+
		" JOIN placement.resource_classes c ON c.id = i.resource_class_id WHERE p.parent_provider_id IS NOT NULL ORDER BY 1")
}

// held are the devices in Placement that a consumer has, and how many of each.
func held(t *testing.T, consumer string) [][]string {
	t.Helper()
	return rows(t, "SELECT p.name, a.used FROM placement.allocations a JOIN placement.resource_providers p ON p.id = a.resource_provider_id"+
		" WHERE p.parent_provider_id IS NOT NULL AND a.consumer_id = '%s' ORDER BY 1", consumer)
}

// explains runs nova explain with the nova.conf of the lab, compares what it says of each host, and
// returns all that it found.
func explains(t *testing.T, what string, want []string, args ...string) string {
	t.Helper()
	e := explainWith(t, lab.NovaConf, args...)
	if diff := cmp.Diff(want, e.links()); diff != "" {
		t.Errorf("%s (-want +got):\n%s\n%s", what, diff, e.Conclusion)
	}
	return fmt.Sprintf("%s\n%+v", e.Conclusion, e.Judgements)
}

// TestReshapeNeedsRole: Placement rejects a user who has the role admin, but not service, as nova
// configure warns, and it does so in no release for which there is no warning. A request that is
// permitted fails here because it is empty.
func TestReshapeNeedsRole(t *testing.T) {
	reshape := func(user, password, project string) int {
		t.Helper()
		session, err := openstack.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
			IdentityEndpoint: lab.KeystoneURL, Username: user, Password: password, TenantName: project, DomainName: "Default",
		})
		hosttest.NoError(t, err)
		placement, err := openstack.NewPlacementV1(session, gophercloud.EndpointOpts{Region: Region})
		hosttest.NoError(t, err)
		placement.Microversion = "1.30"
		answer, err := placement.Post(t.Context(), placement.ServiceURL("reshaper"), struct{}{}, nil, &gophercloud.RequestOpts{
			OkCodes: []int{http.StatusBadRequest, http.StatusForbidden}, KeepResponseBody: true,
		})
		hosttest.NoError(t, err)
		answer.Body.Close()
		return answer.StatusCode
	}
	want := http.StatusBadRequest
	if len(product.ReshapeWarnings(product.Options{Role: product.Compute, Release: product.Release(lab.NovaRelease), Placement: true}, nil)) > 0 {
		want = http.StatusForbidden
	}
	hosttest.EqualIn(t, "without the role", want, reshape("admin", lab.AdminPassword, "admin"))
	if got := reshape("placement", lab.ServicePassword, "service"); got != http.StatusBadRequest {
		t.Errorf("with the role: %d", got)
	}
}
