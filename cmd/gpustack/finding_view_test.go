package main

import (
	"bufio"
	"bytes"
	"testing"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
)

// TestFindingsFit: findings are wrapped between words, and commands in them stay in one piece.
func TestFindingsFit(t *testing.T) {
	findings := []host.Finding{
		{Check: "initramfs", Status: host.Fail, File: "/boot/initrd.img-6.1.0-28-amd64", Seen: "the initramfs of 6.1.0-28-amd64 does not bind functions before udev starts",
			Effect: "on next boot a host driver may claim the GPU first", Remedy: "regenerate it: gpustack host prepare --rebuild, then reboot"},
	}
	var b bytes.Buffer
	u := &term.UI{Out: bufio.NewWriter(&b), Width: 60}
	printFindings(u, findings)
	if err := u.Out.Flush(); err != nil {
		t.Fatal(err)
	}
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
	if b.String() != want[1:] {
		t.Errorf("got\n%s", b.String())
	}
}
