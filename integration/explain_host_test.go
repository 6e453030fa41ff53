package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/explain"
	"gpustack/nova/explain/explaintest"
)

var (
	hostCases  = flag.Uint64("host-cases", 400, "how many random hosts TestExplainHost compares")
	hostSeed   = flag.Uint64("host-seed", 1, "with which TestExplainHost makes them; 0 for another one each time")
	hostRecord = flag.Bool("host-record", false, "TestExplainHost writes the answers to nova/explain/testdata")
)

// Cases of the records in nova/explain/testdata.
const (
	recordedSeed  = 31
	recordedCases = 1500
)

// TestExplainHost: of random requests and hosts, nova explain says without Nova nothing that Nova's
// own code contradicts, and with --nova-python what that says. The Nova is the one that is
// installed: that of the tests' tree, or that of another release by make hosts. Where answers of its
// version are recorded, they are the same.
func TestExplainHost(t *testing.T) {
	seed := *hostSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	peer := startAnswerer(t, "ask_judge.py")
	version, release := novaOf(t, peer)
	all, err := explaintest.All(seed, *hostCases)
	hosttest.NoError(t, err)
	able, differ := 0, 0
	for k := range all {
		code := askHost(t, peer, k, release)
		answer := k.Case.With(explaintest.Of(code), release)
		if len(answer.Rejects) == 0 {
			able++
		}
		if diff := k.Case.Compare(release, answer, code); diff != "" {
			differ++
			t.Errorf("%s: %s%s", k.Name, diff, asKept(t, k))
		}
	}
	t.Logf("Nova %s: %d cases of seed %d, %d of them can be built, %d differ", version, *hostCases, seed, able, differ)
	if least := *hostCases / 20; uint64(able) < least {
		t.Errorf("%d of %d cases can be built, at least %d expected", able, *hostCases, least)
	}
	checkRecord(t, peer, version, release)
}

// checkRecord compares the answers to the first recorded cases with the record of a version, or
// writes it.
func checkRecord(t *testing.T, peer *answerer, version string, release nova.Release) {
	t.Helper()
	name := "../nova/explain/testdata/hosts-" + version + ".txt"
	text, err := os.ReadFile(name)
	if err != nil && !*hostRecord {
		t.Logf("no answers of Nova %s are recorded", version)
		return
	}
	words := strings.Split(string(text), "\n")
	all, err := explaintest.All(recordedSeed, recordedCases)
	hosttest.NoError(t, err)
	record, n := []string{fmt.Sprintf("# Nova %s, seed %d: a line for each kept and %d random cases of nova/explain/explaintest, by templates/nova/judge.py",
		version, recordedSeed, recordedCases)}, 0
	for k := range all {
		if n++; uint64(n) > *hostCases && !*hostRecord {
			return
		}
		got := k.Case.With(explaintest.Of(askHost(t, peer, k, release)), release).Record()
		record = append(record, got)
		// The script judges no host after a request filter has rejected the request.
		isRejected := func(word string) bool { return strings.Contains(strings.Fields(word + " -")[0], "f") }
		if !*hostRecord && got != words[n] && (!isRejected(got) || !isRejected(words[n])) {
			t.Errorf("%s: %s, but recorded %s", k.Name, got, words[n])
		}
	}
	if *hostRecord {
		hosttest.NoError(t, os.WriteFile(name, []byte(strings.Join(record, "\n")+"\n"), 0o600))
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
func askHost(t *testing.T, peer *answerer, k explaintest.Kept, r nova.Release) *explain.Answer {
	t.Helper()
	facts, err := k.Case.Facts(r)
	hosttest.NoError(t, err)
	question, err := facts.Question()
	hosttest.NoError(t, err)
	text, err := json.Marshal(question)
	hosttest.NoError(t, err)
	var printed json.RawMessage
	peer.ask(t, string(text), &printed)
	answer, err := explain.ParseAnswer(printed, question)
	if err != nil {
		t.Fatalf("%s: %v: %s", k.Name, err, printed)
	}
	return answer
}

// asKept returns the line of a case for kept.jsonl.
func asKept(t *testing.T, k explaintest.Kept) string {
	t.Helper()
	text, err := json.Marshal(k)
	hosttest.NoError(t, err)
	return "\nfor kept.jsonl of nova/explain/explaintest:\n" + string(text)
}
