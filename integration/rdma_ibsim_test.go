package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// umad2sim is the library that plays the sysfs and the umad devices of a host of ibsim's fabric.
const umad2sim = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so"

// fabric is a fabric of ibsim.
type fabric struct {
	t   *testing.T
	dir string
	env []string
}

// start starts a program that runs until the test ends.
func (f *fabric) start(dir string, env []string, program string, args ...string) *exec.Cmd {
	f.t.Helper()
	log, err := os.Create(filepath.Join(f.dir, program+"-"+strconv.FormatInt(time.Now().UnixNano(), 36)+".log"))
	hosttest.NoError(f.t, err)
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(slices.Clone(f.env), env...), log, log
	if err := cmd.Start(); err != nil {
		f.t.Fatalf("%v (make integration runs the tests where all that they need is installed)", err)
	}
	f.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		log.Close()
	})
	return cmd
}

// on returns the environment of a program on a host of the fabric.
func on(name string) []string { return []string{"SIM_HOST=" + name, "LD_PRELOAD=" + umad2sim} }

// ask runs a program on a host of the fabric.
func (f *fabric) ask(name, program string) string {
	f.t.Helper()
	cmd := exec.Command(program)
	cmd.Dir, cmd.Env = f.dir, append(slices.Clone(f.env), on(name)...)
	stdout, stderr, status := try(f.t, cmd)
	if status != 0 {
		f.t.Logf("%s on %s: exit status %d: %s", program, name, status, stderr)
	}
	return stdout
}

// simPort is a port as ibstat and as gpustack show it.
type simPort struct {
	NodeGUID, PortGUID, State, Physical, Rate string
	LID, SMLID, CapMask                       int
}

var ibstatLine = regexp.MustCompile(`(?m)^\s*([A-Z][^:\n]*): (.*)$`)

// ibstat returns the port of a host as ibstat shows it.
func (f *fabric) ibstat(name string) simPort {
	f.t.Helper()
	out, values := f.ask(name, "ibstat"), map[string]string{}
	for _, m := range ibstatLine.FindAllStringSubmatch(out, -1) {
		values[m[1]] = m[2]
	}
	number := func(key string) int {
		n, err := strconv.ParseInt(values[key], 0, 64)
		if err != nil {
			f.t.Fatalf("%s: %v in:\n%s", key, err, out)
		}
		return int(n)
	}
	guid := func(key string) string {
		digits := strings.TrimPrefix(values[key], "0x")
		return strings.Join(regexp.MustCompile("..").FindAllString(digits, -1), ":")
	}
	states := map[string]string{"Initializing": "INIT", "Active": "ACTIVE"}
	return simPort{guid("Node GUID"), guid("Port GUID"), states[values["State"]], values["Physical state"], values["Rate"], number("Base lid"), number("SM lid"), number("Capability mask")}
}

