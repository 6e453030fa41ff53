package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/nova/cloud"
)

// fake is a Keystone and a Nova with two flavors, on one address of loopback.
func fake(t *testing.T) string {
	t.Helper()
	var server *httptest.Server
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v3/auth/tokens", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Subject-Token", "token")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"token": {"expires_at": "2099-01-01T00:00:00.000000Z", "catalog": [{"type": "compute", "name": "nova",
			"endpoints": [{"interface": "public", "region": "r", "region_id": "r", "url": "%s/v2.1"}]}]}}`, server.URL)
	})
	reply := func(pattern, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Auth-Token") != "token" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
		})
	}
	reply("GET /v2.1/flavors/detail", `{"flavors": [{"id": "1", "name": "small", "ram": 1, "vcpus": 1, "disk": 1, "swap": ""}, {"id": "2", "name": "gpu", "ram": 1, "vcpus": 1, "disk": 1, "swap": ""}]}`)
	reply("GET /v2.1/flavors/1/os-extra_specs", `{"extra_specs": {}}`)
	reply("GET /v2.1/flavors/2/os-extra_specs", `{"extra_specs": {"pci_passthrough:alias": "K4200:2"}}`)
	server = httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestFlavors(t *testing.T) {
	t.Setenv("OS_CLOUD", "")
	for name, value := range map[string]string{"OS_AUTH_URL": fake(t) + "/v3", "OS_USERNAME": "admin", "OS_PASSWORD": "hunter2", "OS_PROJECT_NAME": "admin", "OS_DOMAIN_NAME": "Default"} {
		t.Setenv(name, value)
	}
	compute, err := cloud.Connect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got, err := compute.Flavors(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []cloud.Flavor{{Name: "small", ExtraSpecs: map[string]string{}}, {Name: "gpu", ExtraSpecs: map[string]string{"pci_passthrough:alias": "K4200:2"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNoCredentials(t *testing.T) {
	t.Setenv("OS_CLOUD", "")
	t.Setenv("OS_AUTH_URL", "")
	if _, err := cloud.Connect(context.Background()); !errors.Is(err, cloud.ErrNoCredentials) {
		t.Errorf("%v", err)
	}
	// Nothing secret is in an error.
	for name, value := range map[string]string{"OS_AUTH_URL": "http://127.0.0.1:1/v3", "OS_USERNAME": "admin", "OS_PASSWORD": "hunter2", "OS_PROJECT_NAME": "admin", "OS_DOMAIN_NAME": "Default"} {
		t.Setenv(name, value)
	}
	if _, err := cloud.Connect(context.Background()); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.HasPrefix(err.Error(), "signing in at http://127.0.0.1:1/v3") {
		t.Errorf("%v", err)
	}
}
