package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
)

// setenv sets these variables of OpenStack, and no other.
func setenv(t *testing.T, env map[string]string) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OS_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
}

func connect(t *testing.T, env map[string]string, o cloud.Options) (*cloud.Cloud, error) {
	t.Helper()
	setenv(t, env)
	return cloud.Connect(context.Background(), o)
}

// signIn signs in to a cloud with that newest microversion.
func signIn(t *testing.T, newest int) (*cloudtest.Cloud, *cloud.Compute) {
	t.Helper()
	c := cloudtest.Start(t, newest)
	signedIn, err := connect(t, c.Env(), cloud.Options{})
	hosttest.NoError(t, err)
	compute, err := signedIn.Compute(context.Background())
	hosttest.NoError(t, err)
	return c, compute
}

// TestMicroversions: no newer one is spoken than is understood, and each release's own
// is known. Extra specs are found whether they come with the flavors or not.
func TestMicroversions(t *testing.T) {
	for newest, spoken := range map[int]string{38: "2.38", 60: "2.60", 61: "2.61", 87: "2.86", 103: "2.86"} {
		t.Run(fmt.Sprintf("2.%d", newest), func(t *testing.T) {
			c, compute := signIn(t, newest)
			c.Page = 2
			c.Add("1", "small", 1, 512, 1, true, map[string]string{})
			c.Add("2", "gpu", 8, 16384, 40, true, map[string]string{"pci_passthrough:alias": "K4200:2"})
			c.Add("3", "alone", 4, 8192, 40, false, map[string]string{"hw:cpu_policy": "dedicated"})
			if compute.Microversion.String() != spoken || int(compute.Newest) != newest {
				t.Errorf("speaks %s of %s", compute.Microversion, compute.Newest)
			}
			got, err := compute.FlavorsWithSpecs(context.Background())
			hosttest.NoError(t, err)
			want := []cloud.Flavor{
				{ID: "3", Name: "alone", VCPUs: 4, RAM: 8192, Disk: 40, RxTxFactor: 1, ExtraSpecs: map[string]string{"hw:cpu_policy": "dedicated"}},
				{ID: "2", Name: "gpu", VCPUs: 8, RAM: 16384, Disk: 40, Public: true, RxTxFactor: 1, ExtraSpecs: map[string]string{"pci_passthrough:alias": "K4200:2"}},
				{ID: "1", Name: "small", VCPUs: 1, RAM: 512, Disk: 1, Public: true, RxTxFactor: 1, ExtraSpecs: map[string]string{}},
			}
			hosttest.Equal(t, want, got)
		})
	}
}

// TestOldCatalogs: the project stands behind the version, in catalogs of old clouds.
func TestOldCatalogs(t *testing.T) {
	c := cloudtest.Start(t, 38)
	setenv(t, c.Env())
	c.ComputePath = "/v2.1/0123456789abcdef0123456789abcdef"
	signedIn, err := cloud.Connect(context.Background(), cloud.Options{})
	hosttest.NoError(t, err)
	compute, err := signedIn.Compute(context.Background())
	if err != nil || compute.Newest != 38 {
		t.Errorf("%+v, %v", compute, err)
	}
}

