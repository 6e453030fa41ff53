package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"gpustack/host"
)

// Options are how to connect to a cloud.
type Options struct {
	Cloud    string        // a name in clouds.yaml; "" for OS_CLOUD, or else OS_AUTH_URL and the other OS_ variables
	Region   string        // "" for the region of the credentials, or else the first one of the catalog
	CACert   string        // a file of trusted certificates; "" for that of the credentials, or else of the system
	Insecure bool          // skip TLS certificate verification
	Service  *Service      // credentials to use instead of those of the user; nil for none
	Timeout  time.Duration // for an answer, including retries; 0 for a minute
	Warn     func(string)  // called with each warning for the operator
	Trace    func(string)  // called with a line for each request, without secrets; may be nil
}

const defaultTimeout = time.Minute

// Cloud is an authenticated connection to a cloud.
type Cloud struct {
	provider  *gophercloud.ProviderClient
	endpoints endpoints
	timeout   time.Duration
	secrets   []string
}

// ConnectCompute authenticates, as [Connect], and finds Nova.
func ConnectCompute(ctx context.Context, o Options) (*Compute, error) {
	c, err := Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return c.Compute(ctx)
}

// Connect authenticates. A token that expires is renewed, unless the credentials are a token.
//
// Errors: errNoCredentials, errNoCloud, and those of any request ([Error]).
func Connect(ctx context.Context, o Options) (*Cloud, error) {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	c, err := findCredentials(o)
	if err != nil {
		return nil, err
	}
	return c.connect(ctx, o)
}

// connect authenticates with the credentials.
func (c credentials) connect(ctx context.Context, o Options) (*Cloud, error) {
	var err error
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = beside // by default two, and the others would connect for each request
	if base.TLSClientConfig, err = c.tls.config(); err != nil {
		return nil, fmt.Errorf("cloud %s: %w", c.name, err)
	}
	provider, err := openstack.NewClient(c.auth.IdentityEndpoint)
	if err != nil {
		err = doing("auth_url "+redacted(c.auth.IdentityEndpoint), err)
		advise(err, adviceIdentity)
		return nil, err
	}
	provider.HTTPClient = http.Client{Transport: transport{base, o.Trace}}
	provider.UserAgent.Prepend("gpustack")
	provider.RetryFunc = retry
	cloud := &Cloud{provider, c.endpoints, o.Timeout, c.secrets()}
	what := "authentication at " + redacted(c.auth.IdentityEndpoint) + c.as()
	err = cloud.ask(ctx, what, func(ctx context.Context) error {
		return openstack.Authenticate(ctx, provider, c.auth)
	})
	if err == nil {
		provider.EndpointLocator = c.endpoints.over(provider.EndpointLocator)
	}
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound && c.auth.TokenID != "" {
		e.Kind = ErrUnauthorized // the token was revoked or has expired
	}
	advise(err, adviceIdentity)
	return cloud, err
}

// Scope is the part of a cloud in which requests are made.
type Scope struct {
	Cloud  string `json:"cloud"`  // the address of Nova's API
	Region string `json:"region"` // "" for the only or the first region
	// the project of the credentials; "" for credentials without one, and for a compute service
	Project string `json:"project_id"`
}

// Is reports whether two scopes are the same. A region that only one of them names does not count:
// the address of the API is that of a region.
func (s Scope) Is(other Scope) bool {
	if s.Region == "" || other.Region == "" {
		s.Region, other.Region = "", ""
	}
	return s == other
}

// ErrOtherCloud says that a change was made in another cloud, region or project than that of the
// credentials.
var ErrOtherCloud = host.WithHint(errors.New("the change was made in another cloud, region or project"),
	"select the cloud with --os-cloud and --os-region-name, or with the OS_ variables")

// Expect returns ErrOtherCloud unless a recorded scope is that in which requests are made now.
func (s Scope) Expect(now Scope) error {
	if now.Is(s) {
		return nil
	}
	return fmt.Errorf("%w: %s, not %s", ErrOtherCloud, s, now)
}

// String returns the scope for messages.
func (s Scope) String() string {
	text := s.Cloud
	if s.Region != "" {
		text += ", region " + s.Region
	}
	if s.Project != "" {
		text += ", project " + s.Project
	}
	return text
}

// project returns the id of the project of the credentials, or "".
func (c *Cloud) project() string {
	token, ok := c.provider.GetAuthResult().(interface {
		ExtractProject() (*tokens.Project, error)
	})
	if !ok {
		return ""
	}
	p, err := token.ExtractProject()
	if err != nil || p == nil {
		return ""
	}
	return p.ID
}

// ask makes a request within the timeout. what is the beginning of its error.
func (c *Cloud) ask(ctx context.Context, what string, request func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, c.timeout, &timeoutError{c.timeout})
	defer cancel()
	err := request(limited)
	if cause := context.Cause(limited); err != nil && cause != nil {
		err = cause // it is the reason for err
	}
	err = doing(what, err)
	var e *Error
	if errors.As(err, &e) {
		for _, secret := range c.secrets { // a service may quote the request
			e.Reason = strings.ReplaceAll(e.Reason, secret, "***")
		}
	}
	return err
}
