package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// machineState is a script that prints what the tests must leave as it is: the packages, /boot, and
// other files of the machine. Its mounts are the machine of TestApart.
const machineState = `
	dpkg-query --show --showformat='${Package} ${Version} ${db:Status-Status}\n'
	find /boot /etc /opt /usr/sbin -printf '%p %m %s %T@\n' | sort
`

// TestApart runs a command in .ci/apart that installs a package, writes into /boot and starts a
// service: packages and /boot are the same afterwards, and the service was not started. The machine
// has a /boot, an /etc and an /opt that are file systems of their own.
func TestApart(t *testing.T) {
	dir := t.TempDir()
	started, kept, deb := filepath.Join(dir, "started"), filepath.Join(dir, "kept"), filepath.Join(dir, "apart.deb")
	for file, text := range map[string]string{
		"DEBIAN/control":            "Package: gpustack-apart\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: a service that starts\n",
		"DEBIAN/postinst":           "#!/bin/sh\nset -e\ntouch /boot/installed\ninvoke-rc.d gpustack-apart start\n",
		"etc/init.d/gpustack-apart": "#!/bin/sh\ntouch " + started + "\n",
	} {
		path := filepath.Join(dir, "package", file)
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		hosttest.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	run(t, "dpkg-deb", "--build", "--root-owner-group", filepath.Join(dir, "package"), deb)
	before, after := filepath.Join(dir, "before"), filepath.Join(dir, "after")
	apart := func(limit, script string) (stdout, talk string, status int) {
		cmd := exec.Command("unshare", "--mount", "sh", "-c", `
			set -e
			mount -t tmpfs tmpfs /boot
			touch /boot/vmlinuz
			mkdir "$DIR/etc"
			cp -a /etc/. "$DIR/etc"
			mount --bind "$DIR/etc" /etc
			mount -t tmpfs -o mode=711 tmpfs /opt
			{ `+machineState+` } >"$DIR/before"
			set +e
			`+limit+` ../.ci/apart sh -c "$1"
			status=$?
			{ `+machineState+` } >"$DIR/after"
			umount /etc
			rm -r "$DIR/etc"
			exit $status`, "sh", script)
		cmd.Env = append(os.Environ(), "DIR="+dir, "DEB="+deb, "KEPT="+kept, "GPUSTACK_APART=")
		stdout, talk, status = try(t, cmd)
		hosttest.EqualIn(t, "the machine has changed", hosttest.Read(t, before), hosttest.Read(t, after))
		return stdout, talk, status
	}

	const fallback = "apart: Packages that are missing are therefore installed on this machine, unless they change how it boots or what runs on it.\n"
	if err := exec.Command("unshare", "--mount", "sh", "-ec", `
		mount -t tmpfs tmpfs /mnt
		mkdir /mnt/upper /mnt/work /mnt/root
		mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root`).Run(); err != nil {
		// A kernel or a container that permits no overlay: the command runs all the same.
		out, talk, status := apart("", `echo $GPUSTACK_APART; exit 3`)
		if status != 3 || out != "none\n" || !strings.Contains(talk, fallback) {
			t.Errorf("without overlays: exit status %d: %s%s", status, out, talk)
		}
		return
	}
	out, talk, status := apart("", `
		echo $GPUSTACK_APART, in /boot: $(ls -A /boot), $(pwd), $(stat -c %a /opt), $(go env GOVERSION)
		../.ci/apart echo nested: $(stat -f -c %T /)
		touch "$KEPT" /usr/bin/gpustack-apart /etc/gpustack-apart /opt/gpustack-apart
		dpkg --install "$DEB" >/dev/null
		dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' gpustack-apart
		ls -A /boot
		exit 3`)
	want := "overlay, in /boot: , " + strings.TrimSpace(run(t, "pwd")) + ", 711, " + run(t, "go", "env", "GOVERSION") +
		"nested: overlayfs\ngpustack-apart installed\ninstalled\n"
	if diff := cmp.Diff(want, out); diff != "" || status != 3 || strings.Contains(talk, "apart:") {
		t.Errorf("exit status %d: %s%s", status, diff, talk)
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("the service was started")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a temporary file was not kept: %v", err)
	}
	for _, file := range []string{"/usr/bin/gpustack-apart", "/etc/gpustack-apart", "/opt/gpustack-apart"} {
		if _, err := os.Lstat(file); err == nil {
			t.Errorf("%s was written on the machine", file)
		}
	}

	if out, talk, status := apart("env -u HOME", "echo $GPUSTACK_APART, $HOME"); status != 0 || out != "overlay, /root\n" {
		t.Errorf("without HOME: exit status %d: %s%s", status, out, talk)
	}

	// It is policy-rc.d that kept the service from starting.
	if out, talk, status := apart("", `printf '#!/bin/sh\n' >/usr/sbin/policy-rc.d; dpkg --install "$DEB" >/dev/null`); status != 0 {
		t.Errorf("exit status %d: %s%s", status, out, talk)
	}
	if err := os.Remove(started); err != nil {
		t.Errorf("the service was not started where policy-rc.d permits it: %v", err)
	}

	// As in a container, which permits no mount namespace.
	out, talk, status = apart("setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin", `echo $GPUSTACK_APART, $(ls -A /boot); exit 4`)
	if status != 4 || out != "none, vmlinuz\n" || !strings.Contains(talk, fallback) {
		t.Errorf("without namespaces: exit status %d: %s%s", status, out, talk)
	}

	// What changes meanwhile is printed.
	_, talk, status = try(t, exec.Command("unshare", "--mount", "sh", "-ec", `
		mount -t tmpfs tmpfs /boot
		GPUSTACK_APART= setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin ../.ci/apart touch /boot/new`))
	if status != 0 || !strings.Contains(talk, "apart: in the meantime this machine has changed") || !strings.Contains(talk, "\nfile /boot/new 0 ") {
		t.Errorf("a changed machine: exit status %d: %s", status, talk)
	}
}

// TestSetupUnprivileged runs .ci/setup as an ordinary user, whose commands run as they are.
func TestSetupUnprivileged(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":    "module gpustack\n\ngo 1.26.0\n",
		"bin/go":    "#!/bin/sh\necho go1.26.0\n",
		"bin/make":  "#!/bin/sh\necho make \"$@\", uid $(id -u), $GPUSTACK_APART\n",
		".ci/setup": hosttest.Read(t, "../.ci/setup"), ".ci/apart": hosttest.Read(t, "../.ci/apart"), ".ci/packages": hosttest.Read(t, "../.ci/packages"),
	} {
		path := filepath.Join(dir, file)
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		hosttest.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	// t.TempDir is in a folder that is closed to other users.
	hosttest.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", filepath.Join(dir, ".ci/setup"), "make", "unit")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GPUSTACK_APART=", "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	if out, talk, status := try(t, cmd); status != 0 || talk != "" || out != "make unit, uid 65534, none\n" {
		t.Errorf("exit status %d: %s%s", status, out, talk)
	}
}
