package rows

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"gpustack/nova/cloud"
)

// TestSignInOnce: a run that needs Placement several times asks Keystone once, also if Keystone has
// not answered.
func TestSignInOnce(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	for name, value := range map[string]string{"OS_AUTH_URL": server.URL + "/v3", "OS_USERNAME": "u", "OS_PASSWORD": "p", "OS_PROJECT_NAME": "p",
		"OS_USER_DOMAIN_NAME": "d", "OS_PROJECT_DOMAIN_NAME": "d", "OS_CLOUD": ""} {
		t.Setenv(name, value)
	}
	c := connections{cloud: cloud.Options{}}
	_, first := c.signIn(t.Context())
	n := asked.Load()
	_, second := c.signIn(t.Context())
	if first == nil || !errors.Is(second, first) || asked.Load() != n {
		t.Errorf("%v, then %v, %d requests", first, second, asked.Load())
	}
}