// TestCredentials: they are found where every client of OpenStack finds them.
func TestCredentials(t *testing.T) {
	c := cloudtest.Start(t, 96)
	file := func(key, value string) string {
		return fmt.Sprintf("clouds:\n  lab:\n    region_name: RegionOne\n    auth:\n      auth_url: %s\n      username: admin\n      project_name: admin\n      %s: %s\n", c.URL, key, value)
	}
	whole := file("password", c.Password)
	secret := fmt.Sprintf("clouds:\n  lab:\n    auth:\n      password: %s\n", c.Password)
	plain := func(changes ...string) map[string]string {
		env := c.Env()
		for _, change := range changes {
			name, value, _ := strings.Cut(change, "=")
			env[name] = value
		}
		return env
	}
	for name, test := range map[string]struct {
		files   map[string]string // below the home folder; cwd/ is the current one
		env     map[string]string
		options cloud.Options
		want    string // the error's beginning
	}{
		"nothing":                             {nil, nil, cloud.Options{}, "no cloud credentials"},
		"clouds.yaml of the user":             {map[string]string{".config/openstack/clouds.yaml": whole}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, ""},
		"clouds.yaml of the current folder":   {map[string]string{"cwd/clouds.yaml": whole, ".config/openstack/clouds.yaml": "clouds: {}"}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, ""},
		"clouds.yaml that a variable names":   {map[string]string{"mine.yaml": whole}, map[string]string{"OS_CLOUD": "lab", "OS_CLIENT_CONFIG_FILE": "$HOME/mine.yaml"}, cloud.Options{}, ""},
		"a flag comes before OS_CLOUD":        {map[string]string{".config/openstack/clouds.yaml": whole}, map[string]string{"OS_CLOUD": "other"}, cloud.Options{Cloud: "lab"}, ""},
		"OS_CLOUD comes before OS_AUTH_URL":   {map[string]string{".config/openstack/clouds.yaml": whole}, map[string]string{"OS_CLOUD": "lab", "OS_AUTH_URL": "http://127.0.0.1:1/"}, cloud.Options{}, ""},
		"secure.yaml beside it":               {map[string]string{".config/openstack/clouds.yaml": file("user_domain_id", "default"), ".config/openstack/secure.yaml": secret}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, ""},
		"secure.yaml in another folder":       {map[string]string{"cwd/clouds.yaml": file("user_domain_id", "default"), ".config/openstack/secure.yaml": secret}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, ""},
		"secure.yaml beside the one named":    {map[string]string{"mine/clouds.yaml": file("user_domain_id", "default"), "mine/secure.yaml": secret}, map[string]string{"OS_CLOUD": "lab", "OS_CLIENT_CONFIG_FILE": "$HOME/mine/clouds.yaml"}, cloud.Options{}, ""},
		"application credential":              {nil, map[string]string{"OS_AUTH_URL": c.URL, "OS_AUTH_TYPE": "v3applicationcredential", "OS_APPLICATION_CREDENTIAL_ID": "credential", "OS_APPLICATION_CREDENTIAL_SECRET": c.Password}, cloud.Options{}, ""},
		"application credential of a file":    {map[string]string{"cwd/clouds.yaml": "clouds: {lab: {auth_type: v3applicationcredential, auth: {auth_url: '" + c.URL + "', application_credential_id: credential, application_credential_secret: " + c.Password + "}}}"}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, ""},
		"plain":                               {nil, plain(), cloud.Options{}, ""},
		"plain, without domains":              {nil, plain("OS_USER_DOMAIN_NAME=", "OS_PROJECT_DOMAIN_NAME="), cloud.Options{}, ""},
		"plain, project by id and name":       {nil, plain("OS_PROJECT_ID=1", "OS_PROJECT_DOMAIN_ID=default"), cloud.Options{}, ""},
		"no such cloud":                       {map[string]string{"cwd/clouds.yaml": whole}, map[string]string{"OS_CLOUD": "lob"}, cloud.Options{}, "cloud lob: no such cloud: clouds.yaml contains lab"},
		"no cloud in clouds.yaml":             {map[string]string{"cwd/clouds.yaml": "# none\n"}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, "cloud lab: no such cloud: clouds.yaml contains none"},
		"cloud in secure.yaml alone":          {map[string]string{"cwd/clouds.yaml": "clouds: {}\n", "cwd/secure.yaml": secret}, map[string]string{"OS_CLOUD": "lob"}, cloud.Options{}, "cloud lob: no such cloud: clouds.yaml contains lab"},
		"malformed secure.yaml":               {map[string]string{"cwd/clouds.yaml": whole, "cwd/secure.yaml": "clouds:\n  lab: hunter2\n"}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, "secure.yaml: cloud lab is not a mapping"},
		"two documents":                       {map[string]string{"cwd/clouds.yaml": whole + "---\n" + whole}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, "clouds.yaml: more than one document"},
		"a merged text":                       {map[string]string{"cwd/clouds.yaml": "clouds:\n  lab:\n    <<: hunter2\n"}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, "clouds.yaml: line 3: << is neither a mapping nor a list of mappings"},
		"clouds.yaml that is named is absent": {nil, map[string]string{"OS_CLOUD": "lab", "OS_CLIENT_CONFIG_FILE": "$HOME/mine.yaml"}, cloud.Options{}, "open $HOME/mine.yaml: no such file"},
		"clouds.yaml is a folder":             {map[string]string{"cwd/clouds.yaml/x": ""}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, "read clouds.yaml: is a directory"},
		"malformed":                           {map[string]string{"cwd/clouds.yaml": "clouds:\n  lab: hunter2\n"}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, "clouds.yaml: cloud lab is not a mapping"},
		"not YAML":                            {map[string]string{"cwd/clouds.yaml": "clouds: [\n  hunter2"}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, "clouds.yaml: "},
		"no password, no user":                {nil, plain("OS_PASSWORD=", "OS_USERNAME="), cloud.Options{}, "cloud environment: OS_USERNAME is missing\ncloud environment: OS_PASSWORD is missing"},
		"no password in the file":             {map[string]string{"cwd/clouds.yaml": file("user_domain_id", "default")}, map[string]string{"OS_CLOUD": "lab"}, cloud.Options{}, "cloud lab: password is missing"},
		"a way that is not supported":         {nil, plain("OS_AUTH_TYPE=v3oidcpassword"), cloud.Options{}, "cloud environment: auth_type v3oidcpassword is not supported"},
		"wrong password":                      {nil, plain("OS_PASSWORD=hunter2"), cloud.Options{}, "authentication at " + c.URL + " as admin: credentials rejected: The request you have made requires authentication (HTTP 401, req-"},
		"no such region":                      {nil, plain(), cloud.Options{Region: "Elsewhere"}, "compute service: the catalog has no such endpoint"},
		"no such interface":                   {nil, plain("OS_INTERFACE=admin"), cloud.Options{}, "compute service: the catalog has no such endpoint"},
		"CA file that is not there":           {nil, plain(), cloud.Options{CACert: "no.pem"}, "cloud environment: cacert: open no.pem: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			for file, text := range test.files {
				file = filepath.Join(home, file)
				hosttest.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)))
			}
			hosttest.NoError(t, os.MkdirAll(filepath.Join(home, "cwd"), 0o755))
			t.Chdir(filepath.Join(home, "cwd"))
			setenv(t, nil)
			t.Setenv("HOME", home)
			t.Setenv("XDG_CONFIG_HOME", "")
			for name, value := range test.env {
				t.Setenv(name, strings.ReplaceAll(value, "$HOME", home))
			}
			signedIn, err := cloud.Connect(context.Background(), test.options)
			if err == nil {
				_, err = signedIn.Compute(context.Background())
			}
			want := strings.ReplaceAll(test.want, "$HOME", home)
			switch {
			case want == "" && err != nil, want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
				t.Errorf("%v\nwant %s", err, want)
			case err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), c.Password)):
				t.Errorf("tells a secret: %v", err)
			}
		})
	}
}

