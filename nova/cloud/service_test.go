package cloud

import (
	"testing"

	"gpustack/host/hosttest"

	"github.com/gophercloud/gophercloud/v2"
)

// TestService: the options of [placement] that keystoneauth reads give the same user, whichever of
// their names are used.
func TestService(t *testing.T) {
	section := map[string]string{"auth_url": "http://k/v3", "username": "placement", "password": "p", "user_domain_id": "ud", "tenant_name": "service",
		"project_domain_id": "pd", "region_name": "one", "valid_interfaces": "internal, public", "cafile": "ca.pem", "insecure": "True",
		"randomize_allocation_candidates": "true", "auth_type": "password"}
	found, err := findCredentials(Options{Service: NewService(section), Region: "of the user"})
	hosttest.NoError(t, err)
	want := gophercloud.AuthOptions{IdentityEndpoint: "http://k/v3", Username: "placement", Password: "p", DomainID: "ud", AllowReauth: true,
		Scope: &gophercloud.AuthScope{ProjectName: "service", DomainID: "pd"}}
	hosttest.Equal(t, want, found.auth)
	if placement := found.endpoints.of("placement"); placement.region != "one" || placement.availability != gophercloud.AvailabilityInternal {
		t.Errorf("%+v", placement)
	}
	if (found.tls != tlsFiles{insecure: true, cacert: "ca.pem"}) {
		t.Errorf("%+v", found.tls)
	}
	if NewService(map[string]string{"username": "me"}) != nil {
		t.Error("a service without auth_url")
	}
}
