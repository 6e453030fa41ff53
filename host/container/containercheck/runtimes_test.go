package containercheck_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestRuntimes: which docker reads CDI specs, by version and configuration.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	installed := func(name, version string) string {
		return fmt.Sprintf("Package: %s\nStatus: install ok installed\nVersion: %s\n\n", name, version)
	}
	const (
		daemon, dpkg = "etc/docker/daemon.json", "var/lib/dpkg/status"
		docker       = "usr/bin/dockerd"
	)
	for name, test := range map[string]struct {
		files  map[string]string
		status host.Status
		seen   string
		remedy string
	}{
		"none": {nil, host.NA, "neither docker nor a runtime", ""},
		"docker 20.10": {map[string]string{docker: "", dpkg: installed("docker.io", "20.10.24+dfsg1-1+deb12u1")},
			host.Warn, "docker 20.10.24 is older than 25.0", "a newer docker"},
		"docker 20.10, configured": {map[string]string{docker: "", dpkg: installed("docker.io", "20.10.24+dfsg1-1"), daemon: `{"features":{"cdi":true}}`},
			host.Warn, "docker 20.10.24 is older than 25.0", "a newer docker"},
		"docker 27": {map[string]string{docker: "", dpkg: installed("docker-ce", "5:27.5.1-1~debian.12~bookworm")}, host.Warn,
			"docker 27.5.1 reads CDI specs only where", `"cdi": true`},
		"docker 27, configured": {map[string]string{docker: "", dpkg: installed("docker-ce", "5:27.5.1-1~debian"), daemon: `{"features":{"cdi":true}}`},
			host.Pass, "docker 27.5.1", ""},
		"docker 28.2": {map[string]string{docker: "", dpkg: installed("docker-ce", "5:28.2.2-1~debian")}, host.Pass, "docker 28.2.2", ""},
		"docker 28.2, another folder": {map[string]string{docker: "", dpkg: installed("docker-ce", "5:28.2.2-1~debian"), daemon: `{"cdi-spec-dirs":["/opt/cdi"]}`},
			host.Warn, "cdi-spec-dirs of docker has no ", "to cdi-spec-dirs"},
		"docker 28.2, its own folders": {map[string]string{docker: "", dpkg: installed("docker-ce", "5:28.2.2-1~debian"), daemon: `{"cdi-spec-dirs":["/etc/cdi","/var/run/cdi"]}`},
			host.Pass, "docker 28.2.2", ""},
		"docker 28.2, off": {map[string]string{docker: "", dpkg: installed("docker-ce", "5:28.2.2-1~debian"), daemon: `{"features":{"cdi":false}}`},
			host.Warn, "docker 28.2.2 is configured to read no CDI specs", `"cdi": true`},
		"docker, removed package": {map[string]string{docker: "", dpkg: "Package: docker-ce\nStatus: deinstall ok config-files\nVersion: 5:20.10.1-1\n\n"},
			host.Warn, "which version it is cannot be determined; from 28.2.0 on", `"cdi": true`},
		"docker, malformed": {map[string]string{docker: "", daemon: `{"features":`}, host.NA, "daemon.json: malformed JSON", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := healthy()
			for file, text := range test.files {
				n.files[file] = text
			}
			findings, _, err := n.verify(t)
			hosttest.NoError(t, err)
			var got []host.Finding
			for _, f := range findings {
				if f.Check == "runtimes" {
					got = append(got, f)
				}
			}
			if len(got) != 1 || got[0].Status != test.status || !strings.Contains(got[0].Seen, test.seen) || !strings.Contains(got[0].Remedy.String(), test.remedy) {
				t.Errorf("%+v", got)
			}
		})
	}
}