// TestRetries: what a busy cloud and a lost connection break is tried again, and what
// cannot get better is not.
func TestRetries(t *testing.T) {
	hijack := func(w http.ResponseWriter) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			err = connection.Close()
		}
		if err != nil {
			panic(err)
		}
	}
	status := func(code int, headers ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for _, h := range headers {
				name, value, _ := strings.Cut(h, ": ")
				w.Header().Set(name, value)
			}
			w.WriteHeader(code)
			fmt.Fprint(w, `{"computeFault": {"message": "try again."}}`)
		}
	}
	short := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, `{"flavors": [`)
	}
	for name, test := range map[string]struct {
		fault  func(http.ResponseWriter)
		times  int
		want   string
		asking int // requests, the repeated ones too
	}{
		"503 twice":                  {status(503), 2, "", 3},
		"503 for ever":               {status(503), 99, "flavors: the service is not available: try again (HTTP 503, req-", 5},
		"429, wait a second":         {status(429, "Retry-After: 1"), 1, "", 2},
		"429, wait longer than I do": {status(429, "Retry-After: 3600"), 99, "flavors: the service is not available: try again (HTTP 429, req-", 1},
		"502":                        {status(502), 1, "", 2},
		"500 is not tried again":     {status(500), 1, "flavors: try again (HTTP 500, req-", 1},
		"403":                        {status(403), 1, "flavors: permission denied: try again (HTTP 403, req-", 1},
		"no message":                 {func(w http.ResponseWriter) { w.WriteHeader(400); fmt.Fprint(w, "<html>hunter2") }, 1, "flavors: the service answered: bad request (HTTP 400, req-", 1},
		"connection lost":            {hijack, 2, "", 3},
		"answer cut off":             {short, 1, "", 2},
		"token has run out":          {status(401), 1, "", 2},
		"signed out for good":        {status(401), 99, "flavors: credentials rejected: try again (HTTP 401, req-", 2},
	} {
		t.Run(name, func(t *testing.T) {
			c, compute := signIn(t, 96)
			left := test.times
			c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if left == 0 || r.URL.Path == "/v3/auth/tokens" {
					return false
				}
				left--
				test.fault(w)
				return true
			}
			c.Requests()
			_, err := compute.Flavors(context.Background())
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%v\nwant %s", err, test.want)
			}
			if got, _ := c.Requests(); len(got) != test.asking {
				t.Errorf("asked %q", got)
			}
		})
	}
}

