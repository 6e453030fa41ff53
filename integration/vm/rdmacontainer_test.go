package vm

import (
	"slices"
	"strings"

	"gpustack/host/hosttest"
)

// forContainers makes a machine with an RDMA device ready to start containers that get it by CDI.
const forContainers = `
busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
busybox mkdir -p /run/cdi
cat >/run/cdi/gpustack-hca.json <<'END'
{"cdiVersion":"0.5.0","kind":"gpustack.local/hca",
"devices":[{"name":"rxe0","containerEdits":{"deviceNodes":[{"path":"/dev/infiniband/uverbs0","type":"c","permissions":"rw"}]}}],
"containerEdits":{"deviceNodes":[{"path":"/dev/infiniband/rdma_cm","type":"c","permissions":"rw"}]}}
END
`

// patience is how long a test may take: a slow machine starts a container in half a minute.
const patience = "5m"

// contained returns the command of a container of user 1000 with the RDMA device, which runs a
// script.
func contained(network, script string) []string {
	return []string{
		"podman", "run", "--rm", "--name", "one", "--network", network, "--user", "1000:1000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
		"--device", "gpustack.local/hca=rxe0", "--entrypoint", "sh", "localhost/rdma", "-c", script,
	}
}

// rdmaContainers: containers without privileges move data with two device nodes of a CDI spec. In
// the kernel's shared mode the adapter is also in containers that have a network of their own;
// in exclusive mode it is not.
func rdmaContainers(m machine) {
	m.run("sh", "-ec", forContainers)
	r := m.try("gpustack", "rdma", "test", "--container", "localhost/rdma", "--iterations", "3", "--wait", patience, "-o", "json")
	if got := tested(m.t, r); got.Verdict != "pass" || got.Tests[0].Iterations != 3 || !slices.Equal(got.Tests[0].Devices, []string{"gpustack.local/hca=rxe0"}) {
		m.t.Errorf("rdma test: %+v: %s", got, r.Stderr)
	}
	has := func(r string, words ...string) {
		m.t.Helper()
		text := strings.Join(strings.Fields(r), " ")
		for _, want := range words {
			hosttest.Contains(m.t, want, text)
		}
	}

	user := m.try(contained("host", `
busybox grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs):' /proc/self/status; echo /dev/infiniband/*
rping -s -a `+rdmaAddress+` -C 3 & sleep 1; rping -c -a `+rdmaAddress+` -I `+rdmaAddress+` -C 3 -v; echo rping $?; wait`)...)
	has(user.Stdout+user.Stderr, "Uid: 1000 1000 1000 1000", "CapEff: 0000000000000000", "CapBnd: 0000000000000000", "NoNewPrivs: 1",
		"/dev/infiniband/rdma_cm /dev/infiniband/uverbs0", "ping data: rdma-ping-2: ", "rping 0")
	leak := m.try(contained("none", `
ip -4 address show dev eth0; rping -c -a `+rdmaAddress+` -C 1
ibv_rc_pingpong -d rxe0 -g 1 -n 10 -s 1024 & sleep 1; ibv_rc_pingpong -d rxe0 -g 1 -n 10 -s 1024 127.0.0.1; echo pingpong $?; wait`)...)
	has(leak.Stdout+leak.Stderr, "can't find device 'eth0'", "rdma_resolve_addr: Network is unreachable",
		"20480 bytes in", "GID ::ffff:"+rdmaAddress, "pingpong 0")
	m.run("rdma", "system", "set", "netns", "exclusive")
	own := m.try(contained("none", "ibv_devinfo; cat /dev/infiniband/uverbs0")...)
	has(own.Stdout+own.Stderr, "No IB devices found", "Operation not permitted")
	m.run("rdma", "system", "set", "netns", "shared")
	m.run("sh", "-ec", "busybox rm -r /run/cdi; busybox umount /sys/fs/cgroup")
}
