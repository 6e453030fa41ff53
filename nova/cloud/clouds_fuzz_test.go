package cloud

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"gopkg.in/yaml.v3"
)

// FuzzClouds: no clouds.yaml makes findCredentials panic, run without an end or tell a secret.
func FuzzClouds(f *testing.F) {
	for _, c := range readSDKCases(f) {
		var text string
		if json.Unmarshal(c.Files["cwd/clouds.yaml"], &text) == nil {
			f.Add(text, "")
		}
	}
	const secret = "hunter2-not-to-be-seen"
	for _, text := range []string{
		"clouds: {lab: {auth: {auth_url: 'http://k/v3', username: me, password: " + secret + ", colour: red}}}",
		"clouds:\n  lab:\n    auth:\n      password: " + secret + "\n     x", "clouds: {lab: {auth: {password: [" + secret + "]}}}", "clouds: {lab: " + secret + "}",
		"clouds: {lab: {auth: {" + secret + "}}}", "clouds: {lab: {auth: " + secret + "}}", "a: &a [*a]", "a: &a {<<: *a}", "clouds: {lab: &a {auth: *a}}",
		"clouds: {lab: {regions: [{name: x, values: {auth: " + secret + "}}]}}", "clouds: {lab: {profile: {a: b}}}", "? [a]\n: b", "<<: [1]", "clouds: {lab: {auth: {auth_url: '{'}}}",
		"clouds: {lab: {<<: {a: b}, auth: {auth_url: '{password}{'}, password: " + secret + "}}", "clouds: {" + secret + "}",
	} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, clouds, others string) {
		folder := t.TempDir()
		t.Chdir(folder)
		t.Setenv("HOME", folder)
		for name, text := range map[string]string{"clouds.yaml": clouds, "secure.yaml": others, "clouds-public.yaml": others} {
			hosttest.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
		}
		found, err := findCredentials(Options{Cloud: "lab"})
		listed := errors.Is(err, errNoCloud) && (namesCloud(clouds, secret) || namesCloud(others, secret))
		if err != nil && strings.Contains(err.Error(), secret) && !listed {
			t.Errorf("tells a secret: %v", err)
		}
		if err == nil && found.auth.IdentityEndpoint == "" {
			t.Error("credentials without an address")
		}
	})
}

// namesCloud reports whether the name of a cloud has a word in it: an error that
// there is no such cloud lists the names.
func namesCloud(text, word string) bool {
	var file struct{ Clouds map[string]any }
	if yaml.Unmarshal([]byte(text), &file) != nil {
		return false
	}
	return slices.ContainsFunc(slices.Collect(maps.Keys(file.Clouds)), func(name string) bool { return strings.Contains(name, word) })
}
