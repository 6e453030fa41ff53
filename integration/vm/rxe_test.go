package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/rdma"
	"gpustack/host/rdma/trial"
	"gpustack/integration/vm/agent"
)

// rdmaInitramfs is what machines with an RDMA adapter start with.
var rdmaInitramfs = sync.OnceValues(func() (string, error) {
	name := filepath.Join(scratch, "initramfs-rdma")
	return name, writeRDMAInitramfs(context.Background(), name, initramfs, linux)
})

// withRDMA starts a machine whose network interface eth0 has an IPv4 address, the last number of
// which has two digits, and an RDMA device, rxe0.
func withRDMA(t *testing.T, name, address, netdev string) machine {
	t.Helper()
	initramfs, err := rdmaInitramfs()
	hosttest.NoError(t, err)
	topology := Topology{Name: name, CPU: intel, Devices: own("e1000,romfile=,netdev=cable,mac=52:54:00:00:00:" + address[len(address)-2:])}
	m := start(t, topology, append(fromMemory(linux, initramfs, topology), "-netdev", netdev))
	m.run("sh", "-ec", `
modprobe rdma_rxe; modprobe rdma_ucm; modprobe ib_umad
ip link set lo up; ip link set eth0 up; ip address add $1/24 dev eth0
rdma link add rxe0 type rxe netdev eth0
`+untilActive, "sh", address)
	return m
}

// untilActive waits until the port of rxe0 can be used.
const untilActive = `
for i in 1 2 3 4 5 6 7 8 9 10; do
	case $(cat /sys/class/infiniband/rxe0/ports/1/state) in *ACTIVE) break ;; esac
	sleep 0.5
done
`

// TestRDMA holds what gpustack says of an RDMA device of a real kernel against what the programs of
// rdma-core, iproute2 and infiniband-diags say of it.
func TestRDMA(t *testing.T) {
	t.Parallel() // a machine keeps one processor busy
	m := withRDMA(t, "rdma", rdmaAddress, "hubport,id=cable,hubid=0")
	for _, c := range []check{
		{"rdma scan", rdmaScanIsTheKernels},
		{"rdma check", rdmaIsReady},
		{"rdma test", rdmaPasses},
		{"containers", rdmaContainers},
		{"causes", rdmaCauses},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(machine{m.Machine, t}) })
	}
}

const rdmaAddress = "192.168.77.11"

// rdmaScanned is what rdma scan -o json prints, as far as it is looked at here.
type rdmaScanned struct {
	Netns    string           `json:"netns"`
	Adapters []scannedAdapter `json:"adapters"`
	Warnings []string         `json:"warnings"`
}

type scannedAdapter struct {
	Name, Parent string
	NodeGUID     rdma.GUID `json:"node_guid"`
	SysImageGUID rdma.GUID `json:"sys_image_guid"`
	Ports        []struct {
		State     string     `json:"state"`
		PhysState string     `json:"phys_state"`
		LinkLayer string     `json:"link_layer"`
		Rate      string     `json:"rate"`
		LID       int        `json:"lid"`
		SMLID     int        `json:"sm_lid"`
		CapMask   uint32     `json:"cap_mask"`
		GIDs      []rdma.GID `json:"gids"`
	} `json:"ports"`
	Warnings []string `json:"warnings"`
}

func (m machine) rdmaScan() (s rdmaScanned) {
	m.t.Helper()
	hosttest.NoError(m.t, json.Unmarshal([]byte(m.run("gpustack", "rdma", "scan", "-o", "json", "--gids")), &s))
	return s
}

