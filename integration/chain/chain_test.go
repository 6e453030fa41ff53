package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
	"gpustack/integration/nova"
	"gpustack/integration/service"
)

// flavor is the one of all servers: both GPUs of a host.
const flavor = "gpu.k4200.2"

// TestChain walks the whole way of doc.go with two hosts. A server gets the GPUs of gpu1, and keeps
// them while a migration of it fails and leaves those of gpu2 allocated; repair-migration frees
// them with the reports of both hosts, and the next server gets them. Then a resize leaves a domain
// that is defined on its source. In the end all is undone.
func TestChain(t *testing.T) {
	if !*full {
		return // it takes a quarter of an hour
	}
	c := begin(t, preparedDisk)
	gpu1, gpu2 := c.hosts[0], c.hosts[1]
	c.step("nova-compute of both hosts reports four GPUs", func() { c.configure() })
	// The disk is as small as the image's: a resize copies it, byte for byte.
	c.step("flavor create", func() {
		c.succeed("flavor", "create", "K4200:2", "--vcpus", "1", "--ram", "192", "--disk", "0", "--yes")
	})
	c.step("flavor test on gpu1: pass", func() { c.passes(gpu1) })

	var g1 string
	c.step("g1 is active on gpu1", func() { g1 = c.boot("g1", gpu1) })
	c.step("g1 has printed its GPUs", func() { c.counts(g1) })
	c.step("what libvirt made of it", func() { c.assigned(gpu1, g1) })

	c.step("a migration of g1 to gpu2 has failed by itself", func() { c.failToMigrate(g1, gpu2) })
	c.step("flavor test on gpu2: no valid host", func() { c.hasNoHost(gpu2) })
	c.step("nova explain names the rows of gpu2", func() { c.explains(g1, gpu2) })
	c.step("repair-migration frees the GPUs of gpu2", func() { c.repair(g1, gpu2) })
	c.step("flavor test on gpu2: pass", func() { c.passes(gpu2) })
	c.step("g1 runs on gpu1", func() { c.runs(g1, gpu1) })

	c.step("the hosts let each other in", func() { c.letIn() })
	c.step("g1 is resized to gpu2, unconfirmed", func() { c.migrate(g1, gpu2) })
	c.step("what waits for its confirmation is legitimate", func() { c.awaitsConfirmation(g1, gpu1, gpu2) })
	c.step("its state is reset: the leftover domain does not count", func() { c.confirmedByRepair(g1, gpu1, gpu2) })
	c.step("g1 is resized to gpu1, unconfirmed", func() { c.migrate(g1, gpu1) })
	c.step("that is reverted", func() { c.revert(g1, gpu1, gpu2) })

	c.step("g1 is deleted, all GPUs are free", func() { c.remove(g1) })
	c.step("all is undone, and both hosts have rebooted", func() { c.undo() })
}

// A chain is the cloud of TestChain, and how long its steps took.
type chain struct {
	t      *testing.T
	lab    *nova.Lab
	nova   *gophercloud.ServiceClient
	hosts  [2]machine
	before State // of the hosts' boots before host prepare and since
	after  State
	dir    string
	began  time.Time
	times  []string
}

// begin brings up the controllers and both hosts, side by side. disk is what the hosts boot from.
func begin(t *testing.T, disk func(c *chain) (file, format string)) *chain {
	c := &chain{t: t, dir: t.TempDir(), began: time.Now()}
	t.Cleanup(func() { t.Log("\n" + strings.Join(c.times, "\n")) })
	guests, err := MakeGuests(t.Context())
	hosttest.NoError(t, err)
	var controllers sync.WaitGroup
	var problem error
	dir, err := os.MkdirTemp(scratch, "c")
	hosttest.NoError(t, err)
	controllers.Go(func() { c.lab, problem = StartControllers(t.Context(), dir, guests) })
	t.Cleanup(func() {
		controllers.Wait()
		keepLogs(t, "controllers", filepath.Join(dir, "log", "*.log"))
		if c.lab == nil {
			return
		}
		if err := c.lab.Stop(); err != nil {
			t.Error(err)
		}
	})
	var file, format string
	c.step("the disk of both hosts is there", func() { file, format = disk(c) })
	c.step("both hosts and the controllers are up", func() {
		pair, err := Pair()
		hosttest.NoError(t, err)
		c.hosts = [2]machine(start(t, file, format, pair[:]...))
		controllers.Wait()
		hosttest.NoError(t, problem)
	})
	session, err := c.lab.Client(t.Context())
	if err == nil {
		c.nova, err = openstack.NewComputeV2(session, gophercloud.EndpointOpts{Region: nova.Region})
	}
	hosttest.NoError(t, err)
	// From 2.74 on, a server can name its host, and filters run for it.
	c.nova.Microversion = "2.90"
	return c
}

