package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/guard"
)

// pids matches ids of processes in what ReadLinks returns.
var pids = regexp.MustCompile(`(\(pid |/proc/)[0-9]+`)

// TestLinks: interfaces of other network namespaces that lie on one of this namespace are found,
// which its sysfs does not show. The test runs in a namespace that it makes, with two others below.
func TestLinks(t *testing.T) {
	const inside = "GPUSTACK_TEST_LINKS"
	if os.Getenv(inside) != "" {
		root, err := host.NewRoot("/")
		if err != nil {
			t.Fatal(err)
		}
		links, err := guard.ReadLinks(root)
		if err != nil {
			t.Fatal(err)
		}
		// Interfaces come and go while the kernel lists the others.
		for i := range 50 {
			if _, err := guard.ReadLinks(root); err != nil {
				t.Fatalf("the %dth time: %v", i+2, err)
			}
		}
		text, err := json.Marshal(links)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(os.Getenv(inside), text, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, test := range []struct {
		name, script string
		want         []guard.Link
	}{
		{"an idle interface", "", nil},
		{"a macvlan in a namespace with a name, and a guest's veth there", `
			ip netns add blue
			ip link add mv0 link uplink type macvlan
			ip link set mv0 netns blue
			ip link add v0 type veth peer name v1
			ip link set v1 netns blue`,
			[]guard.Link{{Name: "mv0", Kind: "macvlan", Namespace: "/run/netns/blue", File: "/run/netns/blue", Lower: "uplink"},
				{Name: "v1", Kind: "veth", Namespace: "/run/netns/blue", File: "/run/netns/blue", Lower: "v0"}}},
		{"a macvlan in a namespace that a process keeps", `
			unshare --net sleep 100 & kept=$!
			while [ "$(readlink /proc/$kept/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
			ip link add mv0 link uplink type macvlan
			ip link set mv0 netns $kept
			trap 'kill $kept' EXIT`,
			[]guard.Link{{Name: "mv0", Kind: "macvlan", Namespace: "sleep (pid PID)", File: "/proc/PID/ns/net", Lower: "uplink"}}},
		{"a macvlan on an interface of that other namespace", `
			ip netns add blue
			ip link set peer netns blue
			ip -n blue link add mv0 link peer type macvlan`,
			[]guard.Link{{Name: "peer", Kind: "veth", Namespace: "/run/netns/blue", File: "/run/netns/blue", Lower: "uplink"}}},
		{"a host where guests start and end", `
			for i in $(seq 100); do ip link add busy$i type veth peer name peer$i; done
			while ip link add come type veth peer name go && ip link del come; do :; done &
			trap "kill $!" EXIT`, nil},
		{"a process whose id in /proc is another one than its own", `
			ip netns add blue
			ip link set peer netns blue
			as="unshare --pid --fork"`,
			[]guard.Link{{Name: "peer", Kind: "veth", Namespace: "/run/netns/blue", File: "/run/netns/blue", Lower: "uplink"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := t.TempDir() + "/links"
			cmd := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-ec", `
				mount -t sysfs sysfs /sys
				mount -t tmpfs tmpfs /run
				ip link add uplink type veth peer name peer
				`+test.script+`
				${as:-} "$0" -test.run '^TestLinks$' >&2`, os.Args[0])
			cmd.Env = append(os.Environ(), inside+"="+out)
			if _, stderr, status := try(t, cmd); status != 0 {
				t.Fatal(stderr)
			}
			text, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			var links []guard.Link
			if err := json.Unmarshal(pids.ReplaceAll(text, []byte("${1}PID")), &links); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, links); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
