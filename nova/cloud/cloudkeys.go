package cloud

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The functions of this file bring the keys of a cloud into one form, in the order and with the
// rules of openstacksdk (openstack/config/loader.py, magic_fixes). Where its releases differ, or
// where it reads something else than what was written, they return an error.

// otherNames are the keys of auth that have further names. The last name counts.
func otherNames() map[string][]string {
	names := map[string][]string{
		"project_id":   {"tenant_id", "tenant-id", "project_id", "project-id"},
		"project_name": {"tenant_name", "tenant-name", "project_name", "project-name"},
		"token":        {"auth-token", "auth_token", "token"},
	}
	for _, key := range []string{"domain_id", "domain_name", "user_domain_id", "user_domain_name", "project_domain_id", "project_domain_name"} {
		names[key] = []string{key, strings.ReplaceAll(key, "_", "-")}
	}
	return names
}

// fixed returns the keys of a cloud, with one name for each, and those of auth in auth.
func fixed(cloud keys) (keys, error) {
	cloud = maps.Clone(cloud)
	auth, err := mapping(cloud["auth"], "auth")
	if err != nil {
		return nil, err
	}
	auth = maps.Clone(auth)
	cloud["auth"] = auth
	for _, key := range slices.Sorted(maps.Keys(cloud)) {
		if service, ok := strings.CutSuffix(key, "endpoint_type"); ok {
			cloud[service+"interface"] = cloud[key]
			delete(cloud, key)
		}
	}
	var errs []error
	for name, others := range otherNames() {
		errs = append(errs, moveInto(auth, cloud, name, others))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	shareDomain(auth)
	return normalized(cloud)
}

// moveInto sets a key of auth to the value of the last of its names that is given, in auth or
// beside it. openstacksdk 0.101.0 uses the value in auth if both are given, 4.4.0 the other one.
func moveInto(auth, beside keys, name string, names []string) error {
	var value any
	given := false
	for _, n := range names {
		out, isOut := beside[n]
		in, isIn := auth[n]
		if isOut && isIn && in != out {
			return errTwice(n)
		}
		if isOut {
			value, given = out, true
		}
		if isIn {
			value, given = in, true
		}
		delete(beside, n)
		delete(auth, n)
	}
	switch {
	case given && value == nil:
		return errors.New(name + " has no value") // openstacksdk uses the text None
	case given && value != "":
		auth[name] = value
	}
	return nil
}

// errTwice says that a key is given in auth and beside it, with different values.
func errTwice(key string) error {
	return errors.New(key + " is given twice, in auth and beside it, with different values")
}

// shareDomain lets domain_id and domain_name stand for the domains of the user and of the project
// if there is a project. Otherwise they are the scope.
func shareDomain(auth keys) {
	if auth["project_id"] == nil && auth["project_name"] == nil {
		return
	}
	for _, kind := range []string{"id", "name"} {
		domain := auth["domain_"+kind]
		delete(auth, "domain_"+kind)
		for _, key := range []string{"user_domain_" + kind, "project_domain_" + kind} {
			if domain != nil && auth[key] == nil {
				auth[key] = domain
			}
		}
	}
}

// normalized replaces hyphens in keys by underscores.
func normalized(k keys) (keys, error) {
	all := keys{}
	for _, key := range slices.Sorted(maps.Keys(k)) {
		value, name := k[key], strings.ReplaceAll(key, "-", "_")
		if below, ok := value.(keys); ok {
			var err error
			if value, err = normalized(below); err != nil {
				return nil, err
			}
		}
		if old, twice := all[name]; twice && isSingle(old) && isSingle(value) && old != value {
			return nil, fmt.Errorf("%s and %s are both given, with different values", name, strings.ReplaceAll(name, "_", "-"))
		}
		all[name] = value
	}
	return all, nil
}

// isSingle reports whether a value is neither a list nor a mapping.
func isSingle(value any) bool {
	switch value.(type) {
	case []any, keys:
		return false
	}
	return true
}

// text returns the value of a key, "" if it is not given.
func (k keys) text(key string) (string, error) {
	switch value := k[key].(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	case misread:
		return "", errors.New(key + ": YAML reads this number differently; quote the value")
	}
	return "", errors.New(key + " is not a text; quote the value")
}

// flag returns the value of a key that is true or false, which openstacksdk reads as texts in any
// case too; it reads all other texts as false.
func (k keys) flag(key string) (bool, error) {
	switch value := k[key].(type) {
	case nil:
		return false, nil
	case bool:
		return value, nil
	case string:
		if strings.EqualFold(value, "true") {
			return true, nil
		}
		if value == "" || strings.EqualFold(value, "false") {
			return false, nil
		}
	}
	return false, errors.New(key + " is neither true nor false")
}

// expanded replaces {key} in an address by the value of that key.
func expanded(address string, cloud keys) (string, error) {
	var text strings.Builder
	for {
		before, after, ok := strings.Cut(address, "{")
		text.WriteString(before)
		if !ok {
			return text.String(), nil
		}
		key, rest, ok := strings.Cut(after, "}")
		value, err := cloud.text(key)
		if !ok || err != nil || value == "" {
			return "", errors.New("auth_url contains { without a key of the cloud and }")
		}
		text.WriteString(value)
		address = rest
	}
}
