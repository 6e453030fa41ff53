package flavor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
	"gpustack/nova/flavor"
)

// TestParseRequest: what is malformed never reaches the cloud, and every fault is told
// at once.
func TestParseRequest(t *testing.T) {
	for spec, want := range map[string]string{
		"K4200:2":           "K4200:2",
		"K4200:1,A100:8":    "K4200:1,A100:8",
		"RTX 6000:1":        "RTX 6000:1",
		"K4200:02":          "K4200:2",
		"":                  `"": no alias given`,
		"K4200":             `"K4200": the count is missing, as in K4200:1`,
		"K4200:":            `"K4200:": "" is not a count`,
		":2":                `":2": the alias is missing`,
		" :2":               `" :2": the alias is missing`,
		"K4200:0":           `"K4200:0": the count must be at least 1`,
		"K4200:-1":          `"K4200:-1": "-1" is not a count`,
		"K4200:+1":          `"K4200:+1": "+1" is not a count`,
		"K4200:1.5":         `"K4200:1.5": "1.5" is not a count`,
		"K4200:two":         `"K4200:two": "two" is not a count`,
		"K4200:9999999999":  `"K4200:9999999999": "9999999999" is not a count`,
		"K4200: 1":          `"K4200: 1": blanks around the count`,
		"K4200:1 ":          `"K4200:1 ": blanks around the count`,
		" K4200:1":          `" K4200:1": blanks around the alias`,
		"K4200:1:2":         `"K4200:1:2": "1:2" is not a count`,
		"K4200:1,":          `"K4200:1,": empty element between or after commas`,
		"K4200:1,,A100:1":   `"K4200:1,,A100:1": empty element between or after commas`,
		"K4200:1,K4200:1":   `"K4200:1,K4200:1": alias K4200 is given twice`,
		"K4200,A100: 1,T:0": "\"K4200\": the count is missing, as in K4200:1\n\"A100: 1\": blanks around the count\n\"T:0\": the count must be at least 1",
	} {
		request, err := flavor.ParseRequest(spec)
		got := request.String()
		if err != nil {
			got = err.Error()
		}
		hosttest.EqualIn(t, spec, want, got)
	}
}

// TestParseProperty: what Nova's API would refuse is refused before it is asked.
func TestParseProperty(t *testing.T) {
	long := strings.Repeat("k", 256)
	for text, want := range map[string]string{
		"hw:cpu_policy=dedicated":        "hw:cpu_policy dedicated",
		"a key=a = value":                "a key a = value",
		"empty=":                         "empty ",
		long[1:] + "=" + long[1:]:        long[1:] + " " + long[1:],
		"none":                           `"none" must be KEY=VALUE`,
		"=1":                             `"": only letters, digits, blanks and - _ . : are allowed in a key`,
		"a/b=1":                          `"a/b": only letters, digits, blanks and - _ . : are allowed in a key`,
		long + "=1":                      long + " is longer than 255 characters",
		"k=" + long:                      "k: the value is longer than 255 characters",
		"pci_passthrough:alias=K4200:02": "pci_passthrough:alias is set by ALIAS:COUNT",
	} {
		key, value, err := flavor.ParseProperty(text)
		got := key + " " + value
		if err != nil {
			got = err.Error()
		}
		hosttest.EqualIn(t, text, want, got)
	}
}

