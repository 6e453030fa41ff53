package cloud

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// sdkCase is a line of testdata/openstacksdk.jsonl, which integration/nova/python/credentials.py
// records from openstacksdk; its releases are in the first line. TestOpenstacksdk in
// integration/nova compares the lines with openstacksdk.
type sdkCase struct {
	Releases map[string]string
	Name     string
	Files    map[string]json.RawMessage
	Env      map[string]string
	Options  struct {
		Cloud    string
		Region   string `json:"region_name"`
		CACert   string
		Insecure bool
	}
	Answer sdkAnswer
}

// sdkAnswer is the request for a token and the settings after it, or an error.
type sdkAnswer struct {
	Body      any
	URL       string
	Region    string
	Interface string
	Verify    any // false, or the file of trusted certificates
	Cert      any // a file, or two
	By, Error string
}

func readSDKCases(t testing.TB) []sdkCase {
	t.Helper()
	text := hosttest.Read(t, "testdata/openstacksdk.jsonl")
	var cases []sdkCase
	lines := bufio.NewScanner(bytes.NewReader([]byte(text)))
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		c := sdkCase{Answer: sdkAnswer{URL: sdkBase + "/v3/auth/tokens", Interface: "public", Verify: true}}
		hosttest.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		if c.Name != "" {
			cases = append(cases, c)
		}
	}
	if len(cases) < 900 {
		t.Fatalf("%d cases", len(cases))
	}
	return cases
}

// sdkBase is the address of Keystone in the recorded cases.
const sdkBase = "http://example.com"

// keystone answers as the one of credentials.py does, and keeps the request for a token.
type keystone struct {
	*httptest.Server
	asked *http.Request
	body  any
}

