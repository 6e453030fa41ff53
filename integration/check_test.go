package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host/hosttest"
	"gpustack/integration/race"
)

// finding is what host check says in its JSON.
type finding struct {
	Check, Status, File, Seen, Effect, Remedy string
}

// check runs host check and returns its findings by check, the last of each.
func check(t *testing.T, cmd *exec.Cmd) (findings map[string]finding, verdict string, status int) {
	t.Helper()
	stdout, stderr, status := try(t, cmd)
	var report struct {
		Verdict  string
		Findings []finding
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	findings = map[string]finding{}
	for _, f := range report.Findings {
		findings[f.Check] = f
		if bad := f.Status == "warn" || f.Status == "fail"; bad && (f.Effect == "" || f.Remedy == "") || f.Seen == "" {
			t.Errorf("%+v", f)
		}
	}
	return findings, report.Verdict, status
}

// TestCheckUnprivileged: what only root may read is said to be so, and is neither
// passed nor failed.
func TestCheckUnprivileged(t *testing.T) {
	const nobody = 65534
	root, err := os.MkdirTemp(scratch, "check-") // where other users may go
	hosttest.NoError(t, err)
	hosttest.NoError(t, os.Chmod(root, 0o755))
	node := filepath.Join(root, "node")
	run(t, gpustack, "host", "unpack", examples(t)["talk-2xk4200.txtar"], node)
	tables := filepath.Join(node, "sys/firmware/acpi/tables")
	hosttest.NoError(t, os.MkdirAll(tables, 0o755))
	hosttest.NoError(t, os.WriteFile(filepath.Join(tables, "DMAR"), []byte("DMAR"), 0o400))
	// Distributions make the folder of nova-compute private.
	hosttest.NoError(t, os.MkdirAll(filepath.Join(node, "var/lib/nova/instances"), 0o755))
	hosttest.NoError(t, os.Chmod(filepath.Join(node, "var/lib/nova"), 0o700))
	asNobody := func() *exec.Cmd {
		cmd := exec.Command(gpustack, "host", "check", "--root", node, "-o", "json")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return cmd
	}
	findings, verdict, status := check(t, asNobody())
	if f := findings["interrupt_remapping"]; f.Status != "n/a" || f.Seen != "/sys/firmware/acpi/tables/DMAR: permission denied" || f.Remedy != "run gpustack as root" {
		t.Errorf("%+v", f)
	}
	if f := findings["preparable"]; f.Status != "pass" {
		t.Errorf("%+v", f)
	}
	if verdict != "not prepared" || status != 2 {
		t.Errorf("%s, exit status %d", verdict, status)
	}
	// The record is root's alone.
	run(t, gpustack, "host", "prepare", "--root", node, "--yes")
	findings, verdict, status = check(t, asNobody())
	if f := findings["prepared"]; f.Status != "n/a" || f.Seen != "/var/lib/gpustack/contract.json: permission denied" || f.Remedy != "run gpustack as root" {
		t.Errorf("%+v", f)
	}
	if verdict != "unknown" || status != 1 {
		t.Errorf("%s, exit status %d", verdict, status)
	}
}

// TestCheckTouchesNothing: host check changes no file and starts no program.
func TestCheckTouchesNothing(t *testing.T) {
	root := unpack(t, examples(t)["talk-2xk4200.txtar"])
	run(t, gpustack, "host", "prepare", "--root", root, "--yes")
	trace := filepath.Join(t.TempDir(), "trace")
	calls := "trace=execve,mkdirat,renameat,renameat2,unlinkat,fchmod,fchmodat,fchown,fsetxattr,symlinkat,linkat,truncate,ftruncate,fsync,flock,openat"
	try(t, exec.Command("strace", "-f", "-qq", "-o", trace, "-e", calls, gpustack, "host", "check", "--root", root))
	lines := strings.Split(strings.TrimSpace(hosttest.Read(t, trace)), "\n")
	if len(lines) < 100 {
		t.Fatalf("%d calls only", len(lines))
	}
	for i, line := range lines {
		opens := strings.Contains(line, " openat(") && !strings.Contains(line, "O_WRONLY") && !strings.Contains(line, "O_RDWR") && !strings.Contains(line, "O_CREAT")
		resumed := strings.Contains(line, "<... openat resumed>")
		starts := i == 0 && strings.Contains(line, " execve(")
		signal := strings.Contains(line, " --- SIG")
		ended := strings.Contains(line, "???( <detached ...>") // a thread that went with the process
		if !opens && !resumed && !starts && !signal && !ended {
			t.Error(line)
		}
	}
}

// TestCheckNodes: of real machines something is said, whatever they show, and each thing
// with its remedy.
func TestCheckNodes(t *testing.T) {
	roots, err := layNodes()
	hosttest.NoError(t, err)
	for table, root := range roots {
		t.Run(filepath.Base(table), func(t *testing.T) {
			t.Parallel()
			findings, verdict, status := check(t, exec.Command(gpustack, "host", "check", "--root", root, "-o", "json"))
			if len(findings) != 27 || verdict != "not prepared" || status != 2 {
				t.Errorf("%d checks, %s, exit status %d", len(findings), verdict, status)
			}
		})
	}
}

// TestPreparable: host check never says that a machine is preparable which host prepare refuses,
// and never the reverse: on real machines, on the examples, and on machines with one thing wrong.
func TestPreparable(t *testing.T) {
	type node struct {
		name, root string
		bent       bool
	}
	var nodes []node
	for name, file := range examples(t) {
		nodes = append(nodes, node{name: name, root: unpack(t, file)})
	}
	// A table has only PCI functions: the rest is that of an example.
	talk := examples(t)["talk-2xk4200.txtar"]
	tables, err := filepath.Glob(testNodes)
	if err != nil || len(tables) != 52 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	for _, table := range tables {
		root := unpack(t, talk)
		hosttest.NoError(t, os.RemoveAll(filepath.Join(root, "sys")))
		hosttest.NoError(t, layNode(table, root))
		nodes = append(nodes, node{name: filepath.Base(table), root: root})
	}
	for name, script := range bentNodes {
		root := unpack(t, talk)
		cmd := exec.Command("sh", "-e", "-c", script)
		cmd.Dir = root
		if _, talk, status := try(t, cmd); status != 0 {
			t.Fatalf("%s: exit status %d: %s", name, status, talk)
		}
		nodes = append(nodes, node{name, root, true})
	}
	var accepted, refused atomic.Int32
	t.Run("nodes", func(t *testing.T) {
		for _, n := range nodes {
			t.Run(n.name, func(t *testing.T) {
				t.Parallel()
				stdout, stderr, status := try(t, exec.Command(gpustack, "host", "prepare", "--root", n.root, "--dry-run"))
				findings, verdict, checked := check(t, exec.Command(gpustack, "host", "check", "--root", n.root, "-o", "json"))
				f := findings["preparable"]
				switch {
				case status == 2 && !n.bent:
					accepted.Add(1)
					if f.Status != "pass" {
						t.Errorf("%+v, which host prepare accepts:\n%s", f, stdout)
					}
				case status == 1: // n/a: a file may only be missing from the tree, or another check names the reason
					refused.Add(1)
					if f.Status != "fail" && f.Status != "n/a" {
						t.Errorf("%+v, which host prepare refuses:\n%s", f, stderr)
					}
				default:
					t.Errorf("host prepare: exit status %d\n%s%s", status, stdout, stderr)
				}
				hosttest.EqualIn(t, verdict+": exit status", map[bool]int{true: 1, false: 2}[verdict == "unknown"], checked)
			})
		}
	})
	if accepted.Load() < 10 || refused.Load() < 20 {
		t.Errorf("%d machines accepted, %d refused", accepted.Load(), refused.Load())
	}
}

// testNodes are the tables of real machines.
const testNodes = nodes + "/*.tsv"

// bentNodes are scripts that each change one thing of the example with two K4200, which host
// prepare then refuses.
var bentNodes = map[string]string{
	"no vfio-pci": `sed -i '/vfio-pci/d' lib/modules/*/modules.dep lib/modules/*/modules.builtin`,
	"group with a NIC": `rm sys/bus/pci/devices/0000:01:00.0/iommu_group
		ln -s ../../../../kernel/iommu_groups/32 sys/bus/pci/devices/0000:01:00.0/iommu_group
		mkdir -p sys/kernel/iommu_groups/32/devices
		ln -s ../../../../bus/pci/devices/0000:01:00.0 sys/kernel/iommu_groups/32/devices/0000:01:00.0`,
	"VFs": `echo 2 > sys/bus/pci/devices/0000:84:00.0/sriov_numvfs; echo 4 > sys/bus/pci/devices/0000:84:00.0/sriov_totalvfs`,
	"in use": `mkdir -p proc/1/ns proc/7/fd sys/class/drm sys/devices/pci0000:80/0000:80:02.0/0000:84:00.0/drm/card3
		ln -s 'pid:[4026531836]' proc/1/ns/pid
		ln -s /dev/dri/card3 proc/7/fd/3
		ln -s ../../devices/pci0000:80/0000:80:02.0/0000:84:00.0/drm/card3 sys/class/drm/card3`,
	"file of ours a folder": `mkdir -p etc/modprobe.d/zz-gpustack.conf`,
	"grub.d a file":         `mkdir -p etc/default/grub.d/zz-gpustack.cfg`,
	"hook a folder":         `mkdir -p etc/initramfs-tools/scripts/init-top/gpustack`,
	"no boot loader":        `rm -r boot/grub etc/default/grub`,
	"no kernel":             `rm -r lib/modules`,
	"other generator":       `rm -r etc/initramfs-tools; mkdir -p etc usr/bin; touch usr/bin/mkinitcpio etc/mkinitcpio.conf`,
	"computed arguments":    `echo 'GRUB_CMDLINE_LINUX="$(cat /etc/args)"' >> etc/default/grub`,
	"malformed modprobe.d":  `mkdir -p etc/modprobe.d; ln -s loop.conf etc/modprobe.d/loop.conf`,
	"malformed journal":     `mkdir -p var/lib/gpustack/journal; echo '{' > var/lib/gpustack/journal/1.json`,
	"malformed record":      `mkdir -p var/lib/gpustack; echo '{' > var/lib/gpustack/contract.json`,
	"mediated device": `uuid=83b8f4f2-509f-382f-3c1e-e6bfe0fa1001 gpu=devices/pci0000:80/0000:80:02.0/0000:84:00.0
		mkdir -p sys/bus/mdev/devices sys/$gpu/$uuid
		ln -s ../../../$gpu/$uuid sys/bus/mdev/devices/$uuid`,
	"console": `echo 1 > sys/bus/pci/devices/0000:84:00.0/boot_vga`,
}

// cacheFile is where host check remembers the contents of images.
const cacheFile = "var/cache/gpustack/initramfs.json"

// onTmpfs returns a folder on a file system that stores ctimes: the one of temporary files may be
// an overlay, whose images are hashed in each run.
func onTmpfs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	hosttest.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// layPrepared lays out the example that host prepare has prepared, as a root to change to: only of
// the running machine host check remembers images.
func layPrepared(t testing.TB) (root, image string) {
	t.Helper()
	root = filepath.Join(onTmpfs(t), "node")
	run(t, gpustack, "host", "unpack", examples(t)["talk-2xk4200.txtar"], root)
	run(t, gpustack, "host", "prepare", "--root", root, "--yes")
	put(t, filepath.Join(root, "gpustack"), hosttest.Read(t, gpustack), 0o755)
	const release = "4.4.0-210-generic"
	image = filepath.Join(root, "boot/initrd.img-"+release)
	layImage(t, root, release, "gzip", 1)
	old := time.Now().Add(-time.Hour)
	hosttest.NoError(t, os.Chtimes(image, old, old))
	return root, image
}

// inRoot returns the command that checks the machine below root as the running one.
func inRoot(root string) *exec.Cmd {
	return exec.Command("chroot", root, "/gpustack", "host", "check", "-o", "json")
}

// tryUndated runs a command. What it prints is returned without the time of the document.
func tryUndated(t *testing.T, cmd *exec.Cmd) (out, talk string, status int) {
	t.Helper()
	out, talk, status = try(t, cmd)
	return undated(out), talk, status
}

// undated returns a document without its time.
func undated(document string) string {
	return regexp.MustCompile(`(?m)^"time":.*\n`).ReplaceAllString(document, "")
}

// TestCheckRemembers: host check unpacks an image once, and again when it was replaced by another
// of the same size and time. Another root is not changed.
func TestCheckRemembers(t *testing.T) {
	root, image := layPrepared(t)
	trace := filepath.Join(t.TempDir(), "trace")
	opened := func(want string) bool {
		t.Helper()
		traced := exec.Command("strace", append([]string{"-f", "-qq", "-o", trace, "-e", "trace=openat,open"}, inRoot(root).Args...)...)
		findings, _, _ := check(t, traced)
		if f := findings["initramfs"]; f.Status != want {
			t.Errorf("%+v, want %s", f, want)
		}
		return strings.Contains(hosttest.Read(t, trace), "initrd.img")
	}
	_, _, _ = check(t, exec.Command(gpustack, "host", "check", "--root", root, "-o", "json"))
	if exists(filepath.Join(root, "var/cache")) {
		t.Error("another root was changed")
	}
	if !opened("pass") {
		t.Error("the image was not opened")
	}
	time.Sleep(2500 * time.Millisecond) // until its times prove that it is the same
	opened("pass")
	if opened("pass") {
		t.Error("the image was opened again")
	}
	// The script in it differs by one byte, and nothing is compressed that could change the size.
	before, err := os.Stat(image)
	hosttest.NoError(t, err)
	layImageOf(t, root, "4.4.0-210-generic", "gzip", 1, func(script string) string { return strings.Replace(script, "#", "%", 1) })
	if err := os.Truncate(image, before.Size()); err != nil { // what follows the archives are zeros
		t.Fatal(err)
	}
	hosttest.NoError(t, os.Chtimes(image, before.ModTime(), before.ModTime()))
	if after, err := os.Stat(image); err != nil || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		t.Fatalf("%v, %v", after, err)
	}
	if !opened("fail") {
		t.Error("the other image was not opened")
	}
}

