package containerprepare_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/container/containerprepare"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/memlock"
	"gpustack/host/pci"
)

// TestLockedMemory: after a plan is applied, services that start containers have no limit of locked
// memory, or a warning names the setting that overrides the drop-in.
func TestLockedMemory(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ file, content, warning string }{
		"systemd's default":       {"etc/hostname", "node\n", ""},
		"of systemctl edit":       {"etc/systemd/system/docker.service.d/override.conf", "[Service]\nLimitMEMLOCK=64M\n", ""},
		"of docker's containers":  {"etc/docker/daemon.json", `{"default-ulimits": {"memlock": {"Name": "memlock", "Hard": 65536, "Soft": 65536}}}`, "/etc/docker/daemon.json"},
		"in a later file":         {"etc/systemd/system/docker.service.d/zzz.conf", "[Service]\nLimitMEMLOCK=64M\n", "/etc/systemd/system/docker.service.d/zzz.conf:2"},
		"none, of the operator's": {"etc/systemd/system/docker.service.d/zzz.conf", "[Service]\nLimitMEMLOCK=infinity\n", ""},
	} {
		n := newNode(t)
		m := n.machine()
		for file, content := range map[string]string{
			"usr/lib/systemd/system/docker.service": "[Service]\nExecStart=/usr/bin/dockerd\n", test.file: test.content,
		} {
			place := n.root.Path("/" + file)
			hosttest.NoError(t, os.MkdirAll(filepath.Dir(place), 0o755))
			hosttest.NoError(t, os.WriteFile(place, []byte(content), 0o644))
		}
		want, err := containerprepare.NewWant(m, containerprepare.Options{HCAs: []pci.Address{hosttest.Address(t, hca)}})
		hosttest.NoError(t, err)
		p, err := n.plan(t, m, want)
		if err == nil {
			err = p.Files.Apply(t.Context(), n.root)
		}
		hosttest.NoError(t, err)
		for _, c := range p.Files {
			if strings.HasSuffix(c.Name, "-memlock.conf") && c.Action() == edit.Create && c.Purpose == "" {
				t.Errorf("%s: %s has no purpose", name, c.Name)
			}
		}
		limits := memlock.Read(n.root)
		limited := limits.Units[0].Limit == nil || limits.Units[0].Limit.Bytes != memlock.Unlimited
		warned := test.warning != "" && slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, test.warning) })
		if limited != (test.warning != "") || limited != warned {
			t.Errorf("%s: limited: %t, warnings %q, want %q", name, limited, p.Warnings, test.warning)
		}
	}
}