// FuzzParseRequest: whatever is taken, Nova takes, and means the same by it.
func FuzzParseRequest(f *testing.F) {
	for _, seed := range []string{"K4200:2", "A:1,B:2", "K4200: 1", "a b:1", "A:1,", ":", "é:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		request, err := flavor.ParseRequest(spec)
		if err != nil {
			return
		}
		again, err := nova.ParseRequest(request.String())
		if err != nil || !slices.Equal(request, again) {
			t.Errorf("%q: %v, but Nova reads %v, %v", spec, request, again, err)
		}
	})
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]string{
		"4096 MiB": "4096", "4G MiB": "4096", "4GiB MiB": "4096", "4gb MiB": "4096", "1.5T MiB": "1572864", "0.5G MiB": "512",
		"1048576K MiB": "1024", "2097152B MiB": "2",
		"40 GiB": "40", "40G GiB": "40", "2T GiB": "2048", "2048M GiB": "2", "0 GiB": "0",
		"1500M GiB":      "1500M is not a whole number of GiB",
		"1.5 GiB":        "1.5 is not a whole number of GiB",
		"1000B MiB":      "1000B is not a whole number of MiB",
		"-1 GiB":         `not a size: "-1"`,
		"1P GiB":         `not a size: "1P"`,
		" GiB":           `not a size: ""`,
		"4 096 MiB":      `not a size: "4 096"`,
		"0x10 MiB":       `not a size: "0x10"`,
		"9999999999 MiB": "9999999999 is larger than Nova supports",
	} {
		i := strings.LastIndex(text, " ")
		n, err := flavor.ParseSize(text[:i], map[string]flavor.Unit{"MiB": flavor.MiB, "GiB": flavor.GiB}[text[i+1:]])
		got := fmt.Sprint(n)
		if err != nil {
			got = err.Error()
		}
		hosttest.EqualIn(t, text, want, got)
	}
}

func number(n int) *int { return &n }

func text(s string) *string { return &s }

// request is a request that is known to be well formed.
func request(t *testing.T, spec string) nova.Request {
	t.Helper()
	r, err := flavor.ParseRequest(spec)
	hosttest.NoError(t, err)
	return r
}

func gpu(changes ...string) *cloud.Flavor {
	f := &cloud.Flavor{ID: "7", Name: "gpu.k4200.2", VCPUs: 8, RAM: 32 << 10, Disk: 80, Public: true,
		ExtraSpecs: map[string]string{"pci_passthrough:alias": "K4200:2"}}
	for _, change := range changes {
		key, value, _ := strings.Cut(change, "=")
		f.ExtraSpecs[key] = value
	}
	return f
}

// state is a flavor with its projects, as the cloud has them.
func state(f *cloud.Flavor, projects []string) *flavor.State {
	if f == nil {
		return nil
	}
	return &flavor.State{Flavor: *f, Projects: projects}
}

// apply makes a plan without the journal, and returns the flavor.
func apply(ctx context.Context, plan flavor.Plan, compute *cloud.Compute) (cloud.Flavor, error) {
	c := flavor.Kind(compute).New(plan.Move)
	outcome, err := c.Apply(ctx, nil)
	if (outcome == change.Stands) != (err == nil) {
		err = errors.Join(err, fmt.Errorf("outcome %d", outcome))
	}
	return c.Move.After.Flavor, err
}

