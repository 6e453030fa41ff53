package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/nova/cloud/cloudtest"
)

// printed is the part of a document that a test reads.
type printed struct {
	Changed  *bool `json:"changed"`
	Refusals []struct {
		hintedPart
		Address, Allow *string
		Code, Reason   string
	}
	Errors []printedError
}

// hintedPart is what each refusal and each error has.
type hintedPart struct {
	Hint *string
	Next *struct{ Command string }
}

type printedError struct {
	hintedPart
	Message string
}

// lacksNext reports whether the hint lacks the command of the next step as it is to be run.
func (p hintedPart) lacksNext() bool {
	return p.Next != nil && (p.Hint == nil || !strings.Contains(*p.Hint, p.Next.Command))
}

// codes returns the codes of the refusals, each once.
func (p printed) codes() (codes []string) {
	for _, r := range p.Refusals {
		codes = append(codes, r.Code)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// TestOneDocument runs each command that prints documents, in each way in which it can end: every
// time it prints one document, which TestMain's program compares with the schema.
func TestOneDocument(t *testing.T) {
	dir := t.TempDir()
	state, err := stateHome(dir)
	hosttest.NoError(t, err)
	c := cloudtest.New(95)
	t.Cleanup(c.Close)
	c.Images = []map[string]any{{"id": "9", "name": "debian", "status": "active", "min_disk": 0, "min_ram": 0, "size": 1 << 20, "virtual_size": 3 << 30}}
	c.Add("2", "gpu.old", 4, 8192, 10, true, map[string]string{"pci_passthrough:alias": "A100:8"})
	withHosts := cloudtest.New(95)
	t.Cleanup(withHosts.Close)
	addHosts(withHosts, "hosts")
	hostsEnv := []string{}
	for name, value := range withHosts.Env() {
		hostsEnv = append(hostsEnv, name+"="+value)
	}
	var signedIn []string
	for name, value := range c.Env() {
		signedIn = append(signedIn, name+"="+value)
	}
	// The trees are changed by no case: each change is made in a copy.
	lay := func(name, exampleName, more string) {
		hosttest.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		unpack(t, filepath.Join(dir, name), example(t, exampleName), more)
	}
	const nova = "-- etc/nova/nova.conf --\n[DEFAULT]\n-- usr/lib/python3/dist-packages/nova-31.0.0.egg-info --\n"
	lay("node", "talk-2xk4200", nova)
	lay("prepared", "talk-2xk4200", nova)
	lay("hgx", "hgx-8xa100", "")
	lay("hca", "hgx-8xa100", "-- proc/modules --\nmlx5_core 1 0 - Live 0x0\n")
	lay("twins", "workstation-twins", "")
	unpack(t, dir, "", "-- a100.conf --\n[pci]\nalias = {\"name\": \"A100\", \"vendor_id\": \"10de\", \"product_id\": \"20b2\", \"device_type\": \"type-PCI\"}\n")
	if o := runProgram(t, dir, nil, "host", "prepare", "--root", "prepared", "--yes"); o.status != 0 {
		t.Fatal(o.stderr)
	}
	scan := runProgram(t, dir, nil, "host", "scan", "--root", "node", "-o", "json").stdout
	unpack(t, dir, "", "-- nodes/gpu1.json --\n"+scan+"-- services.json --\n"+`[{"Host": "gpu1", "Zone": "az1", "Status": "enabled", "State": "up", "Updated At": "`+
		time.Now().UTC().Format("2006-01-02T15:04:05.000000")+`"}]`+"\n")
	run := func(t *testing.T, args string, env ...string) (p printed, status int) {
		t.Helper()
		for _, format := range []string{"yaml", "json"} {
			o := runProgram(t, dir, env, append([]string{"-o", format}, strings.Fields(args)...)...)
			if status = o.status; status == unlikeSchema {
				t.Errorf("%s", o.stderr)
				return p, status
			}
			if format == "json" {
				if err := json.Unmarshal([]byte(o.stdout), &p); err != nil {
					t.Errorf("%v: %s", err, o.stdout)
				}
				// Standard error has the same in words.
				for _, r := range p.Refusals {
					if r.lacksNext() {
						t.Errorf("%s: next step %s, hint %s", args, r.Next.Command, *r.Hint)
					}
				}
				for _, e := range p.Errors {
					if e.lacksNext() {
						t.Errorf("%s: next step %s, hint %s", args, e.Next.Command, *e.Hint)
					}
					hosttest.ContainsIn(t, "standard error", "gpustack: error: "+e.Message+"\n", o.stderr)
				}
				if len(p.Refusals)+len(p.Errors) > 0 != (status == 1) {
					t.Errorf("exit status %d: %s", status, o.stdout)
				}
			}
		}
		return p, status
	}

	// How each command is called. begins is with what its first step fails.
	type command struct {
		good   string // a command line that prints a report
		status int
		cloud  bool
		hosts  bool   // the cloud has compute nodes
		begins string // a command line whose first step fails
		asks   string // a command line that asks, if the command does
	}
	table := map[string]command{
		"flavor create": {good: "flavor create K4200:2 --dry-run", status: 2, cloud: true, begins: "flavor create K4200:2", asks: "flavor create K4200:2"},
		"flavor delete": {good: "flavor delete gpu.old --dry-run", status: 2, cloud: true, begins: "flavor delete gpu.old", asks: "flavor delete gpu.old"},
		"flavor list":   {good: "flavor list", cloud: true, begins: "flavor list"},
		"flavor test": {good: "flavor test gpu.old --image debian --conf a100.conf --dry-run", status: 2, cloud: true,
			begins: "flavor test gpu.old --image debian --conf a100.conf", asks: "flavor test gpu.old --image debian --conf a100.conf"},
		"container check":   {good: "container check --root node", status: 2, begins: "container check --root absent"},
		"container prepare": {good: "container prepare --root node --none", begins: "container prepare --root absent --none"},
		"fleet diff":        {good: "fleet diff nodes nodes", begins: "fleet diff nodes absent"},
		"fleet plan":        {good: "fleet plan nodes --keep 0 --map services.json", begins: "fleet plan nodes --keep 0 --map absent"},
		"fleet show":        {good: "fleet show nodes", begins: "fleet show absent"},
		"history":           {good: "history --root prepared", begins: "history --root absent"},
		"host bind":         {good: "host bind --root node --live --dry-run", status: 2, begins: "host bind --root absent"},
		"host check":        {good: "host check --root node", status: 2, begins: "host check --root absent"},
		"status":            {good: "status --root node", status: 2, begins: "status --root absent"},
		"host guests":       {good: "host guests --root node", status: 2, begins: "host guests --root absent"},
		"host prepare":      {good: "host prepare --root node --dry-run", status: 2, begins: "host prepare --root absent", asks: "host prepare --root node"},
		"host release":      {good: "host release --root node --dry-run", begins: "host release --root absent"},
		"host scan":         {good: "host scan --root node", begins: "host scan --root absent"},
		"image check":       {good: "image check debian --flavor gpu.old", cloud: true, begins: "image check debian --flavor gpu.old"},
		"image set": {good: "image set debian --profile gpu --dry-run", status: 2, cloud: true, begins: "image set debian --profile gpu",
			asks: "image set debian --profile gpu"},
		"nova check": {good: "nova check --root node --release epoxy", status: 2, begins: "nova check --root absent"},
		"nova configure": {good: "nova configure --root node --release epoxy --role controller --alias K4200=10de:11b4 --dry-run", status: 2,
			begins: "nova configure --root absent --role controller --alias K4200=10de:11b4",
			asks:   "nova configure --root node --release epoxy --role controller --alias K4200=10de:11b4"},
		"nova drain": {good: "nova drain gpu1 --reason kernel --dry-run", status: 2, cloud: true, hosts: true, begins: "nova drain gpu1 --reason kernel",
			asks: "nova drain gpu1 --reason kernel"},
		"nova enable":       {good: "nova enable gpu1", cloud: true, hosts: true, begins: "nova enable gpu1"},
		"nova drain --list": {good: "nova drain --list", cloud: true, hosts: true, begins: "nova drain --list"},
		"nova devices":      {good: "nova devices", cloud: true, hosts: true, begins: "nova devices"},
		"nova explain":      {good: "nova explain --flavor gpu.large", status: 2, cloud: true, hosts: true, begins: "nova explain --flavor gpu.large"},
		"rdma check":        {good: "rdma check --root hca", begins: "rdma check --root absent"},
		"rdma prepare":      {good: "rdma prepare --root node --none", begins: "rdma prepare --root absent --none"},
		"rdma scan":         {good: "rdma scan --root node", begins: "rdma scan --root absent"},
		"container test":    {begins: "container test --root node --device 84:00.0 --image x"}, // integration, TestContainerTest
		"rdma test":         {begins: "rdma test --root node"},                                 // its reports need a machine: integration, TestRDMATest
		"repair-migration":  {begins: "repair-migration --root absent"},                        // its reports need a database: integration/db
		"undo":              {good: "undo --root prepared --dry-run", status: 2, begins: "undo --root absent", asks: "undo --root prepared"},
	}
	for name := range documents() {
		c, ok := table[name]
		if !ok {
			t.Errorf("%s: add the command to the table of this test", name)
			continue
		}
		var env []string
		if c.cloud {
			env = append(slices.Clone(state), signedIn...)
		}
		if c.hosts {
			env = append(slices.Clone(state), hostsEnv...)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.good != "" {
				if p, status := run(t, c.good, env...); status != c.status || p.Refusals != nil || p.Errors != nil {
					t.Errorf("%s: exit status %d: %+v", c.good, status, p)
				}
			}
			for _, args := range []string{c.begins, name + " --no-such-flag", name + " one two three four", name + " --root"} {
				if p, status := run(t, args); status != 1 || len(p.Errors) == 0 || p.Refusals != nil {
					t.Errorf("%s: exit status %d: %+v", args, status, p)
				}
			}
			if c.asks == "" {
				return
			}
			p, status := run(t, c.asks, env...)
			if status != 1 || !slices.Equal(p.codes(), []string{"unconfirmed"}) || *p.Refusals[0].Allow != "--yes" || p.Refusals[0].Address != nil {
				t.Errorf("%s: exit status %d: %+v", c.asks, status, p)
			}
			if p.Changed == nil || !*p.Changed {
				t.Errorf("%s: the document has no plan: %+v", c.asks, p)
			}
		})
	}

	for _, test := range []struct {
		name, args string
		lock       string // a folder that another program has locked
		codes      []string
		errors     string
	}{
		{name: "no command", args: "", errors: "unknown flag -o"},
		{name: "unknown command", args: "host scann", errors: `unknown command "host scann"`},
		{name: "group", args: "host", errors: "host: which command?"},
		{name: "wrong values", args: "host prepare --device x --vendor y", errors: `--device: neither an address nor VENDOR:PRODUCT: "x"`},
		{name: "no entry", args: "undo 7 --root prepared", errors: "entry 7: no such entry"},
		{name: "no device", args: "host prepare --root node --device 0000:99:00.0", errors: "0000:99:00.0: no such function"},
		{name: "locked", args: "host prepare --root prepared --none --yes", lock: "prepared/var/lib/gpustack/journal", codes: []string{"locked"}},
		{name: "console", args: "host prepare --root twins --dry-run", codes: []string{"console"}},
		{name: "host needs", args: "host prepare --root node --device 0000:00:1f.2 --device 0000:01:00.0", codes: []string{"iommu_group", "root_disk"}},
		{name: "nvswitch", args: "host prepare --root hgx", codes: []string{"iommu_group", "nvswitch"}},
		{name: "may hang", args: "host bind --root node --dry-run", codes: []string{"may_hang"}},
		{name: "not live", args: "host bind --root node --live --yes", errors: "does not belong to a running kernel"},
		{name: "nova", args: "nova configure --root node --role controller --alias bad", errors: `--alias`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.lock != "" {
				f, err := os.Open(filepath.Join(dir, test.lock))
				if err == nil {
					defer f.Close()
					err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
				}
				hosttest.NoError(t, err)
			}
			p, status := run(t, test.args)
			if diff := cmp.Diff(test.codes, p.codes()); status != 1 || diff != "" {
				t.Errorf("exit status %d, codes (-want +got):\n%s%+v", status, diff, p)
			}
			if found := slices.ContainsFunc(p.Errors, func(e printedError) bool {
				return strings.Contains(e.Message, test.errors)
			}); test.errors != "" && !found {
				t.Errorf("want %q: %+v", test.errors, p)
			}
			for _, r := range p.Refusals {
				if device := r.Code != "locked" && r.Code != "nvswitch"; device != (r.Address != nil) || device && strings.HasPrefix(r.Reason, *r.Address) {
					t.Errorf("address and reason: %+v", r)
				}
				if r.Code == "console" && *r.Allow != "--allow "+*r.Address || r.Code == "root_disk" && r.Allow != nil || r.Code == "may_hang" && *r.Allow != "--live" {
					t.Errorf("allow: %+v", r)
				}
				if r.Hint == nil {
					t.Errorf("no hint: %+v", r)
				}
			}
		})
	}
}