// tree returns a root with the sysfs that a host of the fabric has now. It is that of a process: it
// is made when the process opens a umad device, and does not change afterwards.
func (f *fabric) tree(name string) string {
	f.t.Helper()
	dir := f.t.TempDir()
	client := f.start(dir, on(name), "ibping", "-S")
	root := filepath.Join(dir, fmt.Sprintf("sys-%d", client.Process.Pid))
	port := filepath.Join(root, "sys/class/infiniband/ibsim0/ports/1")
	await(f.t, filepath.Join(root, "sys/class/infiniband_mad/issm0/ibdev")) // the last one
	// ibsim has not the file link_layer, which kernels have since 2.6.37, and no distribution.
	hosttest.NoError(f.t, os.WriteFile(filepath.Join(port, "link_layer"), []byte("InfiniBand\n"), 0o644))
	hosttest.NoError(f.t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	hosttest.NoError(f.t, os.WriteFile(filepath.Join(root, "etc/os-release"), []byte("ID=debian\n"), 0o644))
	return root
}

// scanned returns the port of a tree as rdma scan shows it.
func scanned(t *testing.T, root string) simPort {
	t.Helper()
	var report struct {
		Adapters []struct {
			NodeGUID string `json:"node_guid"`
			Ports    []struct {
				State, Rate string
				Physical    string `json:"phys_state"`
				PortGUID    string `json:"port_guid"`
				LID         int    `json:"lid"`
				SMLID       int    `json:"sm_lid"`
				CapMask     int    `json:"cap_mask"`
			} `json:"ports"`
		} `json:"adapters"`
	}
	out := run(t, gpustack, "rdma", "scan", "--root", root, "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Adapters) != 1 || len(report.Adapters[0].Ports) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	a, p := report.Adapters[0], report.Adapters[0].Ports[0]
	rate, _, _ := strings.Cut(p.Rate, " ") // ibstat prints Gb/s
	return simPort{a.NodeGUID, p.PortGUID, p.State, p.Physical, rate, p.LID, p.SMLID, p.CapMask}
}

// TestRDMAFabric: a fabric of two hosts, before and after a subnet manager configures it: rdma scan
// against ibstat, and rdma check names the missing subnet manager. ibhosts lists both hosts.
func TestRDMAFabric(t *testing.T) {
	t.Parallel()
	f := &fabric{t: t, dir: t.TempDir()}
	f.env = append(os.Environ(), "IBSIM_SOCKNAME=gpustack-"+strconv.Itoa(os.Getpid()), "OSM_CACHE_DIR="+f.dir, "OSM_TMP_DIR="+f.dir)
	net := filepath.Join(f.dir, "net")
	hosttest.NoError(t,
		os.WriteFile(net, []byte("Switch 4 \"S1\"\n[1] \"H1\"[1]\n[2] \"H2\"[1]\n\nHca 1 \"H1\"\n[1] \"S1\"[1]\n\nHca 1 \"H2\"\n[1] \"S1\"[2]\n"), 0o644))
	f.start(f.dir, nil, "ibsim", "-n", "-s", net)
	for end := time.Now().Add(time.Minute); f.ask("H1", "ibstat") == ""; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("ibsim does not serve")
		}
	}
	hosts := []string{"H1", "H2"}
	check := func(root string) (status, seen string) {
		t.Helper()
		out, _, _ := try(t, exec.Command(gpustack, "rdma", "check", "--root", root, "-o", "json"))
		var report struct {
			Findings []struct{ Check, Status, Seen string }
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, f := range report.Findings {
			if f.Check == "ports" {
				return f.Status, f.Seen
			}
		}
		t.Fatalf("no check of ports: %s", out)
		return "", ""
	}
	for _, name := range hosts {
		want, root := f.ibstat(name), f.tree(name)
		if diff := cmp.Diff(want, scanned(t, root)); diff != "" || want.State != "INIT" || want.SMLID != 0 {
			t.Errorf("%s without a subnet manager (-ibstat +gpustack): %s%+v", name, diff, want)
		}
		if status, seen := check(root); status != "fail" || !strings.Contains(seen, "no subnet manager") {
			t.Errorf("%s: %s: %s", name, status, seen)
		}
	}
	manager := f.ibstat("H1").PortGUID
	f.start(f.dir, on("H1"), "opensm", "-e", "-f", filepath.Join(f.dir, "opensm.log"), "-g", "0x"+strings.ReplaceAll(manager, ":", ""))
	listed := ""
	for _, name := range hosts {
		for end := time.Now().Add(time.Minute); f.ibstat(name).State != "ACTIVE"; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("opensm does not activate the port of %s", name)
			}
		}
		want, root := f.ibstat(name), f.tree(name)
		if diff := cmp.Diff(want, scanned(t, root)); diff != "" || want.LID == 0 || want.SMLID == 0 {
			t.Errorf("%s with a subnet manager (-ibstat +gpustack): %s%+v", name, diff, want)
		}
		if status, seen := check(root); status != "pass" {
			t.Errorf("%s: %s: %s", name, status, seen)
		}
		listed += fmt.Sprintf("Ca\t: 0x%s ports 1 %q\n", strings.ReplaceAll(want.NodeGUID, ":", ""), name)
	}
	hosttest.EqualIn(t, "ibhosts", listed, f.ask("H2", "ibhosts"))
}
