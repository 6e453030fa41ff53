package trial

import (
	"regexp"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/engine"
)

// Cause is why a test failed.
type Cause struct {
	// the line that the program printed; "" if it printed none that is explained
	Words  string    `json:"words"`
	Cause  string    `json:"cause"`  // what is wrong, for people
	Remedy host.Text `json:"remedy"` // how to fix it, for people
}

// failure is words of rping, or of the libraries that it uses, and what they mean.
type failure struct {
	words, cause string
	remedy       host.Text
	follows      bool // it only follows from another failure
}

var remedyCheck = host.NewCommand("rdma check").Text()

const (
	noChannel = "/dev/infiniband/rdma_cm is missing or cannot be opened"
	memlock   = "the limit of locked memory (RLIMIT_MEMLOCK) is too low for RDMA"
	unlimited = "ulimit -l unlimited; for a service: LimitMEMLOCK=infinity; for a container: --ulimit memlock=-1"
	// RoCEFirewall says which packets of a RoCE test a firewall sees.
	RoCEFirewall = "RoCE v2 uses UDP port 4791: firewalls between the machines must permit it, and with rdma_rxe the machines' own firewalls too"
)

// failures are the words of rping and librdmacm (rdma-core 44, librdmacm/examples/rping.c and
// common.c) and of perftest (src/perftest_communication.c and perftest_resources.c), with the
// numbers of events as the kernel reports them: negative error numbers of errno(3), positive
// reasons of a REJ message (InfiniBand Architecture Specification, 12.6.7.2; Linux,
// include/rdma/ib_cm.h).
var failures = []failure{
	{words: `No RDMA devices were detected|Did not detect devices|Unable to find the Infiniband/RoCE device|IB device .* not found`,
		cause:  "libibverbs has found no usable RDMA device: a device node or the provider library is missing",
		remedy: remedyCheck},
	{words: `couldn't load driver|does not support the kernel ABI|kernel ABI version \d+ doesn't match`,
		cause:  "the provider library is missing, or libibverbs, its libraries and the kernel's driver are not of one release",
		remedy: host.Textf("apt install --reinstall ibverbs-providers libibverbs1; %s", host.NewCommand("rdma check"))},
	// librdmacm says "No such file or directory" of a node that is denied, too.
	{words: `failed to create RDMA CM event channel|rdma_create_event_channel failed`, cause: noChannel,
		remedy: host.Textf("modprobe rdma_ucm; ls -l /dev/infiniband/rdma_cm; in a container, allow the device: %s", host.NewCommand("rdma check"))},
	{words: `RLIMIT_MEMLOCK is`, cause: memlock, remedy: host.Plain(unlimited), follows: true},
	{words: `reg_mr failed|Couldn't (register|allocate) MR`, cause: memlock, remedy: host.Plain(unlimited)},
	{words: `rdma_create_qp|ibv_create_cq failed|ibv_alloc_pd failed|ibv_create_qp|Unable to create QP|Failed to create QP|Couldn't create ` +
		`.*(CQ|QP|completion channel)`,
		cause: "the adapter has refused a queue pair or memory: too little locked memory, or no resource of the adapter is left", remedy: host.Plain(unlimited)},
	{words: `rdma_bind_addr: Cannot assign requested address`, cause: "the address does not belong to this network namespace",
		remedy: host.Plain("ip address; run the test in the network namespace that has the address")},
	{words: `rdma_bind_addr|Failed to bind RDMA CM address|rdma_listen failed`,
		cause:  "the address or the port cannot be used: another program listens there, or the address is not in this network namespace",
		remedy: host.Plain("use another port on both machines: --port NUMBER; ip address")},
	{words: `rdma_resolve_addr|ADDR_ERROR|CM event (bl blka )?1\b|Failed to get RDMA CM address`,
		cause:  "there is no route to the peer from this port, or no machine answers for the peer's address",
		remedy: host.Textf("ip route get PEER; ping PEER; the peer's address: %s, there", host.NewCommand("rdma scan").Flag("gids"))},
	{words: `ROUTE_ERROR|CM event (bl blka )?3\b`,
		cause:  "the fabric has no path to the peer: no subnet manager answers, or the ports have no partition in common",
		remedy: host.Textf("sminfo; %s", host.NewCommand("rdma check"))},
	{words: `UNREACHABLE|CONNECT_ERROR|CM event (bl blka )?[67]\b`,
		cause:  "the peer's connection manager does not answer",
		remedy: host.Plain("is the peer's port up? " + RoCEFirewall)},
	{words: `REJECTED|CM event (bl blka )?8\b`,
		cause:  "no program listens on the peer at this port, or it rejects the connection",
		remedy: host.Textf("on the peer: %s, with the same --port, --size and --perf as here", host.NewCommand("rdma test").Flag("listen"))},
	{words: `data mismatch`,
		cause:  "the data that came back differ from the data that were sent",
		remedy: host.Plain("dmesg; test the cable, the switch and the memory")},
	{words: `status 12\b`, cause: "the peer does not acknowledge packets (transport retries exceeded)",
		remedy: host.Plain(RoCEFirewall + "; compare the MTU of both ports: ibv_devinfo")},
	{words: `status 5\b|Unable to (read|write) (to|from) socket/rdma_cm|Couldn't read remote address|` +
		`Unable to perform rdma_(client|server) function|Failed to (exchange data|sync) between|CM event (bl blka )?10\b`,
		cause:  "the other side has ended the connection, or failed",
		remedy: host.Plain("see the messages of the other side; give both sides the same --iterations"), follows: true},
}

// diagnose returns the causes that the messages of programs name, in the order of the messages. A
// cause that only follows from others is named if it is the only one.
func diagnose(messages ...string) []Cause {
	var causes, followed []Cause
	for line := range strings.Lines(strings.Join(messages, "\n")) {
		line = strings.TrimSpace(line)
		i := slices.IndexFunc(failures, func(f failure) bool { return regexp.MustCompile("(?i)" + f.words).MatchString(line) })
		if i < 0 {
			continue
		}
		f := failures[i]
		list := &causes
		if f.follows {
			list = &followed
		}
		if !slices.ContainsFunc(*list, func(c Cause) bool { return c.Cause == f.cause }) {
			*list = append(*list, Cause{line, f.cause, f.remedy})
		}
	}
	if len(causes) == 0 {
		return followed
	}
	return causes
}

// inContainer returns causes as they are in a container that was given device nodes: a node that
// cannot be opened there is not missing, but denied.
func inContainer(c *engine.Container, causes []Cause) []Cause {
	if c == nil || len(c.Devices) == 0 {
		return causes
	}
	for i := range causes {
		if causes[i].Cause == noChannel {
			causes[i].Cause = "/dev/infiniband/rdma_cm is in the container and cannot be opened: SELinux, the device cgroup or the node's permissions deny it"
			causes[i].Remedy = host.Plain("ausearch -m avc -ts recent; ls -lZ /dev/infiniband/rdma_cm; " +
				"for SELinux: --security-opt=label=disable, or setsebool -P container_use_devices on")
		}
	}
	return causes
}

// unexplained returns the cause of a program that failed with words that are not explained.
func unexplained(err error) Cause {
	return Cause{Cause: err.Error(), Remedy: remedyCheck}
}