// preparedDisk is the disk of a server that was prepared.
func preparedDisk(c *chain) (file, format string) {
	server := prepared(c.t)
	c.before, c.after = server.Before, server.After
	return server.Overlay, "qcow2"
}

// step is a part of the way that is timed.
func (c *chain) step(name string, part func()) {
	c.t.Helper()
	begin := time.Now()
	part()
	line := fmt.Sprintf("%6.0f s  %5.0f s  %s", time.Since(c.began).Seconds(), time.Since(begin).Seconds(), name)
	c.t.Log(line)
	c.times = append(c.times, line)
}

// both does something to both hosts at the same time.
func (c *chain) both(part func(ctx context.Context, m machine) error) {
	c.t.Helper()
	var steps []service.Step
	for _, m := range c.hosts {
		steps = append(steps, func(ctx context.Context) error { return part(ctx, m) })
	}
	hosttest.NoError(c.t, service.Together(steps...)(c.t.Context()))
}

// gpustack runs the binary outside of the hosts, as the administrator of the cloud.
func (c *chain) gpustack(args ...string) (stdout, stderr string, status int) {
	c.t.Helper()
	cmd := c.administrator(c.t.Context(), programs.Gpustack, args...)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

// administrator is a program outside of the hosts with the credentials of the administrator of the
// cloud. A folder of the test is /var/lib, where gpustack records changes.
func (c *chain) administrator(ctx context.Context, program string, args ...string) *exec.Cmd {
	c.t.Helper()
	const isolate = `mount --bind "$1" /var/lib && shift && exec "$@"`
	lib := filepath.Join(c.dir, "lib")
	hosttest.NoError(c.t, os.MkdirAll(lib, 0o755))
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "sh", "-c", isolate, "sh", lib, program}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "LANG=C.UTF-8"}, c.lab.Env()...)
	return cmd
}

func (c *chain) succeed(args ...string) string {
	c.t.Helper()
	stdout, stderr, status := c.gpustack(args...)
	if status != 0 {
		c.t.Fatalf("%q: exit status %d\n%s%s", args, status, stdout, stderr)
	}
	return stdout
}

// rows asks the database.
func (c *chain) rows(statement string, args ...any) [][]string {
	c.t.Helper()
	rows, err := c.lab.Database.Query(c.t.Context(), fmt.Sprintf(statement, args...))
	hosttest.NoError(c.t, err)
	return rows
}

const devices = "SELECT c.host, p.address, p.status, coalesce(p.instance_uuid, '') FROM nova_cell1.pci_devices p " +
	"JOIN nova_cell1.compute_nodes c ON c.id = p.compute_node_id WHERE p.deleted = 0 ORDER BY 1, 2"

// owners compares the rows of pci_devices with the server that should have both GPUs of each host,
// "" for none.
func (c *chain) owners(gpu1, gpu2 string) string {
	c.t.Helper()
	var want [][]string
	for i, server := range []string{gpu1, gpu2} {
		for _, address := range Addresses {
			status := "allocated"
			if server == "" {
				status = "available"
			}
			want = append(want, []string{c.hosts[i].Host.Name, address, status, server})
		}
	}
	return cmp.Diff(want, c.rows(devices))
}

