package integration

import (
	"encoding/json"
	"flag"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpustack/nova"
	"gpustack/nova/explain/explaintest"
)

var (
	hostCases = flag.Uint64("host-cases", 400, "how many random hosts TestExplainHost compares")
	hostSeed  = flag.Uint64("host-seed", 1, "with which TestExplainHost makes them; 0 for another one each time")
)

// TestExplainHost: of random requests and hosts, nova explain says what Nova's own code says: its
// translation of the request, the filters that judge the host, and what it asks Placement. The Nova
// is the one that is installed: that of the tests' tree, or that of another release by make hosts.
func TestExplainHost(t *testing.T) {
	seed := *hostSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	peer := startAnswerer(t, "ask_host.py")
	version, release := novaOf(t, peer)
	all, err := explaintest.All(seed, *hostCases)
	if err != nil {
		t.Fatal(err)
	}
	able, differ, remedied := 0, 0, 0
	for k := range all {
		c, a := k.Case, askHost(t, peer, k.Case)
		if len(a.Rejects) == 0 {
			able++
		}
		if diff := c.Compare(release, a); diff != "" {
			differ++
			t.Errorf("%s: %s%s", k.Name, diff, asKept(t, k))
		}
		if after, ok := c.Remedied(release); ok {
			remedied++
			k.Case = after
			checkRemedy(t, peer, k)
		}
	}
	t.Logf("Nova %s: %d cases of seed %d, %d of them can be built, %d differ, of %d the remedy was tried", version, *hostCases, seed, able, differ, remedied)
	if least := *hostCases / 20; uint64(able) < least {
		t.Errorf("%d of %d cases can be built, at least %d expected", able, *hostCases, least)
	}
}

// novaOf returns the version of Nova that answers, and its release.
func novaOf(t *testing.T, peer *answerer) (version string, r nova.Release) {
	t.Helper()
	peer.ask(t, "{}", &version)
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		t.Fatalf("Nova is %s", version)
	}
	return version, nova.Release(n)
}

// askHost returns what Nova says of a case.
func askHost(t *testing.T, peer *answerer, c explaintest.Case) (a explaintest.Answer) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	peer.ask(t, string(text), &a)
	return a
}

// asKept returns the line of a case for kept.jsonl.
func asKept(t *testing.T, k explaintest.Kept) string {
	t.Helper()
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	return "\nfor kept.jsonl of nova/explain/explaintest:\n" + string(text)
}

// checkRemedy: nova-api accepts an extra spec that explain advises to set, and the NUMA nodes of
// the host fit then.
func checkRemedy(t *testing.T, peer *answerer, k explaintest.Kept) {
	t.Helper()
	a := askHost(t, peer, k.Case)
	for _, name := range []string{"NUMATopologyFilter", "claim"} {
		if slices.Contains(a.Rejects, name) {
			t.Errorf("%s: the remedy does not help: %q %s%s", k.Name, a.Rejects, a.Why, asKept(t, k))
		}
	}
	if slices.Contains(a.Rejects, "api") && a.Why != "" {
		t.Errorf("%s: Nova rejects the remedy: %s%s", k.Name, a.Why, asKept(t, k))
	}
}
