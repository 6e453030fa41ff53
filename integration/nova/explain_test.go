package nova

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/aggregates"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servergroups"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/services"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
)

// explained is the part of nova explain's document that the tests read.
type explained struct {
	Verdict    string
	Conclusion string
	Judgements []struct {
		Host    string
		Verdict string
		Failing *string `json:"first_failing"`
		Links   []struct{ Link, Status, Seen, Remedy string }
	}
}

// links returns each host with its first failing link, or its verdict.
func (e explained) links() (list []string) {
	for _, j := range e.Judgements {
		word := j.Verdict
		if j.Failing != nil {
			word = *j.Failing
		}
		list = append(list, j.Host+" "+word)
	}
	return list
}

// explain runs nova explain with the lab's nova.conf, and so with its databases.
func explain(t *testing.T, args ...string) explained {
	t.Helper()
	compute := filepath.Join(t.TempDir(), "compute.conf")
	const text = "[pci]\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n" +
		"alias = {\"name\": \"K4200\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\", \"device_type\": \"type-PCI\"}\n"
	hosttest.NoError(t, os.WriteFile(compute, []byte(text), 0o600))
	return explainWith(t, compute, args...)
}

// explainWith is explain for compute nodes with a nova.conf.
func explainWith(t *testing.T, compute string, args ...string) explained {
	t.Helper()
	args = append([]string{"nova", "explain", "-o", "json", "--release", lab.ReleaseName(), "--nova-python", "python3", "--conf", "controller=" + lab.NovaConf, "--conf", "compute=" + compute}, args...)
	stdout, stderr, status := command(t, lab.Env(), args...)
	var e explained
	if err := json.Unmarshal([]byte(stdout), &e); err != nil || status == 1 || (status == 0) != (e.Verdict == "can") {
		t.Fatalf("%q: exit status %d, %v\n%s%s", args, status, err, stdout, stderr)
	}
	return e
}

// request requests a server in an availability zone, "" for any, and returns its id when it has the
// status. The server is deleted after the test.
func request(t *testing.T, nova *gophercloud.ServiceClient, flavor, zone, status string) string {
	t.Helper()
	return requestIn(t, nova, "", flavor, zone, status)
}

// requestIn is request for a server of a server group, "" for none.
func requestIn(t *testing.T, nova *gophercloud.ServiceClient, group, flavor, zone, status string) string {
	t.Helper()
	glance, err := openstack.NewImageV2(nova.ProviderClient, gophercloud.EndpointOpts{Region: Region})
	hosttest.NoError(t, err)
	pages, err := images.List(glance, images.ListOpts{Name: Image}).AllPages(t.Context())
	hosttest.NoError(t, err)
	all, err := images.ExtractImages(pages)
	if err != nil || len(all) != 1 {
		t.Fatalf("images: %v, %v", err, all)
	}
	made, err := servers.Create(t.Context(), nova, servers.CreateOpts{Name: t.Name(), FlavorRef: flavor, ImageRef: all[0].ID, Networks: "none",
		AvailabilityZone: zone}, servers.SchedulerHintOpts{Group: group}).Extract()
	hosttest.NoError(t, err)
	t.Cleanup(func() {
		err := servers.Delete(context.WithoutCancel(t.Context()), nova, made.ID).ExtractErr()
		if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			t.Errorf("server %s is left: %v", made.ID, err)
		}
	})
	until(t, "the server is "+status, func() bool {
		s, err := servers.Get(t.Context(), nova, made.ID).Extract()
		if err != nil || s.Status != status && s.Status != "BUILD" {
			t.Fatalf("the server: %v, %+v", err, s)
		}
		if s.Status == "ERROR" && !strings.Contains(s.Fault.Message, "No valid host") {
			t.Fatalf("the fault is another one: %+v", s.Fault)
		}
		return s.Status == status
	})
	return made.ID
}