// TestCheckForeignCache: a cache that another user can have written is not used. A warning says what to
// do.
func TestCheckForeignCache(t *testing.T) {
	root, _ := layPrepared(t)
	want, _, status := tryUndated(t, inRoot(root))
	file := filepath.Join(root, cacheFile)
	lie := strings.Replace(hosttest.Read(t, file), "vfio_pci.ko", "vfio_zzz.ko", 1)
	put(t, file, lie, 0o600)
	hosttest.NoError(t, os.Chown(filepath.Dir(file), 1234, 1234))
	got, talk, again := tryUndated(t, inRoot(root))
	const warning = "the cache of initramfs images is not used: /var/cache/gpustack: " +
		"belongs to another user, can be written by others, or is no plain folder (remove it: gpustack creates it again)"
	want = strings.Replace(want, `"warnings":[]`, "\"warnings\":[\n"+strconv.Quote(warning)+"]", 1)
	if got != want || talk != "gpustack: warning: "+warning+"\n" || again != status {
		t.Errorf("exit status %d, want %d: %s\n%s", again, status, talk, got)
	}
	hosttest.EqualIn(t, "the file of another user's folder was replaced", lie, hosttest.Read(t, file))
}

// TestCheckReadOnly: without a place to remember images, host check prints the same.
func TestCheckReadOnly(t *testing.T) {
	root, _ := layPrepared(t)
	want, _, status := tryUndated(t, inRoot(root))
	hosttest.NoError(t, os.RemoveAll(filepath.Join(root, "var/cache")))
	got, talk, again := tryUndated(t, exec.Command("unshare", "--mount", "sh", "-ec", `
		mount --bind "$0" "$0"
		mount -o remount,bind,ro "$0"
		exec chroot "$0" /gpustack host check -o json`, root))
	if got != want || again != status || strings.Contains(talk, "cache") {
		t.Errorf("exit status %d, want %d: %s\n%s", again, status, got, talk)
	}
	if exists(filepath.Join(root, "var/cache")) {
		t.Error("the root was not read-only")
	}
}