// TestPlan: what is asked for against what is there, on clouds of all ages.
func TestPlan(t *testing.T) {
	private := gpu()
	private.Public = false
	bare := gpu()
	bare.ExtraSpecs = map[string]string{}
	for name, test := range map[string]struct {
		options  flavor.Options
		newest   cloud.Microversion
		existing *cloud.Flavor
		access   []string
		image    *cloud.Image
		requests string
		warnings []string
		err      string
	}{
		"new": {
			requests: `POST /flavors {"flavor":{"OS-FLV-EXT-DATA:ephemeral":0,"disk":80,"id":"ID","name":"gpu.k4200.2","os-flavor-access:is_public":true,"ram":32768,"swap":0,"vcpus":8}}
POST /flavors/ID/os-extra_specs {"extra_specs":{"pci_passthrough:alias":"K4200:2"}}`,
		},
		"new, with everything": {
			options: flavor.Options{
				Name: "big", VCPUs: number(1), RAM: number(512), Disk: number(100), Ephemeral: number(5), Swap: number(64),
				Private: true, Projects: []string{"p"},
				Description: text("for rendering"), Properties: map[string]string{"hw:numa_nodes": "1"}, NUMAPolicy: "socket", CPUPolicy: "dedicated", HideHypervisor: true,
			},
			requests: `POST /flavors {"flavor":{"OS-FLV-EXT-DATA:ephemeral":5,"description":"for rendering","disk":100,"id":"ID","name":"big","os-flavor-access:is_public":false,"ram":512,"swap":64,"vcpus":1}}
POST /flavors/ID/os-extra_specs {"extra_specs":{"hw:cpu_policy":"dedicated","hw:hide_hypervisor_id":"true","hw:numa_nodes":"1","hw:pci_numa_affinity_policy":"socket","pci_passthrough:alias":"K4200:2"}}
POST /flavors/ID/action {"addTenantAccess":{"tenant":"p"}}`,
		},
		"as it is":                      {existing: gpu()},
		"as it is, written otherwise":   {existing: gpu("pci_passthrough:alias= K4200:2 ")},
		"others' properties stay":       {existing: gpu("hw:mem_page_size=large")},
		"sizes that are not named stay": {existing: &cloud.Flavor{ID: "7", Name: "gpu.k4200.2", VCPUs: 1, Disk: 20, Public: true, ExtraSpecs: gpu().ExtraSpecs}},
		"sizes that are named are compared": {
			options:  flavor.Options{VCPUs: number(8), RAM: number(32 << 10), Disk: number(80), Ephemeral: number(0), Swap: number(0)},
			existing: gpu(),
		},
		"drift": {
			existing: gpu("pci_passthrough:alias=K4200:1"),
			requests: `POST /flavors/7/os-extra_specs {"extra_specs":{"pci_passthrough:alias":"K4200:2"}}`,
			warnings: []string{"existing guests keep their devices and properties; new and resized guests get the changed flavor"},
		},
		"left unfinished": {
			existing: bare,
			requests: `POST /flavors/7/os-extra_specs {"extra_specs":{"pci_passthrough:alias":"K4200:2"}}`,
			warnings: []string{"flavor gpu.k4200.2 exists and has not requested devices so far",
				"existing guests keep their devices and properties; new and resized guests get the changed flavor"},
		},
		"only what differs": {
			options:  flavor.Options{CPUPolicy: "dedicated", Description: text("new"), Properties: map[string]string{"hw:numa_nodes": "1"}},
			existing: gpu("hw:cpu_policy=shared", "hw:numa_nodes=1"),
			requests: `POST /flavors/7/os-extra_specs {"extra_specs":{"hw:cpu_policy":"dedicated"}}
PUT /flavors/7 {"flavor":{"description":"new"}}`,
			warnings: []string{"existing guests keep their devices and properties; new and resized guests get the changed flavor"},
		},
		"access": {
			options:  flavor.Options{Private: true, Projects: []string{"a", "b"}},
			existing: private,
			access:   []string{"a"},
			requests: `POST /flavors/7/action {"addTenantAccess":{"tenant":"b"}}`,
		},
		"nobody may use it": {
			options: flavor.Options{Private: true},
			requests: `POST /flavors {"flavor":{"OS-FLV-EXT-DATA:ephemeral":0,"disk":80,"id":"ID","name":"gpu.k4200.2","os-flavor-access:is_public":false,"ram":32768,"swap":0,"vcpus":8}}
POST /flavors/ID/os-extra_specs {"extra_specs":{"pci_passthrough:alias":"K4200:2"}}`,
			warnings: []string{"no project but that of an administrator may use the flavor: --project names one"},
		},
		"what cannot be changed, all of it": {
			options:  flavor.Options{VCPUs: number(4), RAM: number(100), Disk: number(20), Ephemeral: number(1), Swap: number(2048), Private: true},
			existing: gpu(),
			err: `flavor gpu.k4200.2: vcpus is 8 and cannot be changed to 4
flavor gpu.k4200.2: ram is 32 GiB and cannot be changed to 100 MiB
flavor gpu.k4200.2: disk is 80 GiB and cannot be changed to 20 GiB
flavor gpu.k4200.2: ephemeral is 0 GiB and cannot be changed to 1 GiB
flavor gpu.k4200.2: swap is 0 MiB and cannot be changed to 2 GiB
flavor gpu.k4200.2: access is public and cannot be changed to private`,
		},
		"2.38: no description, no policy, nothing hidden": {
			newest:   38,
			options:  flavor.Options{Description: text("d"), NUMAPolicy: "preferred", HideHypervisor: true},
			existing: gpu(),
			warnings: []string{
				"hw:pci_numa_affinity_policy is not set: this release of Nova does not support it in flavors; set numa_policy in the alias of nova.conf instead",
				"--hide-hypervisor is not set: this release of Nova does not support it in flavors; set the property img_hide_hypervisor_id=true of the image instead",
				"the description is not set: it requires microversion 2.55, but the cloud supports only 2.38",
			},
		},
		"2.60: a description, nothing hidden": {
			newest:   60,
			options:  flavor.Options{Description: text("d"), HideHypervisor: true},
			existing: gpu(),
			requests: `PUT /flavors/7 {"flavor":{"description":"d"}}`,
			warnings: []string{"--hide-hypervisor is not set: this release of Nova does not support it in flavors; set the property img_hide_hypervisor_id=true of the image instead"},
		},
		"2.65: hidden by the old name": {
			newest: 65, options: flavor.Options{HideHypervisor: true}, existing: bare,
			requests: `POST /flavors/7/os-extra_specs {"extra_specs":{"hide_hypervisor_id":"true","pci_passthrough:alias":"K4200:2"}}`,
			warnings: []string{"flavor gpu.k4200.2 exists and has not requested devices so far",
				"existing guests keep their devices and properties; new and resized guests get the changed flavor"},
		},
		"2.87: hidden by the old name, since it may be Ussuri; no socket": {
			newest: 87, options: flavor.Options{HideHypervisor: true, NUMAPolicy: "socket"}, existing: bare,
			requests: `POST /flavors/7/os-extra_specs {"extra_specs":{"hide_hypervisor_id":"true","pci_passthrough:alias":"K4200:2"}}`,
			warnings: []string{
				"--numa-policy socket is not set: this release of Nova does not support it",
				"flavor gpu.k4200.2 exists and has not requested devices so far",
				"existing guests keep their devices and properties; new and resized guests get the changed flavor",
			},
		},
		"a NUMA policy without a topology": {
			options: flavor.Options{NUMAPolicy: "required"}, existing: gpu("hw:pci_numa_affinity_policy=required"),
			warnings: []string{"the NUMA policy has no effect on guests without a NUMA topology: add --cpu-policy dedicated or --property hw:numa_nodes=1"},
		},
		"a NUMA policy with the topology that is there": {
			options: flavor.Options{NUMAPolicy: "required"}, existing: gpu("hw:pci_numa_affinity_policy=required", "hw:numa_nodes=2"),
		},
		"no disk": {
			existing: &cloud.Flavor{ID: "7", Name: "gpu.k4200.2", Public: true, ExtraSpecs: gpu().ExtraSpecs},
			warnings: []string{"with --disk 0 the disk of a guest is as large as its image: cloud images are too small for CUDA, which needs 20 GiB or a volume"},
		},
		"a small disk": {
			existing: &cloud.Flavor{ID: "7", Name: "gpu.k4200.2", Disk: 8, Public: true, ExtraSpecs: gpu().ExtraSpecs},
			warnings: []string{"a disk of 8 GiB is too small for a cloud image with CUDA, which needs 20 GiB"},
		},
		"an image that asks for more": {
			image: &cloud.Image{Name: "windows", MinDisk: 100, MinRAM: 64 << 10, VirtualSize: new(int64(200 << 30))}, existing: gpu(),
			warnings: []string{"image windows requires a disk of 100 GiB, but the flavor has 80", "image windows requires 64 GiB of RAM, but the flavor has 32 GiB"},
		},
		"an image whose disk is larger": {
			image: &cloud.Image{Name: "windows", VirtualSize: new(int64(80<<30 + 1))}, existing: gpu(),
			warnings: []string{"image windows has a disk of 81 GiB, but the flavor has 80"},
		},
		"an image that fits": {image: &cloud.Image{Name: "debian", MinDisk: 3, MinRAM: 512, VirtualSize: new(int64(2 << 30))}, existing: gpu()},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Request = request(t, "K4200:2")
			newest := test.newest
			if newest == 0 {
				newest = 96
			}
			plan, err := flavor.NewPlan(test.options, flavor.Cloud{Microversion: min(newest, 86), Newest: newest, Existing: state(test.existing, test.access),
				Projects: projects(test.options), Image: test.image})
			if test.err != "" {
				if err == nil || err.Error() != test.err || !errors.Is(err, flavor.ErrFixed) {
					t.Errorf("%v\nwant %s", err, test.err)
				}
				return
			}
			hosttest.NoError(t, err)
			if diff := cmp.Diff(test.requests, show(t, plan)); diff != "" || plan.Changed() != (test.requests != "") {
				t.Errorf("changed %v; requests (-want +got):\n%s", plan.Changed(), diff)
			}
			hosttest.EqualIn(t, "warnings", test.warnings, plan.Warnings)
		})
	}
}

