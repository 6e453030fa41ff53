package cloud

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
)

// adviceNetwork returns what to do about a request without an answer, or "" for the hint of its
// kind.
func adviceNetwork(err *url.Error) string {
	address, server, name := redacted(err.URL), "HOST", "HOST"
	if u, parseErr := url.Parse(err.URL); parseErr == nil {
		server, name = u.Host, u.Hostname()
	}
	var noName *net.DNSError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var dial *net.OpError
	switch {
	case errors.As(err, &noName):
		return "check the host name in auth_url (OS_AUTH_URL) or in the catalog, and how this machine resolves it: getent hosts " + noName.Name
	case errors.Is(err, syscall.ECONNREFUSED):
		return "check that the service runs and listens on " + server + "; auth_url (OS_AUTH_URL) or the catalog has the address"
	case errors.Is(err.Err, http.ErrSchemeMismatch), errors.As(err, &record):
		return "the service has no TLS there: use http:// in auth_url (OS_AUTH_URL), or the port that has TLS"
	case errors.As(err, &alert):
		return "the service has ended the TLS connection: see its log; it may require a certificate of the client (cert and key in clouds.yaml)"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "check the network and the firewalls: ip route get " + name
	case strings.Contains(err.Error(), "unsupported protocol scheme"):
		return "auth_url (OS_AUTH_URL) should be like https://HOST:5000/v3"
	}
	return "check that " + address + " is the address of the service, and see its log; -v logs each request"
}

// adviceCertificate returns what to do about a certificate, or "" for the hint of ErrCertificate.
func adviceCertificate(err error) string {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return "use a host name of the certificate in auth_url (OS_AUTH_URL) or in the catalog, not " + name.Host
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate of the service, and check the time of this machine: date"
	}
	return ""
}

// Advice for an address at which another service answers, or none of OpenStack.
const (
	adviceIdentity = "check that auth_url (OS_AUTH_URL) is the address of Keystone, such as https://HOST:5000/v3"
	adviceCompute  = "check the address of Nova in the catalog: openstack endpoint list --service compute"
)

// advise adds advice to an error that has none: the service answered, but not as an API of
// OpenStack does.
func advise(err error, advice string) {
	var e *Error
	if errors.As(err, &e) && e.Hint() == "" {
		e.advice = advice
	}
}