// TestCheckKilled: a run that is killed while it writes the cache leaves nothing that a later run
// would use, or that stays.
func TestCheckKilled(t *testing.T) {
	root, _ := layPrepared(t)
	want, _, status := tryUndated(t, inRoot(root))
	for _, call := range []string{"mkdirat", "flock", "fchmod", "fsync", "rename,renameat,renameat2"} {
		hosttest.NoError(t, os.RemoveAll(filepath.Join(root, "var/cache")))
		killed := append([]string{"-f", "-qq", "-o", "/dev/null", "-e", "trace=" + call, "-e", "inject=" + call + ":signal=KILL:when=1"}, inRoot(root).Args...)
		if _, _, s := try(t, exec.Command("strace", killed...)); s == status {
			t.Errorf("%s: not killed", call)
		}
		for range 2 {
			if got, talk, s := tryUndated(t, inRoot(root)); got != want || s != status {
				t.Errorf("%s: exit status %d: %s\n%s", call, s, got, talk)
			}
		}
		names, err := os.ReadDir(filepath.Dir(filepath.Join(root, cacheFile)))
		if err != nil || len(names) != 1 {
			t.Errorf("%s: %v, %v", call, names, err)
		}
	}
}

// BenchmarkCheck times host check on a server of 483 functions, 216 of which are prepared for
// guests, with three kernels whose images have the usual size: with the contents of the images
// remembered, beside a run that unpacks them, and beside lspci, which only lists the functions.
func BenchmarkCheck(b *testing.B) {
	root := filepath.Join(onTmpfs(b), "node")
	run(b, gpustack, "host", "unpack", examples(b)["talk-2xk4200.txtar"], root)
	for _, dir := range []string{"sys", "lib/modules", "boot"} {
		hosttest.NoError(b, os.RemoveAll(filepath.Join(root, dir)))
	}
	layServer(b, root, 483)
	// The generators' defaults on Debian, on RHEL, and on many older releases.
	kernels := []struct{ release, program string }{{"6.1.0-30-amd64", "zstd"}, {"6.1.0-35-amd64", "xz"}, {"6.1.0-37-amd64", "gzip"}}
	menu := ""
	for _, k := range kernels {
		layModules(b, root, k.release)
		menu += fmt.Sprintf("menuentry 'Linux %[1]s' {\n\tlinux /boot/vmlinuz-%[1]s root=UUID=7c3c ro quiet\n\tinitrd /boot/initrd.img-%[1]s\n}\n", k.release)
		put(b, filepath.Join(root, "boot/vmlinuz-"+k.release), "", 0o644)
		put(b, filepath.Join(root, "boot/initrd.img-"+k.release), "", 0o644)
	}
	put(b, filepath.Join(root, "boot/grub/grub.cfg"), menu, 0o644)
	run(b, gpustack, "host", "prepare", "--root", root, "--yes")
	put(b, filepath.Join(root, "boot/grub/grub.cfg"), strings.ReplaceAll(menu, "ro quiet", "ro quiet intel_iommu=on iommu=pt"), 0o644)
	put(b, filepath.Join(root, "gpustack"), hosttest.Read(b, gpustack), 0o755)
	for _, k := range kernels {
		layImage(b, root, k.release, k.program, 1500)
	}
	time.Sleep(2500 * time.Millisecond) // see TestCheckRemembers
	try(b, exec.Command("chroot", root, "/gpustack", "host", "check"))
	if n := strings.Count(hosttest.Read(b, filepath.Join(root, cacheFile)), `"names"`); n != len(kernels) {
		b.Fatalf("%d images are remembered", n)
	}
	// The machine was not rebooted, so the exit status is 2.
	const script = `chroot "$0" /gpustack host check >/dev/null || [ $? = 2 ]`
	race.Run(b,
		race.Peer{Name: "lspci", Argv: []string{"lspci", "-D", "-nnk", "-O", "sysfs.path=" + filepath.Join(root, "sys/bus/pci")}},
		race.Peer{Name: "unpacking", Argv: []string{"sh", "-ec", `rm -rf "$0/var/cache"; ` + script, root}},
		race.Peer{Name: "gpustack", Argv: []string{"sh", "-ec", script, root}},
	)
}