// TestNobodyThere: the errors of the network, each in one line.
func TestNobodyThere(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it are what this is about
	secure.StartTLS()
	defer secure.Close()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or it would not be seen that the client has gone
		<-r.Context().Done()
	}))
	defer silent.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	// A label of more than 63 letters (RFC 1035) is no name, which no server is asked for:
	// how fast one answers is not ours to test.
	noName := strings.Repeat("a", 64) + ".invalid"
	for name, test := range map[string]struct {
		url  string
		want string
		kind error
	}{
		"nobody listens":        {closed.URL + "/v3", ": no connection: dial tcp ", cloud.ErrUnreachable},
		"unknown authority":     {secure.URL + "/v3", ": the certificate is not trusted: x509: certificate signed by unknown authority", cloud.ErrCertificate},
		"no answer":             {silent.URL + "/v3", ": timed out: after 1s", cloud.ErrTimeout},
		"no such name":          {"http://" + noName + "/v3", ": no connection: dial tcp: lookup " + noName, cloud.ErrUnreachable},
		"a password in the URL": {"http://me:hunter2@" + strings.TrimPrefix(closed.URL, "http://") + "/v3", ": no connection: ", cloud.ErrUnreachable},
		"a page, no Keystone":   {strings.Replace(secure.URL, "https", "http", 1) + "/v3", ": the service answered: bad request (HTTP 400)", nil},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, map[string]string{"OS_AUTH_URL": test.url, "OS_USERNAME": "admin", "OS_PASSWORD": "hunter2", "OS_PROJECT_NAME": "admin"})
			o := cloud.Options{Timeout: time.Minute} // a busy machine may refuse late
			if errors.Is(test.kind, cloud.ErrTimeout) {
				o.Timeout = time.Second
			}
			_, err := cloud.Connect(context.Background(), o)
			if err == nil || !strings.Contains(err.Error(), test.want) || test.kind != nil && !errors.Is(err, test.kind) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v\nwant %s", err, test.want)
			}
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		setenv(t, map[string]string{"OS_AUTH_URL": silent.URL + "/v3", "OS_USERNAME": "admin", "OS_PASSWORD": "hunter2", "OS_PROJECT_NAME": "admin"})
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(50*time.Millisecond, cancel)
		if _, err := cloud.Connect(ctx, cloud.Options{}); err == nil || !strings.HasSuffix(err.Error(), ": interrupted") {
			t.Error(err)
		}
	})
}

// TestTrace: each request is told of, and nothing secret with it; certificates that
// nobody verifies are warned of.
func TestTrace(t *testing.T) {
	c := cloudtest.Start(t, 96)
	var lines, warnings []string
	o := cloud.Options{Insecure: true, Trace: func(s string) { lines = append(lines, s) }, Warn: func(s string) { warnings = append(warnings, s) }}
	signedIn, err := connect(t, c.Env(), o)
	hosttest.NoError(t, err)
	if _, err := signedIn.Compute(context.Background()); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(lines, "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[1], "GET "+strings.TrimSuffix(c.URL, "v3")+"v2.1/: 200 req-2, ") || strings.Contains(text, c.Password) || strings.Contains(text, "token:") {
		t.Error(text)
	}
	if len(warnings) > 0 {
		t.Error(warnings) // it is not https
	}
	env := maps.Clone(c.Env())
	env["OS_AUTH_URL"] = "https://127.0.0.1:1/v3"
	o.Timeout = time.Second
	if _, err := connect(t, env, o); err == nil {
		t.Error("connected")
	}
	if !slices.Equal(warnings, []string{"cloud environment: TLS certificates are not verified: the password can be intercepted"}) {
		t.Error(warnings)
	}
}

