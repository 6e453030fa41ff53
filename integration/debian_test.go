package integration

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

const nodeKernel = "4.4.0-210-generic"

// debianFiles are what these programs look for in a machine.
var debianFiles = map[string]string{
	"etc/udev/udev.conf":                               "",
	"etc/initramfs-tools/initramfs.conf":               "MODULES=list\nCOMPRESS=gzip\nBUSYBOX=auto\n",
	"boot/vmlinuz-" + nodeKernel:                       "a kernel\n",
	"boot/config-" + nodeKernel:                        "CONFIG_RD_GZIP=y\n",
	"usr/lib/modules/" + nodeKernel + "/modules.order": "",
}

// layDebian lays out the talk's node so that this machine's programs can be its own
// (inDebian), without some of its files, and with others put over it.
func layDebian(t *testing.T, files map[string]string, without ...string) (root string) {
	t.Helper()
	root = unpack(t, examples(t)["talk-2xk4200.txtar"])
	for _, name := range append(without, "usr/sbin/grub-mkconfig") {
		hosttest.NoError(t, os.RemoveAll(filepath.Join(root, name)))
	}
	for _, dir := range []string{"dev", "tmp", "run", "var/tmp", "var/lib/initramfs-tools", "usr/lib", "etc/initramfs-tools/scripts/init-top", "etc/initramfs-tools/hooks"} {
		hosttest.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	// Programs and libraries lie in usr alone.
	hosttest.NoError(t, os.Rename(filepath.Join(root, "lib/modules"), filepath.Join(root, "usr/lib/modules")))
	hosttest.NoError(t, os.RemoveAll(filepath.Join(root, "lib")))
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		hosttest.NoError(t, os.Symlink("usr/"+dir, filepath.Join(root, dir)))
	}
	all := maps.Clone(debianFiles)
	maps.Copy(all, files)
	for name, text := range all {
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		hosttest.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o755))
	}
	makeModules(t, root)
	return root
}

// makeModules makes the modules that the node's kernel lists.
func makeModules(t *testing.T, root string) {
	t.Helper()
	modules := filepath.Join(root, "lib/modules", nodeKernel)
	for line := range strings.Lines(hosttest.Read(t, filepath.Join(modules, "modules.dep"))) {
		name, needs, _ := strings.Cut(line, ":")
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(modules, name)), 0o755))
		var depends []string
		for _, need := range strings.Fields(needs) {
			depends = append(depends, moduleName(need))
		}
		hosttest.NoError(t, os.WriteFile(filepath.Join(modules, name), kernelModule(moduleName(name), "depends="+strings.Join(depends, ",")), 0o644))
	}
	aliases := filepath.Join(modules, "modules.alias")
	text := hosttest.Read(t, aliases) // which the modules here do not tell
	run(t, "depmod", "--basedir", root, nodeKernel)
	hosttest.NoError(t, os.WriteFile(aliases, []byte(text), 0o644))
}

func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".ko"), "-", "_")
}

// inDebian runs a program where this machine's programs are those of the machine below
// root, and the kernel's file systems are there, which show that machine's functions and
// processor. What GRUB is told of the disk is made up.
func inDebian(t *testing.T, root string, argv ...string) (stdout, talk string, status int) {
	t.Helper()
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", `
		mkdir -p "$ROOT/../sys" "$ROOT/../proc" "$ROOT/../usr" "$ROOT/../work" "$ROOT/etc/alternatives"
		cp -a /etc/alternatives/. "$ROOT/etc/alternatives"
		mount -t overlay overlay -o "lowerdir=$ROOT/usr:/usr,upperdir=$ROOT/../usr,workdir=$ROOT/../work" "$ROOT/usr"
		mount --bind "$ROOT/sys" "$ROOT/../sys"
		mount --bind "$ROOT/proc" "$ROOT/../proc"
		mount -t proc proc "$ROOT/proc"
		mount --bind "$ROOT/../proc/cpuinfo" "$ROOT/proc/cpuinfo"
		[ ! -e "$ROOT/../proc/cmdline" ] || mount --bind "$ROOT/../proc/cmdline" "$ROOT/proc/cmdline"
		mount -t sysfs -o ro sysfs "$ROOT/sys"
		for d in bus class devices kernel; do mount --bind "$ROOT/../sys/$d" "$ROOT/sys/$d"; done
		mount --bind /dev "$ROOT/dev"
		[ -e "$ROOT/boot/efi" ] || exec "$@"
		# A partition is a file system of its own.
		mkdir -p "$ROOT/../efi"
		mount --bind "$ROOT/boot/efi" "$ROOT/../efi"
		mount -t tmpfs tmpfs "$ROOT/boot/efi"
		cp -a "$ROOT/../efi/." "$ROOT/boot/efi"
		status=0
		"$@" || status=$?
		rm -rf "$ROOT/../efi/"*
		cp -a "$ROOT/boot/efi/." "$ROOT/../efi"
		exit $status`, "sh"}, argv...)...)
	cmd.Env = append(os.Environ(), "ROOT="+root)
	return try(t, cmd)
}

func mustInDebian(t *testing.T, root string, argv ...string) (stdout string) {
	t.Helper()
	out, talk, status := inDebian(t, root, argv...)
	if status != 0 {
		t.Fatalf("%v: exit status %d: %s%s", argv, status, out, talk)
	}
	return out
}