// configure makes the hosts compute nodes: nova configure on both and on the controller, each from
// inventories, and what must be restarted then.
func (c *chain) configure() {
	t := c.t
	c.both(func(ctx context.Context, m machine) error { return m.Configure(ctx, c.lab) })
	controller := []string{"nova", "configure", "--root", c.lab.Root, "--role", "controller", "--release", c.lab.ReleaseName(), "--yes"}
	for _, m := range c.hosts {
		file := filepath.Join(c.dir, m.Host.Name+".json")
		hosttest.NoError(t, os.WriteFile(file, []byte(m.run("cat", Inventory)), 0o600))
		controller = append(controller, "--inventory", file)
	}
	c.succeed(controller...)
	for _, name := range []string{"nova-scheduler", "nova-api"} {
		hosttest.NoError(t, errors.Join(c.lab.StopService(name), c.lab.StartService(t.Context(), name)))
	}
	c.both(func(ctx context.Context, m machine) error { return m.StartCompute(ctx, c.lab, Addresses) })
	hosttest.NoError(t, c.lab.HostsFound(t.Context(), 4))
	if diff := c.owners("", ""); diff != "" {
		t.Fatalf("pci_devices (-want +got):\n%s", diff)
	}
	// Nova takes a device from libvirt's list of node devices (nova/virt/libvirt/host.py,
	// _get_pcidev_info) and offers it if device_spec matches. The audio functions do not match.
	const origin = "SELECT DISTINCT p.dev_type, p.label, p.parent_addr IS NULL, p.extra_info FROM nova_cell1.pci_devices p"
	hosttest.EqualIn(t, "pci_devices", [][]string{{"type-PCI", "label_10de_11b4", "1", "{}"}}, c.rows(origin))
	for _, row := range c.rows("SELECT address, dev_id FROM nova_cell1.pci_devices") {
		if want := "pci_" + strings.NewReplacer(":", "_", ".", "_").Replace(row[0]); row[1] != want {
			t.Errorf("dev_id %s of %s, libvirt's name is %s", row[1], row[0], want)
		}
	}
}

// A testReport is what flavor test prints.
type testReport struct {
	Verdict string
	Wanted  map[string]int
	Servers []testServer
}

type testServer struct {
	ID, Host, Verdict string
	Reasons, Hints    []string
	Seen              map[string]int
	Unassigned        []string
	Deleted, Freed    *bool
	FreedBy           string `json:"freed_by"`
	Seconds           map[string]float64
	Run               *struct {
		State string
		Exit  *int     `json:"exit_status"`
		Lines []string `json:"output_lines"`
	}
}

// command is what guests run after they have counted: the K4200s that the kernel lists.
const command = `grep -c 10de11b4 /proc/bus/pci/devices; exit 0`

// flavorTest runs flavor test on a host, which prints one document whatever comes of it.
func (c *chain) flavorTest(m machine) (r testReport, text string, status int) {
	c.t.Helper()
	args := []string{
		"flavor", "test", flavor, "--root", c.lab.Root, "--image", LinuxImage, "--host", m.Host.Name, "--wait", "20m",
		"--database", c.lab.Database.URL("nova_cell1"), "--run", command, "--console", "--yes", "-o", "json",
	}
	stdout, stderr, status := c.gpustack(args...)
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || len(r.Servers) != 1 {
		c.t.Fatalf("%q: exit status %d, %v\n%s%s", args, status, err, stdout, stderr)
	}
	return r, stdout + stderr, status
}

// passes: flavor test counts two GPUs in a guest on a host, the guest runs the command, and the
// GPUs are free again.
func (c *chain) passes(m machine) {
	c.t.Helper()
	got, text, status := c.flavorTest(m)
	c.t.Logf("seconds of the test: %v", got.Servers[0].Seconds)
	two, yes := map[string]int{"10de:11b4": 2}, true
	want := testReport{Verdict: "pass", Wanted: two, Servers: []testServer{{
		Host: m.Host.Name, Verdict: "pass", Reasons: []string{}, Hints: []string{}, Seen: two, Unassigned: []string{},
		Deleted: &yes, Freed: &yes, FreedBy: "the database",
	}}}
	if r := got.Servers[0].Run; r == nil || r.State != "ended" || r.Exit == nil || *r.Exit != 0 || strings.Join(r.Lines, "|") != "2" {
		c.t.Errorf("the command: %+v\n%s", r, text)
	}
	got.Servers[0].ID, got.Servers[0].Seconds, got.Servers[0].Run = "", nil, nil
	if diff := cmp.Diff(want, got); diff != "" || status != 0 {
		c.t.Errorf("exit status %d (-want +got):\n%s\n%s", status, diff, text)
	}
	hosttest.EqualIn(c.t, m.Host.Name+" still has domains", "", c.virsh(m, "list", "--all", "--uuid"))
}

