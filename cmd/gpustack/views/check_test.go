package views

import (
	"bufio"
	"bytes"
	"maps"
	"testing"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestFindingsFit: findings are wrapped between words, and commands in them stay in one piece.
func TestFindingsFit(t *testing.T) {
	findings := []host.Finding{
		{Check: "initramfs", Status: host.Fail, File: "/boot/initrd.img-6.1.0-28-amd64", Seen: "the initramfs of 6.1.0-28-amd64 does not bind functions before udev starts",
			Effect: "on next boot a host driver may claim the GPU first", Remedy: host.Textf("regenerate it: %s, then reboot", host.NewCommand("host prepare").Flag("rebuild"))},
	}
	var b bytes.Buffer
	u := &term.UI{Out: bufio.NewWriter(&b), Page: term.Page{Width: 60}}
	printFindings(u, findings, u.Text)
	hosttest.NoError(t, u.Out.Flush())
	const want = `
STATUS  CHECK      SEEN
fail    initramfs  the initramfs of 6.1.0-28-amd64 does not
                   bind functions before udev starts
                   /boot/initrd.img-6.1.0-28-amd64
                   on next boot a host driver may claim the
                   GPU first
                   regenerate it:
                   gpustack host prepare --rebuild, then
                   reboot
`
	hosttest.Equal(t, want[1:], b.String())
}

// TestCountChecks: checks are counted, not findings, each once by its worst finding.
func TestCountChecks(t *testing.T) {
	of := func(check string, status host.Status) host.Finding { return host.Finding{Check: check, Status: status} }
	findings := []host.Finding{
		of("kernels", host.Pass), of("kernels", host.Pass), of("reset", host.Pass), of("reset", host.NA), of("bus", host.NA), of("bus", host.NA),
		of("groups", host.Warn), of("groups", host.Fail), of("groups", host.Pass), of("drivers", host.Fail), of("drivers", host.Fail), of("ids", host.Warn),
	}
	want := map[host.Status]int{host.Pass: 1, host.NA: 2, host.Warn: 1, host.Fail: 2}
	if got := countChecks(findings); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	hosttest.Equal(t, " (failed: 2, warnings: 1)", notPassed(findings))
}
