package cloud

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"gpustack/host"
)

// Errors of credentials.
var (
	// errNoCredentials says that neither a cloud nor credentials are given.
	errNoCredentials = host.WithHint(errors.New("no cloud credentials"), "set OS_CLOUD to a cloud of clouds.yaml, or source an openrc file")
	// errNoCloud says that clouds.yaml does not have the cloud.
	errNoCloud = host.WithHint(errors.New("no such cloud"), "--os-cloud or OS_CLOUD names a cloud of clouds.yaml; OS_CLIENT_CONFIG_FILE names the file")
)

// HasCredentials reports whether the options or the environment name a cloud or the address of one.
// Whether its credentials are complete is known when they are used.
func (o Options) HasCredentials() bool {
	return o.Cloud != "" || os.Getenv("OS_CLOUD") != "" || os.Getenv("OS_AUTH_URL") != ""
}

// credentials are what is needed to authenticate, and to find services.
type credentials struct {
	name      string // of the cloud, for errors
	auth      gophercloud.AuthOptions
	endpoints endpoints
	tls       tlsFiles
}

// as returns the user, for an error.
func (c credentials) as() string {
	switch {
	case c.auth.Username != "":
		return " as " + c.auth.Username
	case c.auth.ApplicationCredentialID+c.auth.ApplicationCredentialName != "":
		return " with an application credential"
	}
	return ""
}

// secrets returns the values that must not be printed.
func (c credentials) secrets() []string {
	return slices.DeleteFunc([]string{c.auth.Password, c.auth.TokenID, c.auth.ApplicationCredentialSecret}, func(s string) bool { return s == "" })
}

// source is a cloud of clouds.yaml, of the environment or of a service.
type source struct {
	name  string
	keys  keys
	known []region            // the regions that it names; the first one is the default
	key   func(string) string // the name of a key there, for errors
}

// fault returns an error of a source.
func (s source) fault(err error) error {
	return fmt.Errorf("cloud %s: %w", s.name, err)
}

// findCredentials finds credentials where openstacksdk does, and reads them with its rules.
func findCredentials(o Options) (credentials, error) {
	s, err := findSource(o)
	if err != nil {
		return credentials{}, err
	}
	chosen, err := choose(s.known, s.region(o))
	if err != nil {
		return credentials{}, s.fault(err)
	}
	cloud, err := s.with(chosen, o)
	if err != nil {
		return credentials{}, s.fault(err)
	}
	c, err := s.credentials(cloud)
	if err != nil {
		return credentials{}, err
	}
	if c.tls.insecure && strings.HasPrefix(c.auth.IdentityEndpoint, "https:") && o.Warn != nil {
		o.Warn("cloud " + s.name + ": TLS certificates are not verified: the password can be intercepted")
	}
	return c, nil
}

func findSource(o Options) (source, error) {
	name := cmp.Or(o.Cloud, os.Getenv("OS_CLOUD"))
	same := func(key string) string { return key }
	switch {
	case o.Service != nil:
		return source{name: "nova.conf", keys: o.Service.keys(), key: same}, nil
	case name != "":
		cloud, known, err := readCloud(name)
		if err != nil {
			return source{}, err
		}
		// What the openstack command lets variables choose (osc_lib/shell.py).
		for key, variable := range map[string]string{"interface": "OS_INTERFACE", "cacert": "OS_CACERT", "cert": "OS_CERT", "key": "OS_KEY"} {
			if value := os.Getenv(variable); value != "" {
				for _, r := range known {
					delete(r.values, key)
				}
				delete(cloud, "endpoint_type")
				cloud[key] = value
			}
		}
		return source{name, cloud, known, same}, nil
	case os.Getenv("OS_AUTH_URL") != "":
		return source{name: "environment", keys: environment(), key: func(key string) string { return "OS_" + strings.ToUpper(key) }}, nil
	}
	return source{}, errNoCredentials
}

// region returns the region that is asked for, "" for none.
func (s source) region(o Options) string {
	if o.Service != nil {
		return "" // the region of the user does not apply to the service
	}
	return cmp.Or(o.Region, os.Getenv("OS_REGION_NAME"))
}