// fields returns the values of a program's "name: value" lines.
func fields(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			values[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return values
}

// gidLine is a line of ibv_devinfo.
var gidLine = regexp.MustCompile(`GID\[.*`)

func rdmaScanIsTheKernels(m machine) {
	s := m.rdmaScan()
	if len(s.Adapters) != 1 || len(s.Adapters[0].Ports) != 1 || len(s.Warnings)+len(s.Adapters[0].Warnings) > 0 {
		m.t.Fatalf("%+v", s)
	}
	a, p := s.Adapters[0], s.Adapters[0].Ports[0]
	verbs, stat := fields(m.run("ibv_devinfo", "-v")), fields(m.run("ibstat", "rxe0"))
	var links []struct {
		Name     string `json:"ifname"`
		Port     int    `json:"port"`
		State    string `json:"state"`
		Physical string `json:"physical_state"`
		Netdev   string `json:"netdev"`
	}
	if err := json.Unmarshal([]byte(m.run("rdma", "-j", "link")), &links); err != nil || len(links) != 1 {
		m.t.Fatalf("%+v, %v", links, err)
	}
	var devices []struct {
		NodeGUID string `json:"node_guid"`
		System   string `json:"sys_image_guid"`
	}
	if err := json.Unmarshal([]byte(m.run("rdma", "-j", "dev")), &devices); err != nil || len(devices) != 1 {
		m.t.Fatalf("%+v, %v", devices, err)
	}
	guid := func(g rdma.GUID) string { return fmt.Sprintf("%x:%x:%x:%x", g[:2], g[2:4], g[4:6], g[6:]) }
	gids := strings.Join(gidLine.FindAllString(m.run("ibv_devinfo", "-v"), -1), "\n")
	var scanned []string
	for _, g := range p.GIDs {
		scanned = append(scanned, fmt.Sprintf("GID[%3d]:\t\t%s, %s", g.Index, g.GID, g.Type))
		if g.Netdev != links[0].Netdev {
			m.t.Errorf("GID %d: %s, rdma link has %s", g.Index, g.Netdev, links[0].Netdev)
		}
	}
	for _, c := range []struct{ what, got, want string }{
		{"name, ibv_devinfo", a.Name, verbs["hca_id"]},
		{"name, rdma link", a.Name, links[0].Name},
		{"network interface, rdma link", a.Parent, links[0].Netdev},
		{"node GUID, ibv_devinfo", guid(a.NodeGUID), verbs["node_guid"]},
		{"node GUID, ibstat", fmt.Sprintf("%#x", a.NodeGUID[:]), stat["Node GUID"]},
		{"node GUID, rdma dev", guid(a.NodeGUID), devices[0].NodeGUID},
		{"system image GUID, ibv_devinfo", guid(a.SysImageGUID), verbs["sys_image_guid"]},
		{"system image GUID, rdma dev", guid(a.SysImageGUID), devices[0].System},
		{"state, ibv_devinfo", "PORT_" + p.State + " (4)", verbs["state"]},
		{"state, rdma link", p.State, links[0].State},
		{"state, ibstat", p.State, strings.ToUpper(stat["State"])},
		{"physical state, rdma link", strings.ToUpper(p.PhysState), strings.ReplaceAll(links[0].Physical, "_", "")},
		{"physical state, ibstat", p.PhysState, stat["Physical state"]},
		{"link layer, ibv_devinfo", p.LinkLayer, verbs["link_layer"]},
		{"GIDs, ibv_devinfo", strings.Join(scanned, "\n"), gids},
		{"LID, ibv_devinfo", fmt.Sprint(p.LID), verbs["port_lid"]},
		{"LID of the subnet manager, ibv_devinfo", fmt.Sprint(p.SMLID), verbs["sm_lid"]},
		{"capabilities, ibv_devinfo", fmt.Sprintf("%#08x", p.CapMask), verbs["port_cap_flags"]},
		{"rate, ibstat", strings.Fields(p.Rate)[0], stat["Rate"]},
		{"namespaces, rdma system", "netns " + s.Netns + " copy-on-fork on", strings.TrimSpace(m.run("rdma", "system"))},
	} {
		if c.got != c.want {
			m.t.Errorf("%s: rdma scan has %q, the program %q", c.what, c.got, c.want)
		}
	}
}

// rdmaChecked is what rdma check -o json prints, as far as it is looked at here.
type rdmaChecked struct {
	Verdict  string         `json:"verdict"`
	Findings []host.Finding `json:"findings"`
	Warnings []string       `json:"warnings"`
}

// rdmaCheck returns the findings that are not passed.
func (m machine) rdmaCheck(within ...string) (verdict string, notable []host.Finding) {
	m.t.Helper()
	reply := m.try(append(within, "gpustack", "rdma", "check", "-o", "json")...)
	var c rdmaChecked
	if err := json.Unmarshal([]byte(reply.Stdout), &c); err != nil {
		m.t.Fatalf("%v: %s", err, reply.Stderr)
	}
	for _, f := range c.Findings {
		if f.Status == host.Fail || f.Status == host.Warn {
			notable = append(notable, f)
		}
	}
	return c.Verdict, notable
}

// rdmaIsReady: nothing is wrong with the device, but that the machine has no limits.conf.
func rdmaIsReady(m machine) {
	verdict, findings := m.rdmaCheck()
	var names []string
	for _, f := range findings {
		names = append(names, string(f.Status)+" "+f.Check)
	}
	if diff := cmp.Diff([]string{"warn memlock"}, names); diff != "" || verdict != "ready" {
		m.t.Errorf("%s (-want +got):\n%s", verdict, diff)
	}
}

// rdmaTested is what rdma test -o json prints, as far as it is looked at here.
type rdmaTested struct {
	Program string `json:"program"`
	Verdict string `json:"verdict"`
	Tests   []struct {
		Name       string          `json:"name"`
		IP         string          `json:"ip"`
		Iterations int             `json:"iterations"`
		Bytes      int64           `json:"bytes"`
		Counters   []trial.Counter `json:"counters"`
		Carried    *bool           `json:"packets_counted"`
		Causes     []trial.Cause   `json:"causes"`
		Devices    []string        `json:"container_devices"`
		Hardware   struct {
			Driver string    `json:"driver"`
			Port   *struct{} `json:"port_capacity"`
			Link   *struct{} `json:"pcie_capacity"`
		} `json:"measured_on"`
		Figures []struct {
			Program    string `json:"program"`
			Contained  bool   `json:"in_container"`
			Bytes      int    `json:"message_bytes"`
			Iterations int    `json:"iterations"`
			Bandwidth  *struct {
				Average float64  `json:"average_mb_per_second"`
				OfPort  *float64 `json:"percent_of_port"`
				OfLink  *float64 `json:"percent_of_pcie_link"`
			} `json:"bandwidth"`
			Latency *struct {
				Typical float64 `json:"typical_us"`
				P99     float64 `json:"ninety_ninth_percentile_us"`
			} `json:"latency"`
		} `json:"measurements"`
	} `json:"tests"`
}

func tested(t *testing.T, r agent.Reply) (tested rdmaTested) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Stdout), &tested); err != nil || len(tested.Tests) != 1 {
		t.Fatalf("exit status %d, %v: %s%s", r.Status, err, r.Stdout, r.Stderr)
	}
	return tested
}