func startKeystone(t *testing.T) *keystone {
	k := &keystone{}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimSuffix(r.URL.Path, "/")
		for _, version := range []string{"/v3", "/v2.0", "/v2"} {
			path = strings.TrimSuffix(path, version)
		}
		var answer any = map[string]any{"versions": map[string]any{"values": []any{map[string]any{"id": "v3.14", "status": "stable",
			"links": []any{map[string]any{"rel": "self", "href": k.URL + path + "/v3/"}}}}}}
		status := http.StatusMultipleChoices
		if strings.HasSuffix(r.URL.Path, "/auth/tokens") {
			k.asked, status = r, http.StatusCreated
			text, _ := io.ReadAll(r.Body)
			if r.Method == http.MethodGet {
				status = http.StatusOK
			} else if err := json.Unmarshal(text, &k.body); err != nil {
				t.Error(err)
			}
			w.Header().Set("X-Subject-Token", "token")
			answer = map[string]any{"token": map[string]any{"expires_at": "2099-01-01T00:00:00.000000Z", "catalog": []any{}}}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(k.Close)
	return k
}

// asItIs is the body if no token is asked for.
const asItIs = "the token is used as it is"

// ask connects as a case describes it, in a home folder of its own.
func (c sdkCase) ask(t *testing.T, k *keystone) (sdkAnswer, error) {
	home := t.TempDir()
	local := strings.NewReplacer("$HOME", home, sdkBase, k.URL)
	recorded := strings.NewReplacer(home, "$HOME", k.URL, sdkBase)
	hosttest.NoError(t, os.MkdirAll(filepath.Join(home, "cwd"), 0o755))
	for name, content := range c.Files {
		text := string(content)
		if err := json.Unmarshal(content, &text); err != nil {
			text = string(content) // JSON is YAML too
		}
		name = filepath.Join(home, name)
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		hosttest.NoError(t, os.WriteFile(name, []byte(local.Replace(text)), 0o600))
	}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OS_") || strings.HasPrefix(name, "XDG_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", home)
	for name, value := range c.Env {
		t.Setenv(name, local.Replace(value))
	}
	t.Chdir(filepath.Join(home, "cwd"))
	o := Options{Cloud: c.Options.Cloud, Region: c.Options.Region, CACert: c.Options.CACert, Insecure: c.Options.Insecure, Timeout: time.Minute}
	found, err := findCredentials(o)
	if err != nil {
		return sdkAnswer{}, err
	}
	compute := found.endpoints.of("compute")
	answer := sdkAnswer{Region: compute.region, Interface: string(compute.availability), Verify: true}
	if found.tls.cacert != "" {
		answer.Verify = recorded.Replace(found.tls.cacert)
	}
	if found.tls.insecure {
		answer.Verify = false
	}
	if found.tls.cert != "" {
		answer.Cert = recorded.Replace(found.tls.cert)
	}
	if found.tls.cert != "" && found.tls.key != "" {
		answer.Cert = []any{answer.Cert, recorded.Replace(found.tls.key)}
	}
	k.asked, k.body = nil, nil
	found.tls = tlsFiles{} // the files are only names
	if _, err := found.connect(t.Context(), o); err != nil {
		return answer, err
	}
	answer.Body, answer.URL = k.body, recorded.Replace(k.URL+k.asked.URL.Path)
	if k.asked.Method == http.MethodGet {
		answer.Body = asItIs
	}
	return answer, nil
}

// refusals are what errors say where openstacksdk makes a request: where its releases or the
// openstack command make another one, where it reads something else than was written, and what is
// not supported.
func refusals() []string {
	return []string{"no such profile", "a token has one scope only", "has no value", "given twice", "both given", "quote the value",
		"verify is neither true nor false", "insecure is neither true nor false", "is none of public, internal and admin",
		"version 2.0 of the Identity API"}
}

// beyond are parts of names of cases in which a request is made and openstacksdk makes none: a
// default domain for all types, what the type does not need, and a flag instead of a variable.
func beyond() []string {
	return []string{"default_domain in auth", ", auth-type", "token: user_name in auth", "without project_domain_name", "without user_domain_name",
		"v3token: project_name", "v3token: tenant_name", "v3applicationcredential: user", "option region, variables with region",
		"text password: 2026-11-24", "regions:"}
}

// TestOpenstacksdk: the same files, variables and options give the request for a token that
// openstacksdk makes, or an error that names the key.
func TestOpenstacksdk(t *testing.T) {
	k := startKeystone(t)
	used := map[string]bool{}
	among := func(list []string, text string) bool {
		i := slices.IndexFunc(list, func(part string) bool { return strings.Contains(text, part) })
		if i >= 0 {
			used[list[i]] = true
		}
		return i >= 0
	}
	cases, ran := readSDKCases(t), 0
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			ran++
			got, err := c.ask(t, k)
			switch {
			case err != nil && (c.Answer.Error != "" || among(refusals(), err.Error())):
			case err != nil:
				t.Errorf("%v\nopenstacksdk asks for %v", err, c.Answer.Body)
			case c.Answer.Error != "" && !among(beyond(), c.Name):
				t.Errorf("asks for %v\nopenstacksdk: %s", got.Body, c.Answer.Error)
			case c.Answer.Error == "":
				hosttest.EqualIn(t, "openstacksdk and got", c.Answer.meant(), got)
			}
		})
	}
	for _, part := range append(refusals(), beyond()...) {
		if !used[part] && ran == len(cases) {
			t.Errorf("no case: %s", part)
		}
	}
}

// meant returns an answer of openstacksdk in our words.
func (a sdkAnswer) meant() sdkAnswer {
	a.By = ""
	if a.Interface = strings.TrimSuffix(a.Interface, "URL"); a.Interface == "" {
		a.Interface = "public" // of a variable that is empty
	}
	if a.Verify == "" {
		a.Verify = true // an empty variable does not switch verification off
	}
	// A token is used as it is if no scope is asked for: openstacksdk asks for one without a scope.
	if text, err := json.Marshal(a.Body); err == nil && strings.Contains(string(text), `"methods":["token"]`) && !strings.Contains(string(text), "scope") {
		a.Body = asItIs
	}
	return a
}