// projects returns the projects that options name, by their ids.
func projects(o flavor.Options) (found []cloud.Project) {
	for _, id := range o.Projects {
		found = append(found, cloud.Project{ID: id})
	}
	return found
}

func show(t *testing.T, plan flavor.Plan) string {
	t.Helper()
	var lines []string
	for _, r := range plan.Requests() {
		body, err := json.Marshal(r.Body)
		hosttest.NoError(t, err)
		lines = append(lines, r.Method+" "+r.Path+" "+string(body))
	}
	return strings.Join(lines, "\n")
}

// TestApply: what is done is what the plan says, once; what goes wrong on the way is
// taken back.
func TestApply(t *testing.T) {
	lose := func(w http.ResponseWriter) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			err = connection.Close()
		}
		if err != nil {
			panic(err)
		}
	}
	refuse := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(code)
			fmt.Fprint(w, `{"badRequest": {"message": "not so."}}`)
		}
	}
	for name, test := range map[string]struct {
		options flavor.Options
		// A request that goes wrong, and how; with heard, after the cloud has done it.
		request string
		fault   func(http.ResponseWriter)
		heard   bool
		twin    bool // somebody else makes the flavor between plan and apply
		err     string
		flavors int // in the end
	}{
		"all well":                     {flavors: 1},
		"private":                      {options: flavor.Options{Private: true, Projects: []string{"p", "q"}}, flavors: 1},
		"the answer of making is lost": {request: "POST /v2.1/flavors", fault: lose, heard: true, flavors: 1},
		"the question is lost":         {request: "POST /v2.1/flavors", fault: lose, flavors: 1},
		"the answer of extra specs":    {request: "POST os-extra_specs", fault: lose, heard: true, flavors: 1},
		"access is granted, unheard": {options: flavor.Options{Private: true, Projects: []string{"p"}},
			request: "POST action", fault: lose, heard: true, flavors: 1},
		"503 once": {request: "POST os-extra_specs", fault: refuse(503), flavors: 1},
		"making is refused": {request: "POST /v2.1/flavors", fault: refuse(403),
			err: "nothing was changed: creating flavor gpu.k4200.2: permission denied: not so (HTTP 403, req-"},
		"extra specs are refused": {request: "POST os-extra_specs", fault: refuse(400),
			err: "nothing was changed: extra specs of flavor gpu.k4200.2: not so (HTTP 400, req-"},
		"access is refused": {options: flavor.Options{Private: true, Projects: []string{"p"}},
			request: "POST action", fault: refuse(404), err: "nothing was changed: access to flavor gpu.k4200.2 for project p: not found: not so (HTTP 404, req-"},
		"another user was faster": {twin: true, err: "flavor gpu.k4200.2: was created by another user meanwhile", flavors: 1},
		"Nova answers something else": {request: "POST /v2.1/flavors",
			fault: func(w http.ResponseWriter) { fmt.Fprint(w, `{"flavor": {"id": "x", "vcpus": 1}}`) }, heard: true,
			err: "nothing was changed: flavor gpu.k4200.2: is not as requested:\nvcpus        1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := cloudtest.Start(t, 96)
			compute := connect(t, c)
			test.options.Request = request(t, "K4200:2")
			plan, err := flavor.NewPlan(test.options, flavor.Cloud{Microversion: compute.Microversion, Newest: compute.Newest, Projects: projects(test.options)})
			hosttest.NoError(t, err)
			if test.twin {
				c.Add("other", "gpu.k4200.2", 1, 1, 1, true, map[string]string{})
			}
			method, path, _ := strings.Cut(test.request, " ")
			c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if test.fault == nil || r.Method != method || !strings.HasSuffix(r.URL.Path, path) {
					return false
				}
				fault := test.fault
				if test.heard {
					c.Do(r)
				}
				if test.err == "" {
					test.fault = nil // once
				}
				fault(w)
				return true
			}
			c.Requests()
			made, err := apply(context.Background(), plan, compute)
			if test.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.err) {
					t.Errorf("%v\nwant %s", err, test.err)
				}
			} else {
				hosttest.NoError(t, err)
			}
			hosttest.EqualIn(t, "flavors", test.flavors, len(c.Flavors))
			if err != nil {
				return
			}
			is := c.Flavors[0]
			if diff := cmp.Diff(map[string]string{"pci_passthrough:alias": "K4200:2"}, is.Specs); diff != "" || is.Body["id"] != made.ID {
				t.Errorf("%v (-want +got):\n%s", is.Body, diff)
			}
			if access := test.options.Projects; !slices.Equal(access, is.Access) {
				t.Errorf("access %v, want %v", is.Access, access)
			}
			if test.request == "" {
				var got []string
				lines, bodies := c.Requests()
				for i, line := range lines {
					var body any
					hosttest.NoError(t, json.Unmarshal([]byte(bodies[i]), &body))
					sorted, err := json.Marshal(body)
					hosttest.NoError(t, err)
					got = append(got, strings.ReplaceAll(strings.Replace(line, "/v2.1", "", 1)+" "+string(sorted), made.ID, "ID"))
				}
				hosttest.EqualIn(t, "requests", show(t, plan), strings.Join(got, "\n"))
			}
			// Again there is nothing to do.
			all, err := compute.FlavorsWithSpecs(context.Background())
			hosttest.NoError(t, err)
			again, err := flavor.NewPlan(test.options,
				flavor.Cloud{Microversion: compute.Microversion, Newest: compute.Newest, Existing: state(test.options.Find(all), is.Access), Projects: projects(test.options)})
			if err != nil || again.Changed() {
				t.Errorf("again: %s, %v", show(t, again), err)
			}
		})
	}
}

