package cloud

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
)

// Options say which cloud, and how patiently.
type Options struct {
	Cloud    string        // a name in clouds.yaml; "" for OS_CLOUD, or else OS_AUTH_URL and what goes with it
	Region   string        // "" for what the credentials name, or else the catalog's first
	CACert   string        // a file of certificates to trust; "" for what the credentials name, or else the system's
	Insecure bool          // believe any certificate
	Service  *Service      // in place of all that the user has set; nil for none
	Timeout  time.Duration // for an answer, repetitions included; 0 for a minute
	Warn     func(string)  // told what the operator should know
	Trace    func(string)  // told of each request, without anything secret; may be nil
}

// Service is a service's own user, as [placement] of nova.conf names it
// (keystoneauth1/loading, v3password).
type Service struct {
	AuthURL, Username, Password, Project, UserDomain, ProjectDomain, Region, Interface, CACert string
	Insecure                                                                                   bool
}

const defaultTimeout = time.Minute

// Cloud is a cloud that somebody is signed in to.
type Cloud struct {
	provider *gophercloud.ProviderClient
	endpoint gophercloud.EndpointOpts
	timeout  time.Duration
	secrets  []string
}

// Connect signs in. A token that runs out later is replaced, where the credentials
// are not a token themselves.
//
// Errors: ErrNoCredentials, ErrNoCloud, and those of any request (see Error).
func Connect(ctx context.Context, o Options) (*Cloud, error) {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	c, err := findCredentials(o)
	if err != nil {
		return nil, err
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.TLSClientConfig = c.tls
	provider, err := openstack.NewClient(c.auth.IdentityEndpoint)
	if err != nil {
		return nil, doing("auth_url "+redacted(c.auth.IdentityEndpoint), err)
	}
	provider.HTTPClient = http.Client{Transport: transport{base, o.Trace}}
	provider.UserAgent.Prepend("gpustack")
	provider.RetryFunc = retry
	cloud := &Cloud{provider, c.endpoint, o.Timeout, c.secrets()}
	what := "signing in at " + redacted(c.auth.IdentityEndpoint) + c.as()
	err = cloud.ask(ctx, what, func(ctx context.Context) error {
		return openstack.Authenticate(ctx, provider, c.auth)
	})
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound && c.auth.TokenID != "" {
		e.Kind = ErrUnauthorized // a token that was revoked, or has run out
	}
	return cloud, err
}

// ask makes a request, within the time that one may take, and says what it was for
// if it fails.
func (c *Cloud) ask(ctx context.Context, what string, request func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, c.timeout, &timeoutError{c.timeout})
	defer cancel()
	err := request(limited)
	if cause := context.Cause(limited); err != nil && cause != nil {
		err = cause // says more than what it has cut short
	}
	err = doing(what, err)
	var e *Error
	if errors.As(err, &e) {
		for _, secret := range c.secrets { // a service may quote what it was sent
			e.Reason = strings.ReplaceAll(e.Reason, secret, "***")
		}
	}
	return err
}
