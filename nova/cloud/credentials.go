package cloud

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"gpustack/host"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"gopkg.in/yaml.v3"
)

// Errors of credentials.
var (
	// ErrNoCredentials says that neither a cloud nor credentials are given.
	ErrNoCredentials = host.WithHint(errors.New("no cloud credentials"), "set OS_CLOUD to a cloud of clouds.yaml, or source an openrc file")
	// ErrNoCloud says that clouds.yaml does not have the cloud.
	ErrNoCloud = host.WithHint(errors.New("no such cloud"), "--os-cloud or OS_CLOUD names a cloud of clouds.yaml; OS_CLIENT_CONFIG_FILE names the file")
)

// HasCredentials reports whether the options or the environment name a cloud or the address of one.
// Whether its credentials are complete is known when they are used.
func (o Options) HasCredentials() bool {
	return o.Cloud != "" || os.Getenv("OS_CLOUD") != "" || os.Getenv("OS_AUTH_URL") != ""
}

// credentials are what is needed to authenticate.
type credentials struct {
	auth     gophercloud.AuthOptions
	endpoint gophercloud.EndpointOpts
	tls      *tls.Config
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

// findCredentials finds credentials where openstacksdk does, and lets gophercloud read them. OS_
// variables become a cloud of clouds.yaml, so that the same rules apply to both.
func findCredentials(o Options) (credentials, error) {
	name := o.Cloud
	if name == "" {
		name = os.Getenv("OS_CLOUD")
	}
	var found, secure cloudsFile
	var err error
	switch {
	case o.Service != nil:
		name = "nova.conf"
		found = cloudsFile{name: name, Clouds: clouds.Clouds{Clouds: map[string]clouds.Cloud{name: o.Service.cloud()}}}
		if found.text, err = yaml.Marshal(found.Clouds); err != nil {
			return credentials{}, fmt.Errorf("%s: %w", name, err)
		}
		// The region of the user does not apply to the service.
		o.Region = o.Service.Region
	case name != "":
		if found, secure, err = readClouds(name); err != nil {
			return credentials{}, err
		}
	case os.Getenv("OS_AUTH_URL") != "":
		name = "environment"
		found = cloudsFile{name: name, Clouds: clouds.Clouds{Clouds: map[string]clouds.Cloud{name: environment()}}}
		if found.text, err = yaml.Marshal(found.Clouds); err != nil {
			return credentials{}, fmt.Errorf("%s: %w", name, err)
		}
	default:
		return credentials{}, ErrNoCredentials
	}
	entry := found.Clouds.Clouds[name]
	if err := supported(entry.AuthType); err != nil {
		return credentials{}, fmt.Errorf("cloud %s: %w", name, err)
	}
	options := []clouds.ParseOption{clouds.WithCloudName(name), clouds.WithCloudsYAML(bytes.NewReader(found.text))}
	if secure.text != nil {
		options = append(options, clouds.WithSecureYAML(bytes.NewReader(secure.text)))
	}
	if o.Region != "" {
		options = append(options, clouds.WithRegion(o.Region))
	}
	if o.CACert != "" {
		options = append(options, clouds.WithCACertPath(o.CACert))
	}
	if o.Insecure {
		options = append(options, clouds.WithInsecure(true))
	}
	auth, endpoint, tlsConfig, err := clouds.Parse(options...)
	if err != nil {
		return credentials{}, fmt.Errorf("cloud %s: %w", name, err)
	}
	if err := complete(name, &auth, entry); err != nil {
		return credentials{}, err
	}
	if endpoint.Region == "" && len(entry.Regions) > 0 {
		endpoint.Region = entry.Regions[0].Name // as openstacksdk chooses
	}
	if tlsConfig.InsecureSkipVerify && strings.HasPrefix(auth.IdentityEndpoint, "https:") && o.Warn != nil {
		o.Warn("cloud " + name + ": TLS certificates are not verified: the password can be intercepted")
	}
	// clouds.Parse does not set it. A token cannot renew itself.
	auth.AllowReauth = auth.TokenID == ""
	return credentials{auth, endpoint, tlsConfig}, nil
}

// supported returns an error if an auth_type (keystoneauth's names) is not supported.
func supported(authType clouds.AuthType) error {
	switch authType {
	case "", "password", "v3password", "token", "v3token", "v3applicationcredential":
		return nil
	}
	return fmt.Errorf("auth_type %s is not supported; use a password, a token or an application credential", authType)
}

// complete fills in the default domain. The error names everything that is missing.
func complete(name string, auth *gophercloud.AuthOptions, entry clouds.Cloud) error {
	var errs []error
	missing := func(key string) {
		if name == "environment" {
			key = "OS_" + strings.ToUpper(key)
		}
		errs = append(errs, fmt.Errorf("cloud %s: %s is missing", name, key))
	}
	if auth.IdentityEndpoint == "" {
		missing("auth_url")
	}
	switch {
	case auth.TokenID != "":
	case auth.ApplicationCredentialID+auth.ApplicationCredentialName != "":
		if auth.ApplicationCredentialSecret == "" {
			missing("application_credential_secret")
		}
	default:
		if auth.Username+auth.UserID == "" {
			missing("username")
		}
		if auth.Password == "" {
			missing("password")
		}
	}
	// openstacksdk's default_domain is "default" (openstack/config/defaults.json),
	// which Keystone creates at its bootstrap.
	domain := "default"
	if entry.AuthInfo != nil && entry.AuthInfo.DefaultDomain != "" {
		domain = entry.AuthInfo.DefaultDomain
	}
	if auth.Username != "" && auth.DomainID+auth.DomainName == "" {
		auth.DomainID = domain
	}
	if s := auth.Scope; s != nil && s.ProjectName != "" && s.DomainID+s.DomainName == "" {
		s.DomainID = domain
	}
	return errors.Join(errs...)
}

// environment returns the cloud that the variables of an openrc file define.
func environment() clouds.Cloud {
	get := func(names ...string) string {
		for _, name := range names {
			if value := os.Getenv(name); value != "" {
				return value
			}
		}
		return ""
	}
	cloud := clouds.Cloud{
		AuthType: clouds.AuthType(get("OS_AUTH_TYPE")),
		AuthInfo: &clouds.AuthInfo{
			AuthURL:                     get("OS_AUTH_URL"),
			Token:                       get("OS_TOKEN", "OS_AUTH_TOKEN"),
			Username:                    get("OS_USERNAME"),
			UserID:                      get("OS_USER_ID", "OS_USERID"),
			Password:                    get("OS_PASSWORD"),
			ApplicationCredentialID:     get("OS_APPLICATION_CREDENTIAL_ID"),
			ApplicationCredentialName:   get("OS_APPLICATION_CREDENTIAL_NAME"),
			ApplicationCredentialSecret: get("OS_APPLICATION_CREDENTIAL_SECRET"),
			SystemScope:                 get("OS_SYSTEM_SCOPE"),
			ProjectName:                 get("OS_PROJECT_NAME", "OS_TENANT_NAME"),
			ProjectID:                   get("OS_PROJECT_ID", "OS_TENANT_ID"),
			UserDomainName:              get("OS_USER_DOMAIN_NAME"),
			UserDomainID:                get("OS_USER_DOMAIN_ID"),
			ProjectDomainName:           get("OS_PROJECT_DOMAIN_NAME"),
			ProjectDomainID:             get("OS_PROJECT_DOMAIN_ID"),
			DomainName:                  get("OS_DOMAIN_NAME"),
			DomainID:                    get("OS_DOMAIN_ID"),
			DefaultDomain:               get("OS_DEFAULT_DOMAIN"),
			TrustID:                     get("OS_TRUST_ID"),
		},
		EndpointType: get("OS_ENDPOINT_TYPE"),
	}
	if insecure, err := strconv.ParseBool(get("OS_INSECURE")); err == nil {
		verify := !insecure
		cloud.Verify = &verify
	}
	return cloud
}

// NewService returns the user that the options of a section of nova.conf name, such as [placement],
// or nil if the section has no auth_url.
func NewService(section map[string]string) *Service {
	if section["auth_url"] == "" {
		return nil
	}
	return &Service{
		AuthURL: section["auth_url"], Username: section["username"], Password: section["password"], Project: section["project_name"],
		UserDomain: section["user_domain_name"], ProjectDomain: section["project_domain_name"], Region: section["region_name"],
		Interface: strings.SplitN(section["valid_interfaces"], ",", 2)[0], CACert: section["cafile"], Insecure: strings.EqualFold(section["insecure"], "true"),
	}
}

func (s Service) cloud() clouds.Cloud {
	verify := !s.Insecure
	return clouds.Cloud{
		AuthInfo: &clouds.AuthInfo{
			AuthURL: s.AuthURL, Username: s.Username, Password: s.Password, ProjectName: s.Project,
			UserDomainName: s.UserDomain, ProjectDomainName: s.ProjectDomain,
		},
		EndpointType: s.Interface, CACertFile: s.CACert, Verify: &verify,
	}
}

// cloudsFile is a clouds.yaml or secure.yaml.
type cloudsFile struct {
	name   string
	text   []byte // nil: there is none
	Clouds clouds.Clouds
}

// readClouds reads clouds.yaml, which must contain the cloud, and secure.yaml, which may be absent.
// Each is the first of its name in the folders of openstacksdk (openstack/config/loader.py).
func readClouds(cloud string) (found, secure cloudsFile, err error) {
	found, err = readCloudsFile("clouds", os.Getenv("OS_CLIENT_CONFIG_FILE"))
	if err != nil {
		return found, secure, err
	}
	if found.text == nil {
		return found, secure, fmt.Errorf("cloud %s: %w: no clouds.yaml in %s", cloud, ErrNoCloud, strings.Join(folders(), ", "))
	}
	if _, there := found.Clouds.Clouds[cloud]; !there {
		names := slices.Sorted(maps.Keys(found.Clouds.Clouds))
		return found, secure, fmt.Errorf("cloud %s: %w: %s contains %s", cloud, ErrNoCloud, found.name, strings.Join(names, ", "))
	}
	beside := os.Getenv("OS_CLIENT_SECURE_FILE")
	if candidate := filepath.Join(filepath.Dir(found.name), "secure.yaml"); beside == "" && os.Getenv("OS_CLIENT_CONFIG_FILE") != "" {
		if _, err := os.Stat(candidate); err == nil {
			beside = candidate
		}
	}
	secure, err = readCloudsFile("secure", beside)
	return found, secure, err
}

// folders are where clouds.yaml may be.
func folders() []string {
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		config = filepath.Join(os.Getenv("HOME"), ".config")
	}
	return []string{".", filepath.Join(config, "openstack"), "/etc/openstack"}
}