// with returns the keys with those of a region and with the options.
func (s source) with(r region, o Options) (keys, error) {
	cloud := maps.Clone(s.keys)
	values := maps.Clone(r.values)
	maps.DeleteFunc(values, func(_ string, value any) bool { return value == nil })
	if err := cloud.overlay(values); err != nil {
		return nil, err
	}
	delete(cloud, "region-name")
	if r.name != "" || s.known != nil {
		cloud["region_name"] = r.name
	}
	if o.CACert != "" {
		cloud["cacert"] = o.CACert
	}
	if o.Insecure {
		cloud["insecure"] = true
	}
	return fixed(cloud)
}

// credentials reads the keys of a cloud.
func (s source) credentials(cloud keys) (credentials, error) {
	auth, err := mapping(cloud["auth"], "auth")
	if err != nil {
		return credentials{}, s.fault(err)
	}
	authType, err := authTypeOf(cloud, auth)
	if err != nil {
		return credentials{}, s.fault(err)
	}
	given, err := newAuthentication(authType, cloud, auth)
	if err != nil {
		return credentials{}, s.fault(err)
	}
	var errs []error
	for _, key := range given.missing(authType) {
		errs = append(errs, s.fault(host.WithHint(errors.New(s.key(key)+" is missing"), "source the openrc file again, or complete the cloud in clouds.yaml")))
	}
	if err := errors.Join(errs...); err != nil {
		return credentials{}, err
	}
	c, err := newCredentials(given, authType, cloud, auth)
	if err != nil {
		return credentials{}, s.fault(err)
	}
	c.name = s.name
	return c, nil
}

func newCredentials(given authentication, authType string, cloud, auth keys) (c credentials, err error) {
	domain, err := givenText([]string{"default_domain"}, auth, cloud)
	if err != nil {
		return c, err
	}
	if c.auth, err = given.options(authType, cmp.Or(domain, defaultDomain)); err != nil {
		return c, err
	}
	if c.auth.IdentityEndpoint, err = expanded(c.auth.IdentityEndpoint, cloud); err != nil {
		return c, err
	}
	if strings.HasSuffix(strings.TrimSuffix(c.auth.IdentityEndpoint, "/"), "/v2.0") {
		return c, errors.New("auth_url: version 2.0 of the Identity API is not supported; end it with /v3")
	}
	if c.endpoints, err = newEndpoints(cloud); err != nil {
		return c, err
	}
	if c.tls, err = newTLSFiles(cloud); err != nil {
		return c, err
	}
	// A token cannot renew itself.
	c.auth.AllowReauth = c.auth.TokenID == ""
	return c, nil
}

// environment returns the keys of an openrc file: all OS_ variables, as openstacksdk reads them.
func environment() keys {
	cloud := keys{}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if key, ok := strings.CutPrefix(name, "OS_"); ok && value != "" {
			cloud[strings.ToLower(key)] = value
		}
	}
	delete(cloud, "auth") // a text there is not the keys below auth
	if cloud["user_id"] == nil && cloud["userid"] != nil {
		cloud["user_id"] = cloud["userid"]
	}
	return cloud
}

// Service is the user of a service, as the options of [placement] in nova.conf describe it
// (keystoneauth1/loading: conf.py, session.py, adapter.py).
type Service struct {
	options map[string]string
}

// NewService returns the user that the options of a section of nova.conf name, such as [placement],
// or nil if the section has no auth_url.
func NewService(section map[string]string) *Service {
	if section["auth_url"] == "" {
		return nil
	}
	return &Service{section}
}

// keys returns the options with their names in clouds.yaml.
func (s Service) keys() keys {
	cloud := keys{}
	for name, value := range s.options {
		if value != "" {
			cloud[name] = value
		}
	}
	for there, here := range map[string]string{"cafile": "cacert", "certfile": "cert", "keyfile": "key"} {
		if s.options[there] != "" {
			cloud[here] = s.options[there]
		}
	}
	if first := strings.TrimSpace(strings.SplitN(s.options["valid_interfaces"], ",", 2)[0]); first != "" {
		cloud["interface"] = first
	}
	delete(cloud, "endpoint_override") // of Placement alone, while the catalog is the cloud's
	return cloud
}

