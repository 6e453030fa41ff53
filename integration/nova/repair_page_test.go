package nova

import (
	"regexp"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// repairPage is the page whose first part shows this very repair.
const repairPage = "../../docs/repair.md"

// A page compares what repair-migration prints with what docs/repair.md shows of it.
type page struct {
	t     *testing.T
	names *strings.Replacer // this run's names, as the page has them
	rest  string            // of the page, after what was compared
	shown int
}

func newPage(t *testing.T, source, dest, server, address string) *page {
	t.Helper()
	text := hosttest.Read(t, repairPage)
	const uuid = "7f0c1f3a-52a4-4cf8-a2ae-3d5a3f4e9c11"
	return &page{t: t, rest: text, names: strings.NewReplacer(source, "gpu1", dest, "gpu2", server, uuid, server[:8], uuid[:8], address, "0000:24:00.0")}
}

// shows runs repair-migration and compares the text with the next transcript of the page.
// options are those of the page, which names the files of reports.
func (p *page) shows(options, root string, args ...string) {
	p.t.Helper()
	stdout, stderr, _ := command(p.t, nil, append([]string{"repair-migration", "--root", root}, args...)...)
	_, block, ok := strings.Cut(p.rest, "```text\n"+strings.TrimSpace("$ gpustack repair-migration "+options)+"\n")
	block, rest, closed := strings.Cut(block, "```\n")
	if !ok || !closed {
		p.t.Fatalf("%s has no further transcript of gpustack repair-migration %s", repairPage, options)
	}
	p.rest = rest
	p.shown++
	if diff := cmp.Diff(ofOneRun(p.names.Replace(stdout+stderr)), ofOneRun(block)); diff != "" {
		p.t.Errorf("gpustack repair-migration %s (-real +%s):\n%s\nreal:\n%s", options, repairPage, diff, p.names.Replace(stdout+stderr))
	}
}

// end reports transcripts that no run was compared with.
func (p *page) end() {
	p.t.Helper()
	if all := strings.Count(p.rest, "$ gpustack repair-migration"); all > 0 {
		p.t.Errorf("%s has %d more transcripts than the %d that were compared", repairPage, all, p.shown)
	}
}

// ofOneRun replaces what differs between two runs, and between releases: tokens, ids, times, and
// which host is which.
func ofOneRun(text string) string {
	for _, changing := range []struct{ expression, to string }{
		{`--token \S+`, "--token TOKEN"},
		{`--root \S+ `, ""},
		{`gpu\d( gpustack host guests|\.json)`, "gpuN$1"}, // in the order of the names of this run
		{`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "UUID"},
		{`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ?`, "TIME"},
		{`\b\d+ (s|min|h)\b`, "N $1"},
		{`migration \d+`, "migration N"},
		{`entry \d+`, "entry N"},
		{`'gpustack undo \d+'`, "'gpustack undo N'"},
		{`, \d+, `, ", N, "},
		{`\d+ bytes`, "N bytes"},
		{`PCI devices \S+ of compute node \d+`, "PCI devices of a compute node"},
		// Since 2023.2 instances have the id of their node too; the page shows Nova 26.
		{`SET compute_id = \?, `, "SET "},
		{`AND compute_id <=> \? `, ""},
		{`(with |N, )"\d+", ("gpu\d")`, "$1$2"},
	} {
		text = regexp.MustCompile(changing.expression).ReplaceAllString(text, changing.to)
	}
	return text
}