// TestInterruptedDocument: a run that a signal ends prints one document, too.
func TestInterruptedDocument(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state, err := stateHome(dir)
	hosttest.NoError(t, err)
	// Nobody writes to this file: the run waits for it.
	inventory := filepath.Join(dir, "inventory.json")
	hosttest.NoError(t, syscall.Mkfifo(inventory, 0o644))
	for _, test := range []struct{ args, want string }{
		{"nova check --release epoxy --conf etc.conf --inventory " + inventory, "interrupted"},
		{"nova configure --release epoxy --role controller --inventory " + inventory + " --root " + dir, "interrupted, nothing was changed"},
	} {
		for _, format := range []string{"json", "yaml"} {
			cmd := exec.Command("gpustack", append(strings.Fields(test.args), "-o", format)...)
			cmd.Env = append(os.Environ(), state...)
			var out, talk strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &talk
			hosttest.NoError(t, cmd.Start())
			// It can be opened as soon as the run reads it; nothing is written.
			writer, err := os.OpenFile(inventory, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				writer, err = os.OpenFile(inventory, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			}
			if err == nil {
				err = cmd.Process.Signal(os.Interrupt)
			}
			hosttest.NoError(t, err)
			cmd.Wait()
			writer.Close()
			if status := cmd.ProcessState.ExitCode(); status != exitInterrupted || !strings.Contains(talk.String(), "gpustack: error: "+test.want+"\n") {
				t.Errorf("%s: exit status %d: %s%s", test.args, status, out.String(), talk.String())
			}
			hosttest.ContainsIn(t, test.args, test.want, out.String())
		}
	}
}