// TestInterrupted: a flavor without its extra specs does not stay behind.
func TestInterrupted(t *testing.T) {
	c := cloudtest.Start(t, 96)
	compute := connect(t, c)
	plan, err := flavor.NewPlan(flavor.Options{Request: request(t, "K4200:2")}, flavor.Cloud{Microversion: compute.Microversion, Newest: compute.Newest})
	hosttest.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	c.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "os-extra_specs") {
			return false
		}
		cancel()
		// An answer could still be faster than the interrupt.
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return true
		}
		<-r.Context().Done()
		return true
	}
	if _, err := apply(ctx, plan, compute); err == nil || err.Error() != "nothing was changed: extra specs of flavor gpu.k4200.2: interrupted" {
		t.Error(err)
	}
	if len(c.Flavors) > 0 {
		t.Errorf("left %v", c.Flavors[0].Body)
	}
}

// TestInterruptedChange: a change of a flavor that exists is made completely or not at all.
func TestInterruptedChange(t *testing.T) {
	for at := range 4 {
		for _, refused := range []bool{false, true} {
			c := cloudtest.Start(t, 96)
			compute := connect(t, c)
			c.Add("1", "gpu.a100.1", 8, 32768, 80, false, map[string]string{"hw:cpu_policy": "shared"}).Access = []string{"own"}
			before, err := flavor.Read(context.Background(), compute, "1")
			hosttest.NoError(t, err)
			description := "two"
			options := flavor.Options{
				Request: request(t, "A100:1"), Private: true, Description: &description, Projects: []string{"lab"}, CPUPolicy: "dedicated",
			}
			plan, err := flavor.NewPlan(options, flavor.Cloud{Microversion: compute.Microversion, Newest: compute.Newest, Existing: before, Projects: projects(options)})
			hosttest.NoError(t, err)
			if len(plan.Requests()) != 3 {
				t.Fatalf("%v", plan.Requests())
			}
			ctx, cancel := context.WithCancelCause(context.Background())
			asked := 0
			c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				asked++
				switch {
				case asked != at:
				case refused:
					c.Do(r) // made, but the answer says otherwise
					w.WriteHeader(http.StatusForbidden)
					return true
				default:
					cancel(errors.New("interrupted"))
				}
				return false
			}
			if at == 0 && !refused {
				cancel(errors.New("interrupted"))
			}
			_, err = apply(ctx, plan, compute)
			cancel(nil)
			c.Fault = nil
			after, readErr := flavor.Read(context.Background(), compute, "1")
			hosttest.NoError(t, readErr)
			switch want := "nothing was changed"; {
			case at == 0 && refused:
				if err != nil || cmp.Equal(before, after) {
					t.Errorf("no fault: %v, %v", after, err)
				}
			case err == nil || !strings.Contains(err.Error(), want):
				t.Errorf("at %d: %v, want %s", at, err, want)
			default:
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("at %d, refused %t (-before +after):\n%s", at, refused, diff)
				}
			}
		}
	}
}