// endpoints are how services are found in the catalog.
type endpoints map[string]endpoint // by type of service; "" for all

type endpoint struct {
	region, override string
	availability     gophercloud.Availability
}

// serviceTypes are the types of the services that are asked, by their name in keys.
func serviceTypes() []string { return []string{"compute", "placement", "identity", "image", "network"} }

// newEndpoints reads region_name and interface, and those of single services such as
// compute_interface.
func newEndpoints(cloud keys) (endpoints, error) {
	var errs []error
	text := func(key string) string {
		value, err := cloud.text(key)
		errs = append(errs, err)
		return value
	}
	found := endpoints{}
	for _, service := range append([]string{""}, serviceTypes()...) {
		e, prefix := found[""], ""
		if service != "" {
			prefix = service + "_"
			e.override = text(prefix + "endpoint_override")
		}
		e.region = cmp.Or(text(prefix+"region_name"), e.region)
		name := text(prefix + "interface")
		if name == "" && service == "" {
			name = "public"
		}
		if name != "" {
			var err error
			e.availability, err = availability(prefix+"interface", name)
			errs = append(errs, err)
		}
		found[service] = e
	}
	return found, errors.Join(errs...)
}

func availability(key, name string) (gophercloud.Availability, error) {
	switch a := gophercloud.Availability(strings.TrimSuffix(name, "URL")); a {
	case gophercloud.AvailabilityPublic, gophercloud.AvailabilityInternal, gophercloud.AvailabilityAdmin:
		return a, nil
	}
	return "", fmt.Errorf("%s: %s is none of public, internal and admin", key, name)
}

// options returns how a service is found.
func (e endpoints) options(service string) gophercloud.EndpointOpts {
	found := e.of(service)
	return gophercloud.EndpointOpts{Region: found.region, Availability: found.availability}
}

func (e endpoints) of(service string) endpoint {
	if found, ok := e[service]; ok {
		return found
	}
	return e[""]
}

// over returns a locator of services that finds those whose address the credentials name without
// the catalog.
func (e endpoints) over(catalog gophercloud.EndpointLocator) gophercloud.EndpointLocator {
	return func(o gophercloud.EndpointOpts) (string, error) {
		if override := e.of(o.Type).override; override != "" {
			return gophercloud.NormalizeURL(override), nil
		}
		return catalog(o)
	}
}

// tlsFiles are the settings of TLS.
type tlsFiles struct {
	insecure          bool // certificates are not verified
	cacert, cert, key string
}

func newTLSFiles(cloud keys) (t tlsFiles, err error) {
	var errs []error
	path := func(key string) string {
		value, err := cloud.text(key)
		errs = append(errs, err)
		if rest, ok := strings.CutPrefix(value, "~/"); ok {
			value = filepath.Join(os.Getenv("HOME"), rest)
		}
		return value
	}
	t.cacert, t.cert, t.key = path("cacert"), path("cert"), path("key")
	t.insecure, err = cloud.flag("insecure")
	switch verify := cloud["verify"].(type) {
	case nil:
	case bool:
		t.insecure = t.insecure || !verify
	default:
		// openstacksdk reads a text as the name of a file.
		errs = append(errs, errors.New("verify is neither true nor false; cacert names a file of certificates"))
	}
	return t, errors.Join(append(errs, err)...)
}

// config reads the files.
func (t tlsFiles) config() (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: t.insecure} //nolint:gosec // the user asks for it, and is warned
	if t.cacert != "" && !t.insecure {
		text, err := os.ReadFile(t.cacert)
		if err != nil {
			return nil, fmt.Errorf("cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("cacert: %s contains no certificate", t.cacert)
		}
	}
	if t.cert == "" {
		return config, nil // openstacksdk ignores a key without a certificate
	}
	pair, err := tls.LoadX509KeyPair(t.cert, cmp.Or(t.key, t.cert)) // one file may contain both
	if err != nil {
		return nil, fmt.Errorf("cert: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