// hasNoHost: flavor test on a host whose GPUs are allocated fails, and names the command that finds
// the reason.
func (c *chain) hasNoHost(m machine) {
	c.t.Helper()
	got, text, status := c.flavorTest(m)
	said := strings.Join(slices.Concat(got.Servers[0].Reasons, got.Servers[0].Hints), "\n")
	if status != 2 || got.Verdict != "fail" || !strings.Contains(said, "No valid host was found") || !strings.Contains(said, "gpustack nova explain --flavor "+flavor) {
		c.t.Errorf("exit status %d\n%s", status, text)
	}
}

// explains: nova explain finds that the GPUs of a host are allocated to a server that is elsewhere,
// and has the command that frees them.
func (c *chain) explains(server string, m machine) {
	c.t.Helper()
	stdout, stderr, status := c.gpustack("nova", "explain", "--flavor", flavor, "--host", m.Host.Name, "--conf", "controller="+c.lab.NovaConf,
		"--release", c.lab.ReleaseName(), "-o", "json")
	var r struct {
		Verdict    string
		Judgements []struct {
			Host         string
			FirstFailing string `json:"first_failing"`
			Links        []struct{ Link, Status, Remedy string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		c.t.Fatalf("exit status %d, %v\n%s%s", status, err, stdout, stderr)
	}
	if status != 2 || r.Verdict != "cannot" || len(r.Judgements) != 1 || r.Judgements[0].Host != m.Host.Name || r.Judgements[0].FirstFailing != "rows" {
		c.t.Errorf("exit status %d\n%s%s", status, stdout, stderr)
		return
	}
	for _, link := range r.Judgements[0].Links {
		if link.Link == "rows" && link.Remedy != "gpustack repair-migration --instance "+server {
			c.t.Errorf("remedy %q", link.Remedy)
		}
	}
}

// virsh runs a command of libvirt's in a host, without the user's table frames.
func (c *chain) virsh(m machine, args ...string) string {
	c.t.Helper()
	return strings.TrimSpace(m.run(append([]string{"virsh", "--connect", "qemu:///system"}, args...)...))
}

// boot boots a server from GRUB on a host and returns its id when it is active.
func (c *chain) boot(name string, m machine) string {
	t := c.t
	glance, err := openstack.NewImageV2(c.nova.ProviderClient, gophercloud.EndpointOpts{Region: nova.Region})
	hosttest.NoError(t, err)
	pages, err := images.List(glance, images.ListOpts{Name: GRUBImage}).AllPages(t.Context())
	hosttest.NoError(t, err)
	found, err := images.ExtractImages(pages)
	if err != nil || len(found) != 1 {
		t.Fatalf("%d images, %v", len(found), err)
	}
	id := c.flavorID()
	server, err := servers.Create(t.Context(), c.nova, servers.CreateOpts{
		Name: name, FlavorRef: id, ImageRef: found[0].ID, Networks: "none", HypervisorHostname: m.Host.Name,
	}, nil).Extract()
	hosttest.NoError(t, err)
	c.until("the server is active", func() (bool, string) { return c.status(server.ID, "ACTIVE") })
	c.runs(server.ID, m)
	return server.ID
}

// flavorID is the id of the flavor that gpustack made.
func (c *chain) flavorID() string {
	c.t.Helper()
	rows := c.rows("SELECT flavorid FROM nova_api.flavors WHERE name = '%s'", flavor)
	if len(rows) != 1 {
		c.t.Fatalf("%d flavors are called %s", len(rows), flavor)
	}
	return rows[0][0]
}

// status tells whether a server has a status and no task; ERROR ends the test.
func (c *chain) status(server, status string) (bool, string) {
	c.t.Helper()
	s, err := servers.Get(c.t.Context(), c.nova, server).Extract()
	hosttest.NoError(c.t, err)
	if s.Status == "ERROR" {
		c.t.Fatalf("the server: %+v", s.Fault)
	}
	return s.Status == status && s.TaskState == "", s.Status + " " + s.TaskState
}

// until waits for a condition as long as an emulated host may need.
func (c *chain) until(what string, condition func() (ok bool, got string)) {
	c.t.Helper()
	const patience, beat = 15 * time.Minute, time.Second
	for deadline := time.Now().Add(patience); ; {
		ok, got := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s: not after %s: %s", what, patience, got)
		}
		time.Sleep(beat)
	}
}

// counts: GRUB's lspci, in the guest, lists two functions with the ids of the alias, and nothing
// else of their vendor.
func (c *chain) counts(server string) {
	c.t.Helper()
	var console string
	c.until("the guest has printed its functions", func() (bool, string) {
		out := servers.ShowConsoleOutput(c.t.Context(), c.nova, server, servers.ShowConsoleOutputOpts{})
		console, _ = out.Extract() // none yet
		return strings.Contains(console, "lspci ends"), console
	})
	var seen []string
	for _, line := range strings.FieldsFunc(console, func(r rune) bool { return r == '\r' || r == '\n' }) {
		if fields := strings.Fields(line); len(fields) > 2 && strings.HasPrefix(fields[1], "10de:") {
			seen = append(seen, fields[1]+" "+fields[2])
		}
	}
	if diff := cmp.Diff([]string{"10de:11b4 [0300]", "10de:11b4 [0300]"}, seen); diff != "" {
		c.t.Errorf("GRUB in the guest (-want +got):\n%s\n%s", diff, console)
	}
}

// runs: a server is active on a host, by Nova and by libvirt, and has the host's GPUs.
func (c *chain) runs(server string, m machine) {
	c.t.Helper()
	if ok, got := c.status(server, "ACTIVE"); !ok {
		c.t.Errorf("the server is %s", got)
	}
	hosttest.EqualIn(c.t, "the server is on", m.Host.Name, c.rows("SELECT host FROM nova_cell1.instances WHERE uuid = '%s'", server)[0][0])
	report := c.report(m)
	if len(report.Guests) != 1 || report.Guests[0].UUID == nil || *report.Guests[0].UUID != server {
		c.t.Errorf("guests of %s: %+v", m.Host.Name, report.Guests)
	}
	hosttest.EqualIn(c.t, "functions of the domain on "+m.Host.Name, Addresses, defined(report, server, true))
}

// report is the guest report of a host, which must be complete. Its token makes it evidence
// whatever the clock of the host: the databases have the clock of this machine.
func (c *chain) report(m machine) (r guest.Report) {
	c.t.Helper()
	hosttest.NoError(c.t, json.Unmarshal([]byte(m.run("gpustack", "host", "guests", "--token", guest.NewToken(time.Now()), "-o", "json")), &r))
	if !r.Complete || r.NovaHost == nil || *r.NovaHost != m.Host.Name || len(r.NovaCompute) != 1 {
		c.t.Errorf("report of %s: %+v", m.Host.Name, r)
	}
	return r
}

// defined returns the functions of a server's domain, if a host has one that runs, or does not.
func defined(r guest.Report, server string, running bool) (functions []string) {
	for _, d := range r.Domains {
		if d.UUID == server && d.Running == running {
			for _, f := range d.Functions {
				functions = append(functions, f.String())
			}
		}
	}
	return functions
}

// reports are arguments of repair-migration: the guest reports of both hosts, of now.
func (c *chain) reports() (args []string) {
	c.t.Helper()
	for _, m := range c.hosts {
		text, err := evidence.Printed(c.report(m))
		hosttest.NoError(c.t, err)
		file := filepath.Join(c.dir, m.Host.Name+"-guests.json")
		hosttest.NoError(c.t, os.WriteFile(file, text, 0o600))
		args = append(args, "--guests", file)
	}
	return args
}

// assigned compares what Nova and libvirt made of a server with two GPUs with README.md.
func (c *chain) assigned(m machine, server string) {
	t := c.t
	domain := c.virsh(m, "dumpxml", server)
	if n := strings.Count(domain, "<hostdev mode='subsystem' type='pci' managed='yes'>"); n != 2 {
		t.Errorf("%d managed functions:\n%s", n, domain)
	}
	report := c.report(m)
	var functions []string
	for _, h := range report.Holders {
		for _, f := range h.Functions {
			functions = append(functions, f.String())
		}
	}
	slices.Sort(functions)
	// The whole group is the guest's, and the guest has only the display function of it.
	hosttest.EqualIn(t, "functions of groups that the guest has open", []string{"0000:01:00.0", "0000:01:00.1", "0000:02:00.0", "0000:02:00.1"}, functions)
	state, err := m.State(t.Context())
	hosttest.NoError(t, err)
	for _, function := range functions {
		hosttest.EqualIn(t, function+" is bound to", "vfio-pci", state.Drivers[function])
		want := "bus\n"
		if !slices.Contains(Addresses, function) {
			want = "none\n"
		}
		hosttest.EqualIn(t, "reset methods of "+function, want, m.run("sh", "-c", `cat "$0" || echo none`, "/sys/bus/pci/devices/"+function+"/reset_method"))
	}
	// libvirt permits the guest's memory and 1 GiB (qemuDomainGetMemLockLimitBytes), and VFIO locks
	// the guest's memory: with QEMU 10, 256 KiB more than that.
	const guestMemory, more = 192 << 10, 1 << 10 // kB
	limits := m.run("sh", "-ec", "prlimit --noheadings --raw --output SOFT --memlock --pid $0; grep VmLck /proc/$0/status", fmt.Sprint(report.Guests[0].PID))
	var permitted, locked int
	if _, err := fmt.Sscanf(limits, "%d\nVmLck: %d kB", &permitted, &locked); err != nil || permitted != guestMemory<<10+1<<30 || locked < guestMemory ||
		locked > guestMemory+more {
		t.Errorf("locked memory %q, %v", limits, err)
	}
}

// act posts an action of a server, which gophercloud has no function for.
func (c *chain) act(server string, action map[string]any) {
	c.t.Helper()
	_, err := c.nova.Post(c.t.Context(), c.nova.ServiceURL("servers", server, "action"), action, nil, &gophercloud.RequestOpts{OkCodes: []int{202}})
	hosttest.NoError(c.t, err)
}

func (c *chain) moveTo(server string, m machine) {
	c.t.Helper()
	c.act(server, map[string]any{"migrate": map[string]string{"host": m.Host.Name}})
}

// failToMigrate moves a server to a host that the source cannot log in to by ssh, as nova-compute
// does to copy the disk. Nova puts the server back, and leaves the destination's GPUs allocated.
func (c *chain) failToMigrate(server string, to machine) {
	t := c.t
	c.moveTo(server, to)
	c.until("the migration has failed", func() (bool, string) {
		rows := c.rows("SELECT m.status, i.vm_state, coalesce(i.task_state, '') FROM nova_cell1.migrations m " +
			"JOIN nova_cell1.instances i ON i.uuid = m.instance_uuid ORDER BY m.id DESC LIMIT 1")
		return len(rows) == 1 && slices.Equal(rows[0], []string{"error", "active", ""}), fmt.Sprint(rows)
	})
	c.hosts[0].run("grep", "--quiet", "Resize error: not able to execute ssh command", "/var/log/nova/nova-compute.log")
	if diff := c.owners(server, server); diff != "" {
		t.Errorf("pci_devices (-want +got):\n%s", diff)
	}
	c.runs(server, c.hosts[0])
}

// A finding of repair-migration.
type finding struct {
	Host, Case, Verdict, Repair, Leaves string
	Device                              struct{ Address string }
}

// judge runs repair-migration and returns its findings, with what the exit status must be.
func (c *chain) judge(want []string, wantStatus int, args ...string) []finding {
	c.t.Helper()
	findings, got, said, status := c.find(args...)
	if diff := cmp.Diff(want, got); diff != "" || status != wantStatus {
		c.t.Errorf("%q: exit status %d, want %d (-want +got):\n%s\n%s", args, status, wantStatus, diff, said)
	}
	return findings
}

// proved waits until reports of the hosts prove findings: a report proves nothing about a change
// that another clock dated less than half a minute before its token.
func (c *chain) proved(want []string) {
	c.t.Helper()
	c.until("the reports are late enough to prove", func() (bool, string) {
		_, got, said, _ := c.find(c.reports()...)
		return slices.Equal(want, got), said
	})
}

// find runs repair-migration and returns its findings, also as lines, what it said and its status.
func (c *chain) find(args ...string) (findings []finding, lines []string, said string, status int) {
	c.t.Helper()
	args = append([]string{"repair-migration", "--root", c.lab.Root, "-o", "json"}, args...)
	stdout, stderr, status := c.gpustack(args...)
	var r struct{ Findings []finding }
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		c.t.Fatalf("%q: exit status %d, %v\n%s%s", args, status, err, stdout, stderr)
	}
	lines = []string{}
	for _, f := range r.Findings {
		lines = append(lines, fmt.Sprintf("%s %s %s %s", f.Host, f.Device.Address, f.Case, f.Verdict))
	}
	return r.Findings, lines, stdout + stderr, status
}

