package explain_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/explain/explaintest"
)

// TestRecordedHosts: of random requests and hosts, explain says without Nova nothing that Nova's own
// code has contradicted, as far as answers of that release are recorded (-host-record of make
// hosts). TestExplainHost of the integration tests asks the Nova that is installed there.
func TestRecordedHosts(t *testing.T) {
	files, err := filepath.Glob("testdata/hosts-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, name := range files {
		text := hosttest.Read(t, name)
		head, answers, _ := strings.Cut(text, "\n")
		var major, minor, patch int
		var seed, cases uint64
		if _, err := fmt.Sscanf(head, "# Nova %d.%d.%d, seed %d: a line for each kept and %d random cases", &major, &minor, &patch, &seed, &cases); err != nil {
			t.Fatalf("%s: %v: %s", name, err, head)
		}
		all, err := explaintest.All(seed, cases)
		hosttest.NoError(t, err)
		words := strings.Split(strings.TrimSpace(answers), "\n")
		n := 0
		for k := range all {
			if n++; n > len(words) {
				break
			}
			if diff := k.Case.Compare(nova.Release(major), explaintest.ParseRecord(words[n-1]), nil); diff != "" {
				t.Errorf("%s: %s: %s", name, k.Name, diff)
			}
		}
		if n != len(words) {
			t.Errorf("%s has %d answers, to other cases: record them again (make hosts HOSTS=-host-record)", name, len(words))
		}
	}
}