// readCloudsFile reads the named file, or without a name the first one in the folders.
func readCloudsFile(stem, named string) (cloudsFile, error) {
	files := []string{named}
	if named == "" {
		files = nil
		for _, folder := range folders() {
			for _, extension := range []string{".yaml", ".yml", ".json"} {
				files = append(files, filepath.Join(folder, stem+extension))
			}
		}
	}
	for _, name := range files {
		text, err := os.ReadFile(name) //nolint:gosec // the user names it
		if errors.Is(err, fs.ErrNotExist) && named == "" {
			continue
		}
		if err != nil {
			return cloudsFile{}, err
		}
		file := cloudsFile{name: name, text: text}
		if err := yaml.Unmarshal(text, &file.Clouds); err != nil {
			// The message of the parser may contain a secret.
			return cloudsFile{}, fmt.Errorf("%s: %s", name, where(err))
		}
		return file, nil
	}
	return cloudsFile{}, nil
}

// where returns the line of a YAML error.
func where(err error) string {
	var wrong *yaml.TypeError
	text := err.Error()
	if errors.As(err, &wrong) && len(wrong.Errors) > 0 {
		text = wrong.Errors[0]
	}
	if _, after, ok := strings.Cut(text, "line "); ok {
		if line, _, ok := strings.Cut(after, ":"); ok {
			return "line " + line + " is not valid in clouds.yaml"
		}
	}
	return "not valid YAML"
}
