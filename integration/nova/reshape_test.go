package nova

import (
	"net/http"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	"gpustack/host/hosttest"
	product "gpustack/nova"
)

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