// each is a line for both GPUs of a host.
func each(m machine, line string) (lines []string) {
	for _, address := range Addresses {
		lines = append(lines, m.Host.Name+" "+address+" "+line)
	}
	return lines
}

// repair frees the GPUs that a failed migration to a host has left: nothing without the reports of
// the hosts, and with them while the server runs on.
func (c *chain) repair(server string, to machine) {
	c.judge(each(to, "B unknown"), 2)
	c.proved(each(to, "B stale"))
	c.judge(each(to, "B stale"), 2, c.reports()...)
	c.judge([]string{}, 0, append(c.reports(), "--apply", "--yes")...)
	if diff := c.owners(server, ""); diff != "" {
		c.t.Errorf("pci_devices (-want +got):\n%s", diff)
	}
	c.runs(server, c.hosts[0])
}

// letIn gives nova-compute of each host a key for the other.
func (c *chain) letIn() {
	for i, m := range c.hosts {
		hosttest.NoError(c.t, m.LetIn(c.t.Context(), c.hosts[1-i].Machine))
	}
}

// migrate moves a server to a host by a cold migration, which waits to be confirmed then. A resize
// is the same to Nova.
func (c *chain) migrate(server string, to machine) {
	c.t.Helper()
	c.moveTo(server, to)
	c.until("the server waits to be confirmed", func() (bool, string) {
		if ok, got := c.status(server, "ACTIVE"); ok {
			c.t.Fatalf("the migration to %s has failed: %s", to.Host.Name, got)
		}
		return c.status(server, "VERIFY_RESIZE")
	})
}