// layModules lays out the lists of a kernel's modules: as many modules and aliases as Debian's
// kernel has.
func layModules(t testing.TB, root, release string) {
	t.Helper()
	var dep, alias strings.Builder
	for _, m := range []string{"vfio/vfio", "vfio/vfio_iommu_type1", "vfio/pci/vfio-pci", "vfio/pci/vfio-pci-core", "gpu/drm/nouveau/nouveau"} {
		fmt.Fprintf(&dep, "kernel/drivers/%s.ko:\n", m)
	}
	alias.WriteString("alias pci:v000010DEd*sv*sd*bc03sc*i* nouveau\nalias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n")
	for i := range 4000 {
		fmt.Fprintf(&dep, "kernel/drivers/subsystem/family/module-%d.ko: kernel/drivers/subsystem/family/core-%d.ko kernel/drivers/subsystem/core.ko\n", i, i%200)
	}
	for i := range 20000 {
		fmt.Fprintf(&alias, "alias pci:v%08Xd%08Xsv*sd*bc*sc*i* module_%d\n", 0x1000+i%512, i, i%4000)
	}
	dir := filepath.Join(root, "lib/modules", release)
	put(t, filepath.Join(dir, "modules.dep"), dep.String(), 0o644)
	put(t, filepath.Join(dir, "modules.alias"), alias.String(), 0o644)
	put(t, filepath.Join(dir, "modules.builtin"), "kernel/drivers/pci/pci-stub.ko\n", 0o644)
}