// rdmaPasses: a real rping moves data, and the counters of the port tell.
func rdmaPasses(m machine) {
	got := tested(m.t, m.try("gpustack", "rdma", "test", "-o", "json", "--iterations", "3", "--size", "4096", "--wait", patience))
	one := got.Tests[0]
	if got.Verdict != "pass" || one.Name != "rxe0" || one.IP != rdmaAddress || one.Iterations != 3 || one.Bytes < 3*4096 || one.Carried == nil || !*one.Carried {
		m.t.Errorf("%+v", got)
	}
	if !slices.ContainsFunc(one.Counters, func(c trial.Counter) bool { return c.Name == "sent_pkts" && c.Delta >= 3*4 && !c.Error }) {
		m.t.Errorf("counters: %+v", one.Counters)
	}
}

// rdmaCauses breaks the machine in the ways that docs/rdma.md lists: each time a program says the
// words that are quoted there, and rdma check and rdma test name the cause.
func rdmaCauses(m machine) {
	for _, row := range []struct {
		name, make, program string // in a shell
		user                uint32
		words               []string // of the program
		check, seen         string   // what rdma check finds
		test                string   // what rdma test says; "" if it is not asked
		mend                string
	}{
		{
			name: "rdma_cm has no node", make: "busybox mv /dev/infiniband/rdma_cm /dev/away", program: "rping -s -C 1",
			words: []string{"failed to create RDMA CM event channel: No such file or directory"},
			check: "fail nodes", seen: "/dev/infiniband/rdma_cm is missing", test: "/dev/infiniband/rdma_cm is missing",
			mend: "busybox mv /dev/away /dev/infiniband/rdma_cm",
		},
		{
			// rdma-core's library has the kernel load it.
			name: "rdma_ucm is not loaded, and missing", make: "busybox rmmod rdma_ucm; busybox mv " + rdmaUCM + " /etc/away", program: "rping -s -C 1",
			words: []string{"failed to create RDMA CM event channel: No such file or directory"},
			check: "fail modules", seen: "rdma_ucm is not loaded", test: "modprobe rdma_ucm",
			mend: "busybox mv /etc/away " + rdmaUCM + "; modprobe rdma_ucm",
		},
		{
			name: "uverbs has no node", make: "busybox mv /dev/infiniband/uverbs0 /dev/away", program: "ibv_devinfo; rping -s -C 1",
			words: []string{"No IB devices found", "No RDMA devices were detected"},
			check: "fail nodes", seen: "/dev/infiniband/uverbs0 is missing", test: "No RDMA devices were detected",
			mend: "busybox mv /dev/away /dev/infiniband/uverbs0",
		},
		{
			name: "uverbs is denied", make: "busybox chmod 0600 /dev/infiniband/uverbs0", program: "ibv_devinfo", user: 1000,
			words: []string{"Failed to open device"},
			check: "warn nodes", seen: "0600",
			mend: "busybox chmod 0666 /dev/infiniband/uverbs0",
		},
		{
			name: "rdma_cm is denied", make: "busybox chmod 0600 /dev/infiniband/rdma_cm", program: "rping -s -C 1; gpustack rdma test", user: 1000,
			// librdmacm has no other words for a node that is denied.
			words: []string{"failed to create RDMA CM event channel: No such file or directory", "/dev/infiniband/rdma_cm is missing or cannot be opened"},
			check: "warn nodes", seen: "0600",
			mend: "busybox chmod 0666 /dev/infiniband/rdma_cm",
		},
		{
			name: "umad has no node", make: "busybox mv /dev/infiniband/umad0 /dev/away", program: "ibhosts",
			words: []string{"can't open UMAD port ((null):0)", "can't open MAD port ((null):0)"},
			check: "fail nodes", seen: "/dev/infiniband/umad0 is missing",
			mend: "busybox mv /dev/away /dev/infiniband/umad0",
		},
		{
			name: "no fabric to manage", program: "ibhosts",
			words: []string{"mad_rpc_open_port: client_register for mgmt 1 failed"},
		},
		{
			name: "no driver file", make: "busybox mv /etc/libibverbs.d/rxe.driver /etc/away", program: "ibv_devinfo",
			words: []string{"No IB devices found"},
			check: "fail providers", seen: "rxe", test: "No RDMA devices were detected",
			mend: "busybox mv /etc/away /etc/libibverbs.d/rxe.driver",
		},
		{
			name: "no provider", make: "busybox mv " + rdmaProvider + " /etc/away", program: "ibv_devinfo",
			words: []string{"libibverbs: Warning: couldn't load driver 'librxe-rdmav34.so'", "cannot open shared object file"},
			check: "fail providers", seen: "librxe-rdmav34.so", test: "couldn't load driver",
			mend: "busybox mv /etc/away " + rdmaProvider,
		},
		{
			name: "a provider of another release", make: "busybox mv " + rdmaProvider + " " + otherProvider, program: "ibv_devinfo",
			words: []string{"libibverbs: Warning: couldn't load driver 'librxe-rdmav34.so'"},
			check: "fail providers", seen: "34", test: "couldn't load driver",
			mend: "busybox mv " + otherProvider + " " + rdmaProvider,
		},
		{
			name: "locked memory is limited", program: "ulimit -l 16; ibv_devinfo; rping -s -C 1 & rping -c -a " + rdmaAddress + " -C 1 -S 60000; kill $!", user: 1000,
			words: []string{"RLIMIT_MEMLOCK is 16384 bytes. This will severely limit memory registrations.", "reg_mr failed"},
			check: "warn memlock", seen: "limit",
		},
		{
			name: "another namespace, shared", program: "busybox unshare -n sh -c 'ibv_devinfo; rping -s -a " + rdmaAddress + " -C 1; rping -c -a " + rdmaAddress + " -C 1'",
			words: []string{"hca_id", "rdma_bind_addr: Cannot assign requested address", "rdma_resolve_addr: Network is unreachable"},
		},
		{
			name: "another namespace, exclusive", make: "rdma system set netns exclusive",
			program: "busybox unshare -n -m sh -c 'busybox mount -t sysfs sysfs /sys; ibv_devinfo; cat /dev/infiniband/uverbs0; gpustack rdma check'",
			words:   []string{"No IB devices found", "Operation not permitted", "uverbs0 without its RDMA device: it belongs to another network namespace"},
			mend:    "rdma system set netns shared",
		},
		{
			name: "no address", make: "ip -4 address flush dev eth0", program: "rping -c -a " + rdmaAddress + " -C 1",
			words: []string{"rdma_resolve_addr: Network is unreachable"},
			check: "warn gids", seen: "link-local",
			mend: "ip address add " + rdmaAddress + "/24 dev eth0",
		},
		{
			name: "the link is down", make: "ip link set eth0 down", program: "ibv_devinfo",
			words: []string{"PORT_DOWN (1)"},
			check: "fail ports", seen: "is DOWN", test: "rxe0 port 1 is not ACTIVE",
			mend: "ip link set eth0 up" + untilActive,
		},
		{
			name: "no device", make: "rdma link delete rxe0", program: "ibv_devinfo; rping -s -C 1",
			words: []string{"No IB devices found", "No RDMA devices were detected"},
			test:  "no RDMA",
			mend:  "rdma link add rxe0 type rxe netdev eth0" + untilActive,
		},
	} {
		m.t.Run(row.name, func(t *testing.T) {
			m := machine{m.Machine, t}
			m.run("sh", "-ec", row.make)
			said, err := m.Ask(t.Context(), agent.Request{Argv: []string{"sh", "-c", row.program}, User: row.user, Kill: 20 * time.Second})
			hosttest.NoError(t, err)
			for _, words := range row.words {
				if !strings.Contains(strings.Join(strings.Fields(said.Stdout+said.Stderr), " "), words) {
					t.Errorf("%s does not say %q but:\n%s%s", row.program, words, said.Stdout, said.Stderr)
				}
			}
			if row.check != "" {
				_, findings := m.rdmaCheck()
				if !slices.ContainsFunc(findings, func(f host.Finding) bool {
					return string(f.Status)+" "+f.Check == row.check && strings.Contains(f.Seen, row.seen)
				}) {
					t.Errorf("rdma check does not find %s %q but: %+v", row.check, row.seen, findings)
				}
			}
			if row.test != "" {
				r := m.try("gpustack", "rdma", "test", "--wait", "10s")
				if r.Status == 0 || !strings.Contains(r.Stdout+r.Stderr, row.test) {
					t.Errorf("rdma test: exit status %d, not %q but:\n%s%s", r.Status, row.test, r.Stdout, r.Stderr)
				}
			}
			m.run("sh", "-ec", row.mend)
		})
	}
	rdmaIsReady(m) // all is mended
}

const (
	rdmaUCM       = "/lib/modules/$(busybox uname -r)/kernel/drivers/infiniband/core/rdma_ucm.ko"
	otherProvider = libraries + "/libibverbs/librxe-rdmav33.so"
)
