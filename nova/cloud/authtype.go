package cloud

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"gpustack/host"
)

// defaultDomain is where users and projects are whose domain is not given: that of the openstack
// command (openstackclient/shell.py), which Keystone creates at its bootstrap.
const defaultDomain = "default"

// authKeys returns the keys that an auth_type reads (keystoneauth1/loading), nil for one that is
// not supported.
func authKeys(authType string) []string {
	scope := []string{"auth_url", "system_scope", "domain_id", "domain_name", "project_id", "project_name", "project_domain_id", "project_domain_name", "trust_id"}
	user := []string{"user_id", "username", "user_domain_id", "user_domain_name"}
	unversioned := []string{"default_domain_id", "default_domain_name"} // of the types for any version of the API
	switch authType {
	case "password":
		return slices.Concat(scope, unversioned, user, []string{"password"})
	case "v3password":
		return slices.Concat(scope, user, []string{"password"})
	case "token":
		return slices.Concat(scope, unversioned, []string{"token"})
	case "v3token":
		return append(scope, "token")
	case "v3applicationcredential":
		return slices.Concat(scope, user, []string{"application_credential_id", "application_credential_name", "application_credential_secret"})
	}
	return nil
}

// authTypeOf returns the auth_type. Without one, a token or an application credential that is given
// without a password counts.
func authTypeOf(cloud, auth keys) (string, error) {
	authType, err := cloud.text("auth_type")
	if err != nil {
		return "", err
	}
	given := func(key string) bool { return !isEmpty(auth[key]) || !isEmpty(cloud[key]) }
	switch {
	case authType != "":
	case given("password"):
		authType = "password"
	case given("application_credential_id") || given("application_credential_name"):
		authType = "v3applicationcredential"
	case given("token"):
		authType = "token"
	default:
		authType = "password"
	}
	if authKeys(authType) == nil {
		return "", fmt.Errorf("auth_type %s is not supported; use a password, a token or an application credential", authType)
	}
	return authType, nil
}

func isEmpty(value any) bool { return value == nil || value == "" }

// authentication is what an auth_type reads: texts by key, without those that are empty.
type authentication map[string]string

// newAuthentication takes the keys of an auth_type from auth, or else from beside it.
func newAuthentication(authType string, cloud, auth keys) (authentication, error) {
	a := authentication{}
	var errs []error
	known := authKeys(authType)
	for _, key := range known {
		names := []string{key}
		if key == "username" {
			names = append(names, "user_name")
		}
		value, err := givenText(names, auth, cloud)
		errs = append(errs, err)
		if value != "" {
			a[key] = value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(auth)) {
		if value := auth[key]; !isEmpty(value) && !slices.Contains(known, key) && key != "user_name" && key != "default_domain" {
			errs = append(errs, fmt.Errorf("auth: %s is not a key of auth_type %s", key, authType))
		}
	}
	return a, errors.Join(errs...)
}

// givenText returns the text that is not empty of the names in auth or beside it. openstacksdk uses
// the one in auth if both are given, the openstack command the other one.
func givenText(names []string, auth, beside keys) (string, error) {
	in, err := firstText(names, auth)
	if err != nil {
		return "", err
	}
	out, err := firstText(names, beside)
	if err != nil {
		return "", err
	}
	switch {
	case in == "":
		return out, nil
	case out != "" && in != out:
		return "", errTwice(names[0])
	}
	return in, nil
}

// firstText returns the first text that is not empty.
func firstText(names []string, source keys) (string, error) {
	for _, name := range names {
		if text, err := source.text(name); text != "" || err != nil {
			return text, err
		}
	}
	return "", nil
}

// first returns the value of the first key that is given.
func (a authentication) first(names ...string) string {
	return cmp.Or(host.Map(names, func(name string) string { return a[name] })...)
}

// domain returns the id or else the name of a domain: of user_domain or project_domain.
func (a authentication) domain(key, fallback string) (id, name string) {
	if id = a.first(key+"_id", "default_domain_id"); id != "" {
		return id, ""
	}
	if name = a.first(key+"_name", "default_domain_name"); name != "" {
		return "", name
	}
	return fallback, ""
}

// missing returns the keys that an auth_type needs and that are not given.
func (a authentication) missing(authType string) []string {
	var keys []string
	need := func(names ...string) {
		if a.first(names...) == "" {
			keys = append(keys, names[0])
		}
	}
	need("auth_url")
	switch authType {
	case "password", "v3password":
		need("username", "user_id")
		need("password")
	case "token", "v3token":
		need("token")
	case "v3applicationcredential":
		need("application_credential_id", "application_credential_name")
		need("application_credential_secret")
		if a["application_credential_id"] == "" {
			need("username", "user_id")
		}
	}
	return keys
}

// options returns the request for a token as gophercloud makes it. domain is that of a user or
// project whose domain is not given.
func (a authentication) options(authType, domain string) (gophercloud.AuthOptions, error) {
	o := gophercloud.AuthOptions{
		IdentityEndpoint:            a["auth_url"],
		Password:                    a["password"],
		TokenID:                     a["token"],
		ApplicationCredentialID:     a["application_credential_id"],
		ApplicationCredentialName:   a["application_credential_name"],
		ApplicationCredentialSecret: a["application_credential_secret"],
		UserID:                      a["user_id"],
	}
	if o.UserID == "" && a["username"] != "" {
		o.Username = a["username"]
		o.DomainID, o.DomainName = a.domain("user_domain", domain)
	}
	scope, err := a.scope(domain)
	if scope != nil && authType == "v3applicationcredential" {
		err = fmt.Errorf("%s: an application credential has its own project, and Keystone rejects another scope", strings.Join(a.scopes(), ", "))
	}
	o.Scope = scope
	return o, err
}

// scopes returns the keys that name a scope, one of each kind.
func (a authentication) scopes() []string {
	var given []string
	for _, names := range [][]string{{"domain_id", "domain_name"}, {"project_id", "project_name"}, {"trust_id"}, {"system_scope"}} {
		for _, name := range names {
			if a[name] != "" {
				given = append(given, name)
				break
			}
		}
	}
	return given
}

// scope returns what the token is for, nil for nothing. keystoneauth1 5.0.0 ignores system_scope
// beside another scope, 5.10.0 rejects it.
func (a authentication) scope(domain string) (*gophercloud.AuthScope, error) {
	given := a.scopes()
	if len(given) > 1 {
		return nil, fmt.Errorf("%s: a token has one scope only", strings.Join(given, ", "))
	}
	if len(given) == 0 {
		return nil, nil
	}
	s := gophercloud.AuthScope{}
	value := a[given[0]]
	switch given[0] {
	case "domain_id":
		s.DomainID = value
	case "domain_name":
		s.DomainName = value
	case "project_id":
		s.ProjectID = value
	case "project_name":
		s.ProjectName = value
		s.DomainID, s.DomainName = a.domain("project_domain", domain)
	case "trust_id":
		s.TrustID = value
	case "system_scope":
		if value != "all" {
			return nil, errors.New("system_scope: the only system scope is all")
		}
		s.System = true
	}
	return &s, nil
}