// awaitsConfirmation: the source keeps the domain of the server with its GPUs, defined and not
// running, and nothing is wrong with that.
func (c *chain) awaitsConfirmation(server string, from, to machine) {
	t := c.t
	source, dest := c.report(from), c.report(to)
	if diff := cmp.Diff(Addresses, defined(source, server, false)); diff != "" || len(source.Guests) > 0 || len(source.Holders) > 0 {
		t.Errorf("source (-want +got):\n%s\n%+v", diff, source)
	}
	if diff := cmp.Diff(Addresses, defined(dest, server, true)); diff != "" || len(dest.Guests) != 1 {
		t.Errorf("destination (-want +got):\n%s\n%+v", diff, dest)
	}
	c.judge([]string{}, 0, append(c.reports(), "--apply", "--yes")...)
	if diff := c.owners(server, server); diff != "" {
		t.Errorf("pci_devices (-want +got):\n%s", diff)
	}
}

// confirmedByRepair: an operator has reset the state of a server that waits to be confirmed, which
// can no longer be confirmed then. The domain that is left on the source is no use of its GPUs, and
// the repair confirms the migration. What it says is left is there, and its command removes it.
func (c *chain) confirmedByRepair(server string, from, to machine) {
	t := c.t
	hosttest.NoError(t, servers.ResetState(t.Context(), c.nova, server, servers.StateActive).ExtractErr())
	c.judge(each(from, "S unknown"), 2)
	c.proved(each(from, "S stale"))
	found := c.judge(each(from, "S stale"), 2, c.reports()...)
	undefine, folder := "virsh undefine "+server+" --managed-save --nvram", server+"_resize"
	if len(found) == 0 || !strings.Contains(found[0].Leaves, undefine) || !strings.Contains(found[0].Leaves, folder) {
		t.Errorf("what is left: %+v", found)
	}
	c.judge([]string{}, 0, append(c.reports(), "--apply", "--yes")...)
	if diff := c.owners("", server); diff != "" {
		t.Errorf("pci_devices (-want +got):\n%s", diff)
	}
	from.run("sh", "-ec", undefine+"; rm -r /var/lib/nova/instances/"+folder)
	hosttest.EqualIn(t, from.Host.Name+" still has domains", "", c.virsh(from, "list", "--all", "--uuid"))
	c.runs(server, to)
}