func connect(t *testing.T, c *cloudtest.Cloud) *cloud.Compute {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OS_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range maps.All(c.Env()) {
		t.Setenv(name, value)
	}
	signedIn, err := cloud.Connect(context.Background(), cloud.Options{})
	hosttest.NoError(t, err)
	compute, err := signedIn.Compute(context.Background())
	hosttest.NoError(t, err)
	return compute
}

// TestNeighbours: a flavor with devices of several aliases says what Nova promises about their
// distance, and one with a single alias does not.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ request, policy, want string }{
		{"A100:2", "required", ""},
		{"A100:2,CX6VF:2", "", "--numa-policy required makes Nova choose"},
		{"A100:2,CX6VF:2", "preferred", "--numa-policy required makes Nova choose"},
		{"A100:2,CX6VF:2", "required", "with the NUMA policy required Nova chooses devices by NUMA node, but never by PCIe switch"},
	} {
		plan, err := flavor.NewPlan(flavor.Options{Request: request(t, test.request), NUMAPolicy: test.policy}, flavor.Cloud{Microversion: 86, Newest: 96})
		hosttest.NoError(t, err)
		got := ""
		for _, w := range plan.Warnings {
			if strings.Contains(w, "PCIe switch") {
				got = w
			}
		}
		if !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s, policy %q: %q, want %q", test.request, test.policy, got, test.want)
		}
	}
}

// TestUnequalGPUs: a flavor with GPUs of two known products says once that programs which use
// several GPUs may need equal ones.
func TestUnequalGPUs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ request, want string }{
		{"K4200:2", ""},
		{"K4200:1,CX6VF:1", ""},
		{"mine:1,K4200:1", ""},
		{"K4200:1,M60:1", "its guests have GPUs of several products, K4200 and M60: programs that use several GPUs at once, such as nbody, need equal ones"},
		{"M60:1,K4200:1,L40S:1", "its guests have GPUs of several products, K4200, L40S and M60: programs that use several GPUs at once, such as " +
			"nbody, need equal ones"},
	} {
		plan, err := flavor.NewPlan(flavor.Options{Request: request(t, test.request)}, flavor.Cloud{Microversion: 86, Newest: 96})
		hosttest.NoError(t, err)
		var got []string
		for _, w := range plan.Warnings {
			if strings.Contains(w, "equal") {
				got = append(got, w)
			}
		}
		if strings.Join(got, "|") != test.want {
			t.Errorf("%s: %q, want %q", test.request, got, test.want)
		}
	}
}
