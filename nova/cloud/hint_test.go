package cloud_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
)

// TestConnectionErrorsHaveHints: whatever prevents a connection to the APIs, the hint says what to
// do next. The services are listeners on loopback that answer as OpenStack's and others do.
func TestConnectionErrorsHaveHints(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	serve := func(handler http.Handler) string {
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		return s.URL
	}
	silent := serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not see that the client has gone
		<-r.Context().Done()
	}))
	ends := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	}))
	noName := strings.Repeat("a", 64) + ".invalid" // a label of more than 63 letters (RFC 1035): no server is asked
	expired, expiredCA := overTLS(t, "127.0.0.1", time.Now().Add(-time.Hour))
	other, otherCA := overTLS(t, "keystone.example", time.Now().Add(time.Hour))
	right, _ := overTLS(t, "127.0.0.1", time.Now().Add(time.Hour))
	tests := map[string]struct {
		url, ca    string
		kind       error
		text, hint string
	}{
		"refused":             {url: closed.URL + "/v3", kind: cloud.ErrUnreachable, hint: "check that the service runs and listens on " + strings.TrimPrefix(closed.URL, "http://")},
		"unknown host":        {url: "http://" + noName + "/v3", kind: cloud.ErrUnreachable, hint: "getent hosts " + noName},
		"unknown authority":   {url: right + "/v3", kind: cloud.ErrCertificate, hint: "--os-cacert"},
		"another name":        {url: other + "/v3", ca: otherCA, kind: cloud.ErrCertificate, hint: "use a host name of the certificate"},
		"expired":             {url: expired + "/v3", ca: expiredCA, kind: cloud.ErrCertificate, hint: "renew the certificate of the service"},
		"https without TLS":   {url: strings.Replace(ends, "http:", "https:", 1) + "/v3", kind: cloud.ErrUnreachable, hint: "use http:// in auth_url"},
		"http with TLS":       {url: strings.Replace(right, "https:", "http:", 1) + "/v3", text: "HTTP 400", hint: "is the address of Keystone"},
		"timeout":             {url: silent + "/v3", kind: cloud.ErrTimeout, hint: "--timeout waits longer"},
		"credentials":         {url: serve(answer(401, `{"error": {"message": "The request you have made requires authentication."}}`)) + "/v3", kind: cloud.ErrUnauthorized, hint: "check the name, password and domain"},
		"not permitted":       {url: serve(answer(403, `{}`)) + "/v3", kind: cloud.ErrForbidden, hint: "use an administrator"},
		"no Keystone":         {url: serve(answer(404, "<html>Not Found</html>")) + "/v3", kind: cloud.ErrNotFound, hint: "is the address of Keystone"},
		"a page":              {url: serve(answer(200, "<html>It works</html>")) + "/v3", hint: "is the address of Keystone"},
		"a choice of APIs":    {url: serve(answer(300, `{"versions": {"values": []}}`)), hint: "is the address of Keystone"},
		"a failure":           {url: serve(answer(500, "")) + "/v3", text: "HTTP 500", hint: "see the log of the service"},
		"a proxy":             {url: serve(answer(503, "")) + "/v3", kind: cloud.ErrUnavailable, hint: "see the log of the service"},
		"the connection ends": {url: ends + "/v3", kind: cloud.ErrUnreachable, hint: "see its log"},
		"no scheme":           {url: "keystone.example:5000/v3", hint: "https://HOST:5000/v3"},
	}
	entries := map[string]any{}
	for name, test := range tests {
		entries[name] = map[string]any{"auth": map[string]string{"auth_url": test.url, "username": "admin", "password": "hunter2", "project_name": "admin"}}
	}
	text, err := json.Marshal(map[string]any{"clouds": entries}) // JSON is YAML
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	if err = errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	setenv(t, map[string]string{"OS_CLIENT_CONFIG_FILE": file})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()                                                               // requests are tried again
			o := cloud.Options{Cloud: name, CACert: test.ca, Timeout: 4 * time.Second} // a busy machine may answer late
			if errors.Is(test.kind, cloud.ErrTimeout) {
				o.Timeout = time.Second
			}
			_, err := cloud.Connect(context.Background(), o)
			wantHint(t, err, test.kind, test.text, test.hint)
		})
	}
}

// TestServiceErrorsHaveHints: the same for a catalog without Nova, or with another service in its
// place.
func TestServiceErrorsHaveHints(t *testing.T) {
	t.Run("no endpoint", func(t *testing.T) {
		c := cloudtest.Start(t, 96)
		signedIn, err := connect(t, c.Env(), cloud.Options{Region: "Elsewhere"})
		if err == nil {
			_, err = signedIn.Compute(context.Background())
		}
		wantHint(t, err, cloud.ErrNoEndpoint, "compute service", "'openstack catalog list'")
	})
	for name, handler := range map[string]http.HandlerFunc{"no Nova": answer(404, ""), "a page, no Nova": answer(200, "<html>"), "no microversions": answer(200, `{"version": {}}`)} {
		t.Run(name, func(t *testing.T) {
			c := cloudtest.Start(t, 96)
			signedIn, err := connect(t, c.Env(), cloud.Options{})
			hosttest.NoError(t, err)
			c.Fault = func(w http.ResponseWriter, r *http.Request) bool { handler(w, r); return true }
			_, err = signedIn.Compute(context.Background())
			wantHint(t, err, nil, "compute service", "openstack endpoint list --service compute")
		})
	}
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// wantHint checks the kind, the text and the hint of an error.
func wantHint(t *testing.T, err, kind error, text, hint string) {
	t.Helper()
	var hinted interface{ Hint() string }
	switch {
	case err == nil || kind != nil && !errors.Is(err, kind) || !strings.Contains(err.Error(), text):
		t.Errorf("error %v, want %v with %q", err, kind, text)
	case !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), hint):
		t.Errorf("%v\nhas the hint %v, want %s", err, hinted, hint)
	case strings.Contains(err.Error()+hinted.Hint(), "hunter2"):
		t.Errorf("shows the password: %v; %s", err, hinted.Hint())
	}
}

// overTLS returns the address of a server with a certificate, and the file with its authority.
func overTLS(t *testing.T, name string, until time.Time) (address, ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	hosttest.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-24 * time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true}
	if ip := net.ParseIP(name); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	hosttest.NoError(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(nil) }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that reject the certificate
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	hosttest.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return s.URL, ca
}
