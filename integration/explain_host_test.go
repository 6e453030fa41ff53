package integration

import (
	"encoding/json"
	"flag"
	"slices"
	"testing"
	"time"

	"gpustack/nova"
	"gpustack/nova/explain/explaintest"
)

var (
	hostCases = flag.Uint64("host-cases", 1500, "how many random hosts TestExplainHost compares")
	hostSeed  = flag.Uint64("host-seed", 1, "with which TestExplainHost makes them; 0 for another one each time")
)

// TestExplainHost: of random requests and hosts, nova explain says what Nova's own code says: its
// translation of the request, the filters that judge the host, and what it asks Placement.
func TestExplainHost(t *testing.T) {
	seed := *hostSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	peer := startAnswerer(t, "ask_host.py")
	able, differ, remedied := 0, 0, 0
	for n := range *hostCases {
		c := explaintest.Random(seed, n)
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var a explaintest.Answer
		peer.ask(t, string(text), &a)
		if len(a.Rejects) == 0 {
			able++
		}
		if diff := c.Compare(nova.Zed, a); diff != "" {
			differ++
			t.Errorf("seed %d, case %d: %s\n%s", seed, n, diff, text)
		}
		if after, ok := c.Remedied(nova.Zed); ok {
			remedied++
			checkRemedy(t, peer, after)
		}
	}
	t.Logf("%d cases of seed %d, %d of them can be built, %d differ, of %d the remedy was tried", *hostCases, seed, able, differ, remedied)
	if least := *hostCases / 20; uint64(able) < least {
		t.Errorf("%d of %d cases can be built, at least %d expected", able, *hostCases, least)
	}
}

// checkRemedy: nova-api accepts an extra spec that explain advises to set, and the NUMA nodes of
// the host fit then.
func checkRemedy(t *testing.T, peer *answerer, c explaintest.Case) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var a explaintest.Answer
	peer.ask(t, string(text), &a)
	for _, name := range []string{"NUMATopologyFilter", "claim"} {
		if slices.Contains(a.Rejects, name) {
			t.Errorf("the remedy does not help: %q %s\n%s", a.Rejects, a.Why, text)
		}
	}
	if slices.Contains(a.Rejects, "api") && a.Why != "" {
		t.Errorf("Nova rejects the remedy: %s\n%s", a.Why, text)
	}
}
