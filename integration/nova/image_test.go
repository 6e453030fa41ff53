package nova

import (
	"context"
	"maps"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceproviders"
)

// TestImage: Glance accepts what image set requests, undo leaves the image as it was, and Placement
// answers which compute node has a trait, also for one that it does not know.
func TestImage(t *testing.T) {
	session, err := lab.Client(t.Context())
	hosttest.NoError(t, err)
	glance, err := openstack.NewImageV2(session, gophercloud.EndpointOpts{Region: Region})
	hosttest.NoError(t, err)
	made, err := images.Create(t.Context(), glance, images.CreateOpts{Name: "of-the-test", ContainerFormat: "bare", DiskFormat: "qcow2",
		Properties: map[string]string{"os_distro": "debian", "os_type": "linux"}}).Extract()
	hosttest.NoError(t, err)
	t.Cleanup(func() {
		if err := images.Delete(context.WithoutCancel(t.Context()), glance, made.ID).ExtractErr(); err != nil {
			t.Error(err)
		}
	})
	// shown is all that Glance says of the image, but for the time of its last change.
	shown := func() map[string]any {
		t.Helper()
		var all map[string]any
		hosttest.NoError(t, images.Get(t.Context(), glance, made.ID).ExtractInto(&all))
		all = maps.Clone(all)
		delete(all, "updated_at")
		return all
	}
	before := shown()
	set := []string{"image", "set", "of-the-test", "--profile", "windows", "--min-disk", "40", "--min-ram", "8G", "--property", "os_distro="}
	if got := succeed(t, append(set, "--yes")...); !strings.Contains(got, "+property     hw_disk_bus=virtio\n") || !strings.Contains(got, "changed image of-the-test, id ID\n") {
		t.Errorf("%s", got)
	}
	want := maps.Clone(before)
	maps.Copy(want, map[string]any{"min_disk": 40.0, "min_ram": 8192.0, "os_type": "windows", "hw_disk_bus": "virtio", "hw_vif_multiqueue_enabled": "true"})
	delete(want, "os_distro")
	hosttest.EqualIn(t, "set", want, shown())
	hosttest.ContainsIn(t, "again", "nothing to do: the image is as planned\n", succeed(t, set...))
	succeed(t, "undo", "--yes")
	hosttest.EqualIn(t, "undone", before, shown())

	// A user who neither owns the image nor is an administrator.
	if stdout, stderr, status := command(t, lab.DemoEnv(), "image", "set", Image, "--profile", "gpu", "--yes"); status != 1 ||
		!strings.Contains(stderr, "belongs to another project") || !strings.Contains(stderr, "hint: use the credentials of that project") {
		t.Errorf("exit status %d\n%s%s", status, stdout, stderr)
	}

	// Traits: that of secure boot before and after a compute node has it, and one that is newer than
	// this Placement.
	secure := []string{"image", "set", "of-the-test", "--profile", "gpu", "--property", "os_secure_boot=required", "--dry-run"}
	planned := func() string {
		t.Helper()
		_, stderr, status := command(t, lab.Env(), secure...)
		if status != 2 {
			t.Fatalf("exit status %d\n%s", status, stderr)
		}
		return stderr
	}
	const trait = "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
	hosttest.Contains(t, "it demands trait "+trait+", which no compute node reports", planned())
	placement, err := openstack.NewPlacementV1(session, gophercloud.EndpointOpts{Region: Region})
	hosttest.NoError(t, err)
	placement.Microversion = "1.28"
	pages, err := resourceproviders.List(placement, resourceproviders.ListOpts{Name: "gpu1"}).AllPages(t.Context())
	hosttest.NoError(t, err)
	nodes, err := resourceproviders.ExtractResourceProviders(pages)
	if err != nil || len(nodes) != 1 {
		t.Fatalf("%v, %v", nodes, err)
	}
	has, err := resourceproviders.GetTraits(t.Context(), placement, nodes[0].UUID).Extract()
	hosttest.NoError(t, err)
	given, err := resourceproviders.UpdateTraits(t.Context(), placement, nodes[0].UUID,
		resourceproviders.UpdateTraitsOpts{ResourceProviderGeneration: has.ResourceProviderGeneration, Traits: append(has.Traits, trait)}).Extract()
	hosttest.NoError(t, err)
	hosttest.Contains(t, "guests run only on the compute nodes with trait "+trait+": gpu1\n", planned())
	if err := resourceproviders.UpdateTraits(t.Context(), placement, nodes[0].UUID,
		resourceproviders.UpdateTraitsOpts{ResourceProviderGeneration: given.ResourceProviderGeneration, Traits: has.Traits}).Err; err != nil {
		t.Error(err)
	}
	hosttest.NoError(t, images.Update(t.Context(), glance, made.ID, images.UpdateOpts{
		images.UpdateImageProperty{Op: images.AddOp, Name: "hw_maxphysaddr_mode", Value: "passthrough"}}).Err)
	flavor := newFlavor(t, compute(t), "of-the-image", 1)
	// The fake driver of later releases reports it.
	const ofTheImage = "COMPUTE_ADDRESS_SPACE_PASSTHROUGH"
	wanted := "demands trait " + ofTheImage + ", which no compute node reports"
	if rows(t, "SELECT count(*) FROM placement.resource_provider_traits r JOIN placement.traits t ON t.id = r.trait_id WHERE t.name = '%s'", ofTheImage)[0][0] != "0" {
		wanted = "trait " + ofTheImage + " is reported by gpu1, gpu2"
	}
	stdout, stderr, status := command(t, lab.Env(), "image", "check", "of-the-test", "--flavor", flavor)
	if status != 2 || !strings.Contains(strings.Join(strings.Fields(stdout), " "), wanted) {
		t.Errorf("exit status %d\n%s%s", status, stdout, stderr)
	}
}
