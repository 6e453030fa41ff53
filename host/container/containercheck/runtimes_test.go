package containercheck_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host"
)

// TestRuntimes: which runtimes read CDI specs, by version and configuration.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	installed := func(name, version string) string {
		return fmt.Sprintf("Package: %s\nStatus: install ok installed\nVersion: %s\n\n", name, version)
	}
	const (
		daemon, containerd, dpkg = "etc/docker/daemon.json", "etc/containerd/config.toml", "var/lib/dpkg/status"
		docker, podman           = "usr/bin/dockerd", "usr/bin/podman"
	)
	for name, test := range map[string]struct {
		files  map[string]string
		status host.Status
		seen   string
		remedy string
	}{
		"none":         {nil, host.NA, "no container runtime is installed", ""},
		"podman 4.3.1": {map[string]string{podman: "", dpkg: installed("podman", "4.3.1+ds1-8+deb12u1")}, host.Pass, "CDI specs are read by podman 4.3.1", ""},
		"podman 3.0.1": {map[string]string{podman: "", dpkg: installed("podman", "3.0.1+dfsg1-3")}, host.Warn, "podman 3.0.1 is older than 4.1", "a newer podman"},
		"podman":       {map[string]string{podman: ""}, host.Pass, "podman, if it is 4.1 or later", ""},
		"docker 20.10": {map[string]string{docker: "", dpkg: installed("docker.io", "20.10.24+dfsg1-1+deb12u1")},
			host.Warn, "docker 20.10.24 is older than 25.0", "--print docker"},
		"docker 20.10, configured": {map[string]string{docker: "", dpkg: installed("docker.io", "20.10.24+dfsg1-1"), daemon: `{"features":{"cdi":true}}`},
			host.Warn, "docker 20.10.24 is older than 25.0", "--print docker"},
		"docker 27": {map[string]string{docker: "", dpkg: installed("docker-ce", "5:27.5.1-1~debian.12~bookworm")}, host.Warn,
			"docker 27.5.1 reads CDI specs only where", `"cdi": true`},
		"docker 27, configured": {map[string]string{docker: "", dpkg: installed("docker-ce", "5:27.5.1-1~debian"), daemon: `{"features":{"cdi":true}}`},
			host.Pass, "docker 27.5.1", ""},
		"docker 28.2": {map[string]string{docker: "", dpkg: installed("docker-ce", "5:28.2.2-1~debian")}, host.Pass, "docker 28.2.2", ""},
		"docker 28.2, off": {map[string]string{docker: "", dpkg: installed("docker-ce", "5:28.2.2-1~debian"), daemon: `{"features":{"cdi":false}}`},
			host.Warn, "docker 28.2.2 is configured to read no CDI specs", `"cdi": true`},
		"docker, removed package": {map[string]string{docker: "", dpkg: "Package: docker-ce\nStatus: deinstall ok config-files\nVersion: 5:20.10.1-1\n\n"},
			host.Warn, "which version it is cannot be determined; from 28.2.0 on", `"cdi": true`},
		"docker, malformed": {map[string]string{docker: "", daemon: `{"features":`}, host.NA, "daemon.json: malformed JSON", ""},
		"containerd of docker": {map[string]string{docker: "", "usr/bin/containerd": "", dpkg: installed("docker-ce", "5:28.2.2-1") +
			installed("containerd.io", "1.7.27-1")},
			host.Pass, "CDI specs are read by docker 28.2.2", ""},
		"containerd of kubelet": {map[string]string{docker: "", "usr/bin/kubelet": "", "usr/bin/containerd": "",
			dpkg: installed("docker-ce", "5:28.2.2-1") + installed("containerd.io", "1.7.27-1")},
			host.Warn, "containerd 1.7.27 reads CDI specs only where", "enable_cdi = true"},
		"containerd 1.7, configured": {map[string]string{"usr/bin/containerd": "",
			containerd: "[plugins.\"io.containerd.grpc.v1.cri\"]\n  enable_cdi = true\n", dpkg: installed("containerd.io", "1.7.27-1")},
			host.Pass, "containerd 1.7.27", ""},
		"containerd 1.7, configured in a file that is not imported": {map[string]string{"usr/bin/containerd": "", containerd: "version = 2\n",
			"etc/containerd/conf.d/cdi.toml": "enable_cdi = true\n", dpkg: installed("containerd.io", "1.7.27-1")}, host.Warn, "reads CDI specs only where", "imports"},
		"containerd 1.7, imported": {map[string]string{"usr/bin/containerd": "", containerd: "imports = [\"conf.d/*.toml\"]\n",
			"etc/containerd/conf.d/cdi.toml": "enable_cdi = true\n", dpkg: installed("containerd.io", "1.7.27-1")}, host.Pass, "containerd 1.7.27", ""},
		"containerd 2": {map[string]string{"usr/bin/containerd": "", dpkg: installed("containerd.io", "2.1.4-1")}, host.Pass, "containerd 2.1.4", ""},
		"containerd 1.6": {map[string]string{"usr/bin/containerd": "", dpkg: installed("containerd", "1.6.20~ds1-1")}, host.Warn,
			"containerd 1.6.20 is older than 1.7", "a newer containerd"},
		"CRI-O": {map[string]string{"usr/bin/crio": ""}, host.Pass, "read by crio", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := healthy()
			for file, text := range test.files {
				n.files[file] = text
			}
			findings, _, err := n.verify(t)
			if err != nil {
				t.Fatal(err)
			}
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