// TestQuoted: a service that quotes what it was sent does not bring it to light.
func TestQuoted(t *testing.T) {
	c := cloudtest.Start(t, 96)
	c.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error": {"message": "'%s' is too short"}}`, c.Password)
		return true
	}
	_, err := connect(t, c.Env(), cloud.Options{})
	hosttest.Contains(t, "'***' is too short", fmt.Sprint(err))
}

// TestProjectAndImage: by name and by id.
func TestProjectAndImage(t *testing.T) {
	c := cloudtest.Start(t, 96)
	signedIn, err := connect(t, c.Env(), cloud.Options{})
	hosttest.NoError(t, err)
	if p, err := signedIn.Project(context.Background(), "lab"); err != nil || p.ID != "id-of-lab" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := signedIn.Project(context.Background(), "lob"); !errors.Is(err, cloud.ErrNotFound) {
		t.Error(err)
	}
	c.Images = []map[string]any{
		{"id": "1", "name": "debian", "min_disk": 3, "min_ram": 512, "size": 1 << 29, "virtual_size": 2 << 30},
		{"id": "2", "name": "twice", "owner": "ours"}, {"id": "3", "name": "twice", "owner": "theirs"},
		{"id": "4", "name": "hidden", "os_hidden": true, "protected": true, "status": "deactivated", "visibility": "community", "owner": "theirs", "disk_format": "raw",
			"size": 7, "virtual_size": nil, "hw_machine_type": "q35", "os_hash_algo": "sha512", "tags": []any{}},
	}
	if i, err := signedIn.Image(context.Background(), "debian"); err != nil || i.ID != "1" || i.MinDisk != 3 || i.MinRAM != 512 || *i.Size != 1<<29 || *i.VirtualSize != 2<<30 {
		t.Errorf("%+v, %v", i, err)
	}
	want := cloud.Image{ID: "4", Name: "hidden", Owner: "theirs", Status: "deactivated", Visibility: "community", Protected: true, Hidden: true,
		DiskFormat: "raw", Size: new(int64(7)), Properties: map[string]string{"hw_machine_type": "q35"}}
	i, err := signedIn.Image(context.Background(), "hidden")
	if diff := cmp.Diff(want, i); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if size, known := i.DiskGiB(); size != 1 || !known {
		t.Errorf("the disk of a raw image: %d, %v", size, known)
	}
	i.DiskFormat = "qcow2"
	if _, known := i.Disk(); known {
		t.Error("the disk of a file in qcow2 is unknown")
	}
	if _, err := signedIn.Image(context.Background(), "centos"); !errors.Is(err, cloud.ErrNotFound) {
		t.Error(err)
	}
	if _, err := signedIn.Image(context.Background(), "twice"); err == nil || err.Error() != "image twice: 2 images have that name: 2 of project ours, 3 of project theirs" {
		t.Error(err)
	}
}

// TestScope: the region counts where both name one.
func TestScope(t *testing.T) {
	scope := cloud.Scope{Cloud: "http://nova/v2.1", Region: "one", Project: "p"}
	for other, want := range map[cloud.Scope]bool{
		scope:                              true,
		{Cloud: scope.Cloud, Project: "p"}: true,
		{Cloud: scope.Cloud, Region: "two", Project: "p"}:    false,
		{Cloud: scope.Cloud, Region: "one"}:                  false,
		{Cloud: "http://other", Region: "one", Project: "p"}: false,
	} {
		if scope.Is(other) != want || other.Is(scope) != want {
			t.Errorf("%s and %s: %t", scope, other, !want)
		}
	}
}