// revert takes a migration back: the server is on its source again, and the destination has
// neither its domain nor an allocation.
func (c *chain) revert(server string, from, source machine) {
	c.t.Helper()
	c.act(server, map[string]any{"revertResize": nil})
	c.until("the server is back", func() (bool, string) { return c.status(server, "ACTIVE") })
	c.until("its GPUs on the destination are free", func() (bool, string) {
		diff := c.owners("", server)
		return diff == "", diff
	})
	c.runs(server, source)
	hosttest.EqualIn(c.t, from.Host.Name+" still has domains", "", c.virsh(from, "list", "--all", "--uuid"))
	c.judge([]string{}, 0)
}

// remove deletes the server: all GPUs are free, bound to vfio-pci, and the hosts are ready.
func (c *chain) remove(server string) {
	t := c.t
	hosttest.NoError(t, servers.Delete(t.Context(), c.nova, server).ExtractErr())
	c.until("all GPUs are free", func() (bool, string) {
		diff := c.owners("", "")
		return diff == "", diff
	})
	for _, m := range c.hosts {
		if r := c.report(m); len(r.Guests)+len(r.Domains)+len(r.Holders) > 0 {
			t.Errorf("%s has guests: %+v", m.Host.Name, r)
		}
		if err := m.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		// libvirt has bound nothing to another driver than before the first guest.
		if state, err := m.State(t.Context()); err != nil {
			t.Error(err)
		} else if diff := cmp.Diff(c.after, state); diff != "" {
			t.Errorf("%s differs from before its first guest (-before +now):\n%s", m.Host.Name, diff)
		}
	}
	c.judge([]string{}, 0)
}