// TestExplain compares nova explain with Nova: a host that it names builds the guest, and of each
// server that found no valid host it names the link that was broken. One server is built, in a zone
// of its own, and uses up the devices of gpu2.
func TestExplain(t *testing.T) {
	nova := compute(t)
	group, err := aggregates.Create(t.Context(), nova, aggregates.CreateOpts{Name: "explain", AvailabilityZone: "elsewhere"}).Extract()
	hosttest.NoError(t, err)
	t.Cleanup(func() {
		if err := aggregates.Delete(context.WithoutCancel(t.Context()), nova, group.ID).ExtractErr(); err != nil {
			t.Error(err)
		}
	})
	if _, err := aggregates.AddHost(t.Context(), nova, group.ID, aggregates.AddHostOpts{Host: "gpu2"}).Extract(); err != nil {
		t.Fatal(err)
	}
	two := newFlavor(t, nova, "explain-two", 2)
	same := func(what string, e explained, want ...string) {
		t.Helper()
		if got := e.links(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q: %s", what, got, want, e.Conclusion)
		}
	}
	same("all devices are free", explain(t, "--flavor", "explain-two"), "gpu1 can", "gpu2 can")
	same("a zone", explain(t, "--flavor", "explain-two", "--az", "elsewhere"), "gpu1 availability_zone", "gpu2 can")
	first := request(t, nova, two, "elsewhere", "ACTIVE")
	defer func() {
		remove(t, nova, first)
		if _, err := aggregates.RemoveHost(context.WithoutCancel(t.Context()), nova, group.ID, aggregates.RemoveHostOpts{Host: "gpu2"}).Extract(); err != nil {
			t.Error(err)
		}
	}()
	same("devices of one host used up", explain(t, "--flavor", "explain-two"), "gpu1 can", "gpu2 rows")
	if e := explain(t, "--server", first); e.Verdict != "can" || !strings.Contains(e.Conclusion, "is ACTIVE on host gpu2") {
		t.Errorf("a server that works: %+v", e)
	}
	same("another zone", explain(t, "--server", request(t, nova, two, "elsewhere", "ERROR")), "gpu1 availability_zone", "gpu2 rows")

	petabyte := 1 << 20 // there is no quota for disks of flavors
	large, err := flavors.Create(t.Context(), nova, flavors.CreateOpts{Name: "explain-large", RAM: 64, VCPUs: 1, Disk: &petabyte}).Extract()
	hosttest.NoError(t, err)
	t.Cleanup(func() { flavors.Delete(context.WithoutCancel(t.Context()), nova, large.ID) })
	same("disk", explain(t, "--server", request(t, nova, large.ID, "", "ERROR")), "gpu1 placement", "gpu2 placement")

	trait, err := flavors.Create(t.Context(), nova, flavors.CreateOpts{Name: "explain-trait", RAM: 64, VCPUs: 1, Disk: new(int)}).Extract()
	hosttest.NoError(t, err)
	t.Cleanup(func() { flavors.Delete(context.WithoutCancel(t.Context()), nova, trait.ID) })
	if _, err := flavors.CreateExtraSpecs(t.Context(), nova, trait.ID, flavors.ExtraSpecsOpts{"trait:HW_CPU_X86_AVX512F": "required"}).Extract(); err != nil {
		t.Fatal(err)
	}
	same("trait", explain(t, "--server", request(t, nova, trait.ID, "", "ERROR")), "gpu1 placement", "gpu2 placement")

	apart, err := servergroups.Create(t.Context(), nova, servergroups.CreateOpts{Name: "explain", Policy: "anti-affinity"}).Extract()
	hosttest.NoError(t, err)
	t.Cleanup(func() {
		if err := servergroups.Delete(context.WithoutCancel(t.Context()), nova, apart.ID).ExtractErr(); err != nil {
			t.Error(err)
		}
	})
	plain, err := flavors.Create(t.Context(), nova, flavors.CreateOpts{Name: "explain-plain", RAM: 64, VCPUs: 1, Disk: new(int)}).Extract()
	hosttest.NoError(t, err)
	t.Cleanup(func() { flavors.Delete(context.WithoutCancel(t.Context()), nova, plain.ID) })
	member := requestIn(t, nova, apart.ID, plain.ID, "elsewhere", "ACTIVE")
	same("a server group", explain(t, "--server", requestIn(t, nova, apart.ID, plain.ID, "elsewhere", "ERROR")), "gpu1 availability_zone", "gpu2 filters")
	remove(t, nova, member)

	pages, err := services.List(nova, services.ListOpts{Binary: "nova-compute", Host: "gpu1"}).AllPages(t.Context())
	hosttest.NoError(t, err)
	all, err := services.ExtractServices(pages)
	if err != nil || len(all) != 1 {
		t.Fatal(err, all)
	}
	set := func(status services.ServiceStatus) {
		t.Helper()
		if _, err := services.Update(context.WithoutCancel(t.Context()), nova, all[0].ID, services.UpdateOpts{Status: status}).Extract(); err != nil {
			t.Error(err)
		}
	}
	set(services.ServiceDisabled)
	defer set(services.ServiceEnabled)
	same("a disabled service", explain(t, "--server", request(t, nova, two, "", "ERROR")), "gpu1 service", "gpu2 rows")
}
