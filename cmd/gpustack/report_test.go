package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/operate/node"
)

// folders counts how often each folder is listed, and each attribute of a function is read.
type folders struct {
	sync.Mutex
	listed     map[string]int
	attributes map[string]int
}

func (f *folders) File(name string, _ []byte, _ error) {
	f.Lock()
	defer f.Unlock()
	if strings.Contains(name, "/0000:") {
		f.attributes[name]++
	}
}

func (f *folders) Dir(name string, names []string, _ error) {
	f.Lock()
	defer f.Unlock()
	if names != nil {
		f.listed[name]++
	}
}

func (*folders) Link(string, string, error) {}
func (*folders) Mode(string, fs.FileMode)   {}

// recorded returns the example node below a root that records what is read.
func recorded(t *testing.T) (root host.Root, dir string, read *folders) {
	t.Helper()
	dir = layTalk(t)
	root = hosttest.Root(t, dir)
	read = &folders{listed: map[string]int{}, attributes: map[string]int{}}
	return root.Recorded(read), dir, read
}

// TestRebootStuck: while a write to sysfs is stuck in the kernel, reading a function would block.
// A reboot is required then, and no function is read.
func TestRebootStuck(t *testing.T) {
	root, dir, read := recorded(t)
	gpustack(t, "host", "prepare", "--root", dir, "--yes")
	r := newReport(root, node.RebootRequired(t.Context(), root), true)
	if r.RebootRequired != host.Yes || len(read.attributes) == 0 {
		t.Fatalf("reboot required: %v, %d attributes read", r.RebootRequired, len(read.attributes))
	}
	for name, text := range map[string]string{
		"proc/77/cmdline":                "gpustack\x00write-attribute\x00--\x00/sys/bus/pci/drivers/nouveau/unbind\x000000:84:00.0\x00",
		"proc/sys/kernel/random/boot_id": "this-boot\n",
		"var/lib/gpustack/journal/0002.json": `{"schema":1,"id":2,"kind":"journal entry", "changes":"drivers","command":"host bind","status":"applying","origin":{"user":"","host":"","version":"","argv":null},"started":"2026-11-21T20:00:00Z",` +
			`"ended":null,"files":[],"programs":null,"left":null,"restart":null,"rows":null,"drivers":{"boot_id":"this-boot","release":false,"services":{"stop":null,"persistence_off":null,"start":null,"persistence_on":null,"persistent":null},"functions":[]}}`,
	} {
		place := filepath.Join(dir, name)
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(place), 0o755))
		hosttest.NoError(t, os.WriteFile(place, []byte(text), 0o600))
	}
	clear(read.attributes)
	hosttest.EqualIn(t, "reboot required", host.Yes, node.RebootRequired(t.Context(), root))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	completeReport(ctx, &r, host.ErrStuck)
	if r.Applied || r.RebootRequired != host.Yes {
		t.Errorf("after a write that is stuck: %+v", r)
	}
	if len(read.attributes) > 0 {
		t.Errorf("%d attributes of functions were read", len(read.attributes))
	}
}
