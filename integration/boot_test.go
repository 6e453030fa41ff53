package integration

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/steps"
)

// TestNetlinkRequests: the requests that set the identity of a VF have the bytes of ip's, which are
// those of iproute2. The interface is the loopback of a network namespace of the test's own: the
// kernel rejects the requests after it has received them.
func TestNetlinkRequests(t *testing.T) {
	for _, words := range []string{"node_guid 0a:00:c9:02:00:21:6e:70", "port_guid 0a:00:c9:02:01:21:6e:70", "mac b2:00:00:00:00:01",
		"state auto", "state enable", "state disable"} {
		kind, value, _ := strings.Cut(words, " ")
		want := sent(t, "ip", "link", "set", "dev", "lo", "vf", "3", kind, value)
		got := sent(t, gpustack, "netlink-request", "--", kind, "lo", "3", value)
		hosttest.EqualIn(t, words, want, got)
	}
}

// sent returns the request of a program that changes an interface, in hexadecimal digits without
// its sequence number. ip makes it RTM_NEWLINK, the library RTM_SETLINK; both are do_setlink in the
// kernel (Linux, net/core/rtnetlink.c).
func sent(t *testing.T, argv ...string) string {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	try(t, exec.Command("unshare", append([]string{"--net", "strace", "-f", "-qq", "-o", trace, "-e", "trace=sendmsg,sendto", "-e", "write=all"}, argv...)...))
	var messages []string
	for line := range strings.Lines(hosttest.Read(t, trace)) {
		if strings.Contains(line, "nlmsg_len=") {
			messages = append(messages, "")
			continue
		}
		if m := regexp.MustCompile(`^ \| [0-9a-f]+  ([0-9a-f ]{49})`).FindStringSubmatch(line); m != nil && len(messages) > 0 {
			messages[len(messages)-1] += strings.ReplaceAll(m[1], " ", "")
		}
	}
	for _, text := range messages {
		data, err := hex.DecodeString(text)
		if err != nil || len(data) < 16 {
			t.Fatalf("%v: %v: %q", argv, err, text)
		}
		// 16 is RTM_NEWLINK and 19 RTM_SETLINK; ip first probes with an empty message.
		if kind := data[4]; (kind == 16 || kind == 19) && len(data) > 32 {
			return fmt.Sprintf("length %x flags %x %x", data[:4], data[6:8], data[16:])
		}
	}
	t.Fatalf("%v sent no request:\n%s", argv, hosttest.Read(t, trace))
	return ""
}

// TestBootUnit: systemd accepts the unit and its drop-in, which makes each boot want it.
func TestBootUnit(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"usr/lib/systemd/systemd", "usr/sbin/gpustack"} {
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		hosttest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	root := hosttest.Root(t, dir)
	plan, err := steps.ObserveUnit(root).Put()
	if err == nil {
		err = plan.Apply(t.Context(), root)
	}
	hosttest.NoError(t, err)
	verify := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=yes", "--root="+dir, "/etc/systemd/system/"+steps.Unit)
	for _, unit := range []string{"multi-user", "shutdown", "local-fs"} {
		file := filepath.Join(dir, "usr/lib/systemd/system", unit+".target")
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		hosttest.NoError(t, os.WriteFile(file, []byte("[Unit]\nDescription=x\nDefaultDependencies=no\n"), 0o600))
	}
	if out, err := verify.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	out := run(t, "systemd-analyze", "cat-config", "--root="+dir, "systemd/system/multi-user.target")
	hosttest.ContainsIn(t, "multi-user.target does not want the unit", "\nWants="+steps.Unit+"\n", out)
}