// layImage makes the initramfs of a kernel as initramfs-tools does: microcode that is not
// compressed, and one archive with everything else, here modules of 64 KiB, which compress as
// binaries do, and what host prepare has planned.
func layImage(t testing.TB, root, release, program string, modules int) {
	t.Helper()
	layImageOf(t, root, release, program, modules, func(script string) string { return script })
}

// layImageOf makes an initramfs with another script.
func layImageOf(t testing.TB, root, release, program string, modules int, script func(string) string) {
	t.Helper()
	text := hosttest.Read(t, gpustack)
	var early, late bytes.Buffer
	addMember(&early, "kernel/x86/microcode/GenuineIntel.bin", text[:8<<20])
	addMember(&early, "TRAILER!!!", "")
	const size = 64 << 10
	for i := range modules {
		at := i * size % (len(text) - size)
		addMember(&late, fmt.Sprintf("usr/lib/modules/%s/kernel/drivers/subsystem/family/module-%d.ko", release, i), text[at:at+size])
	}
	for _, name := range []string{"vfio/vfio.ko", "vfio/vfio_iommu_type1.ko", "vfio/pci/vfio-pci.ko"} {
		addMember(&late, "usr/lib/modules/"+release+"/kernel/drivers/"+name, text[:size])
	}
	addMember(&late, "scripts/init-top/ORDER", "/scripts/init-top/gpustack \"$@\"\n[ -e /conf/param.conf ] && . /conf/param.conf\n/scripts/init-top/udev \"$@\"\n")
	addMember(&late, "scripts/init-top/gpustack", script(hosttest.Read(t, filepath.Join(root, "etc/initramfs-tools/scripts/init-top/gpustack"))))
	addMember(&late, "etc/modprobe.d/zz-gpustack.conf", hosttest.Read(t, filepath.Join(root, "etc/modprobe.d/zz-gpustack.conf")))
	addMember(&late, "TRAILER!!!", "")
	late.Write(make([]byte, 512))
	cmd := exec.Command(program, "-1", "-c")
	if program == "xz" {
		cmd.Args = append(cmd.Args, "--check=crc32", "-T1")
	}
	cmd.Stdin = &late
	packed, err := cmd.Output()
	hosttest.NoError(t, err)
	put(t, filepath.Join(root, "boot/initrd.img-"+release), early.String()+string(packed), 0o644)
}

// addMember adds a file to an archive in cpio's newc format (cpio(5) of libarchive).
func addMember(b *bytes.Buffer, name, content string) {
	fmt.Fprintf(b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		0, 0o100644, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
	b.Write(make([]byte, -b.Len()&3))
	b.WriteString(content)
	b.Write(make([]byte, -b.Len()&3))
}

func put(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	hosttest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	hosttest.NoError(t, os.WriteFile(path, []byte(text), mode))
}
