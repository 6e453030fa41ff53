package explain_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/nova"
	"gpustack/nova/explain/explaintest"
)

// TestRecordedHosts: of random requests and hosts, explain says what Nova's own code has said, as
// far as answers of that release are recorded (integration/recordhosts). TestExplainHost of the
// integration tests asks the Nova that is installed there.
func TestRecordedHosts(t *testing.T) {
	files, err := filepath.Glob("testdata/hosts-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		head, answers, _ := strings.Cut(string(text), "\n")
		var major, minor, patch int
		var seed uint64
		if _, err := fmt.Sscanf(head, "# Nova %d.%d.%d, seed %d:", &major, &minor, &patch, &seed); err != nil {
			t.Fatalf("%s: %v: %s", name, err, head)
		}
		for n, word := range strings.Split(strings.TrimSpace(answers), "\n") {
			c := explaintest.Random(seed, uint64(n))
			if diff := c.Compare(nova.Release(major), explaintest.ParseRecord(word)); diff != "" {
				t.Errorf("%s: case %d: %s", name, n, diff)
			}
		}
	}
}
