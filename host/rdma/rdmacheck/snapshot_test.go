package rdmacheck_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/host/rdma/rdmacheck"
	"gpustack/host/snapshot"
)

// TestSnapshot: a snapshot shows the same findings, and has no passwords of services.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	root := hosttest.Lay(t, `symlink usr/lib/x86_64-linux-gnu/libibverbs.so.1 -> libibverbs.so.1.14.44.0
symlink usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so -> ../libmlx5.so.1.24.44.0
symlink etc/systemd/system/slurmd.service -> /dev/null
`+hosttest.Fabric([]hosttest.HCA{{Address: "0000:0c:00.0", Device: "mlx5_0"}}, `-- etc/libibverbs.d/mlx5.driver --
driver mlx5
-- usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0 --
many other IBVERBS_PRIVATE_34 symbols
-- usr/lib/x86_64-linux-gnu/libmlx5.so.1.24.44.0 --
-- usr/lib/systemd/system/docker.service --
[Service]
LimitMEMLOCK=1M
-- usr/lib/systemd/system/slurmd.service --
[Service]
-- etc/systemd/system/docker.service.d/proxy.conf --
[Service]
Environment=HTTPS_PROXY=http://user:s3cret@proxy
LimitMEMLOCK=2M
-- etc/docker/daemon.json --
{"proxies": {"http-proxy": "http://user:s3cret@proxy"}, "default-ulimits": {"memlock": {"Name": "memlock", "Hard": 1, "Soft": 1}}}
-- etc/security/limits.conf --
* soft memlock 64
alice soft memlock 64
-- etc/security/limits.d/20-nproc.conf --
-- proc/modules --
ib_uverbs 1 0 - Live 0x0
`))
	judge := func(root host.Root) []host.Finding {
		devices := hosttest.Devices(t, root)
		findings, _, err := rdmacheck.Verify(rdmacheck.Observe(root, devices, change.Machine(root).Observe()))
		hosttest.NoError(t, err)
		return findings
	}
	want := judge(root)
	var tree snapshot.Tree
	hosttest.EqualIn(t, "recorded", want, judge(root.Recorded(&tree)))
	var text bytes.Buffer
	hosttest.NoError(t, tree.Write(&text, snapshot.Txtar))
	if strings.Contains(text.String(), "s3cret") || strings.Contains(text.String(), "many other") {
		t.Errorf("%s", text.String())
	}
	dir := filepath.Join(t.TempDir(), "copy")
	hosttest.NoError(t, os.Mkdir(dir, 0o755))
	hosttest.NoError(t, tree.Unpack(dir))
	replay := hosttest.Root(t, dir)
	hosttest.EqualIn(t, "replayed", want, judge(replay))

	// The remedies for locked memory work, all of them; docker's own limit is changed where it is set.
	limits := func() (remedies []string) {
		for _, f := range judge(root) {
			if f.Check == "memlock" && f.Status == host.Warn {
				remedies = append(remedies, f.Remedy.String())
			}
		}
		return remedies
	}
	for _, remedy := range limits() {
		command, _, _ := strings.Cut(strings.ReplaceAll(remedy, "/etc/", root.Path("/etc")+"/"), ", then")
		command, _, _ = strings.Cut(command, " && systemctl")
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil && !strings.HasPrefix(command, "change") {
			t.Errorf("%s: %s %v", command, out, err)
		}
	}
	hosttest.Equal(t, []string{"change or remove the limit in /etc/docker/daemon.json, then: systemctl daemon-reload && systemctl restart docker.service"},
		limits())
}
