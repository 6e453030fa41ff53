package vm

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gpustack/integration/vm/agent"
)

// TestRDMAPeers moves data between the software adapters of two machines: one listens, the other
// one tests; first programs, then containers without privileges. Then nobody listens, and a
// listener ends at its time limit. The cable is a pair of UDP sockets.
func TestRDMAPeers(t *testing.T) {
	t.Parallel()
	const first, second = "192.168.77.21", "192.168.77.22"
	one, other := freeUDP(t), freeUDP(t)
	cable := "socket,id=cable,udp=127.0.0.1:%d,localaddr=127.0.0.1:%d"
	var listener, peer machine
	var both sync.WaitGroup
	both.Go(func() { listener = withRDMA(t, "rdma-listener", first, fmt.Sprintf(cable, other, one)) })
	both.Go(func() { peer = withRDMA(t, "rdma-peer", second, fmt.Sprintf(cable, one, other)) })
	both.Wait()
	if t.Failed() || listener.Machine == nil || peer.Machine == nil {
		t.FailNow()
	}

	listens := func(options string) (result func() string) {
		listener.run("sh", "-c", "(gpustack rdma test --listen --wait 60s --iterations 3 "+options+"; echo status $?) >/run/listens 2>&1 </dev/null &")
		for end := time.Now().Add(30 * time.Second); !strings.Contains(listener.try("busybox", "cat", "/run/listens").Stdout, "--peer"); time.Sleep(beat) {
			if time.Now().After(end) {
				t.Fatalf("not listening: %s", listener.run("busybox", "cat", "/run/listens"))
			}
		}
		return func() string {
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(beat) {
				text := listener.run("busybox", "cat", "/run/listens")
				if strings.Contains(text, "status ") || time.Now().After(end) {
					return text
				}
			}
		}
	}
	result := listens("")
	got := tested(t, peer.try("gpustack", "rdma", "test", "--peer", first, "--iterations", "3", "-o", "json"))
	if one := got.Tests[0]; got.Verdict != "pass" || one.Name != "rxe0" || one.IP != second || one.Iterations != 3 || one.Carried == nil || !*one.Carried {
		t.Errorf("peer: %+v", got)
	}
	if text := result(); !strings.Contains(text, "status 0") {
		t.Errorf("listener: %s", text)
	}
	const image = "localhost/rdma"
	listener.run("sh", "-ec", forContainers)
	peer.run("sh", "-ec", forContainers)
	result = listens("--container " + image)
	got = tested(t, connects(peer, "gpustack", "rdma", "test", "--peer", first, "--iterations", "3", "-o", "json", "--container", image))
	if one := got.Tests[0]; got.Verdict != "pass" || one.Iterations != 3 || one.Carried == nil || !*one.Carried || !slices.Equal(one.Devices, []string{"gpustack.local/hca=rxe0"}) {
		t.Errorf("container to container: %+v", got)
	}
	if text := result(); !strings.Contains(text, "status 0") || !strings.Contains(text, "in containers: podman run --device gpustack.local/hca=rxe0") {
		t.Errorf("listening container: %s", text)
	}
	if r := peer.try("gpustack", "rdma", "test", "--peer", first, "--iterations", "3", "--wait", "20s"); r.Status != 2 ||
		!strings.Contains(r.Stdout+r.Stderr, "listen") {
		t.Errorf("nobody listens: exit status %d: %s%s", r.Status, r.Stdout, r.Stderr)
	}
	begin := time.Now()
	if r := listener.try("gpustack", "rdma", "test", "--listen", "--wait", "2s"); r.Status != 2 || time.Since(begin) > 30*time.Second {
		t.Errorf("time limit: exit status %d after %s: %s%s", r.Status, time.Since(begin), r.Stdout, r.Stderr)
	}
	if left := listener.try("sh", "-c", "for p in /proc/[0-9]*/comm; do busybox grep -l rping $p; done").Stdout; left != "" {
		t.Errorf("rping is left: %s", left)
	}
}

// connects tests a listener in a container, which may not have started yet.
func connects(m machine, argv ...string) (r agent.Reply) {
	m.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(beat) {
		r = m.try(argv...)
		if r.Status == 0 || time.Now().After(end) || !strings.Contains(r.Stdout, "REJECTED") {
			return r
		}
	}
}

// freeUDP returns a port of the loopback interface that no program has at the moment.
func freeUDP(t *testing.T) int {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).Port
}