// undo undoes all on the hosts and what can be undone on the controller: all but repairs that Nova
// has acted on.
func (c *chain) undo() {
	t := c.t
	c.both(func(ctx context.Context, m machine) error { return m.Undo(ctx, c.before) })
	for _, m := range c.hosts {
		if left := states(t, m.run("gpustack", "history", "-o", "json")); len(left) < 2 || slices.ContainsFunc(left, func(s string) bool { return s != "undone" }) {
			t.Errorf("history of %s: %q", m.Host.Name, left)
		}
	}
	c.succeed("undo", "--yes")
	if rows := c.rows("SELECT name FROM nova_api.flavors"); len(rows) > 0 {
		t.Errorf("flavors: %q", rows)
	}
	c.succeed("undo", "--root", c.lab.Root, "--yes", "1")
	conf := hosttest.Read(t, c.lab.NovaConf)
	if strings.Contains(conf, "[pci]") {
		t.Errorf("nova.conf of the controller:\n%s", conf)
	}
}

// states are the statuses of the entries of a journal.
func states(t *testing.T, history string) (states []string) {
	t.Helper()
	var h struct{ Entries []struct{ Status string } }
	if err := json.Unmarshal([]byte(history), &h); err != nil {
		t.Fatalf("%v\n%s", err, history)
	}
	for _, e := range h.Entries {
		states = append(states, e.Status)
	}
	return states
}
