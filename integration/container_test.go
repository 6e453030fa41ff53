package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/cdi"
	"gpustack/host/container"
	"gpustack/host/hosttest"
	contract "gpustack/host/machine"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/integration/cudaparts"
)

// apartForContainers is the beginning of a script whose containers leave the machine as it was:
// /etc is a copy, /run is empty, and /dev has no device of the machine, as libraries of NVIDIA's
// driver create nodes there. The configuration of podman permits containers where these tests run:
// within other containers, without CAP_SYS_RESOURCE, and with any version of cgroups.
const apartForContainers = `set -eu
dir=$1; shift
mkdir -p "$dir/etc" "$dir/dev"
cp -a /etc/. "$dir/etc"
mount --bind "$dir/etc" /etc
mount -t tmpfs tmpfs /run
mkdir -p /etc/cdi /run/cdi /etc/containers
cat >/etc/containers/containers.conf <<END
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
netns = "none"
log_driver = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
END
cat >/etc/containers/storage.conf <<END
[storage]
driver = "vfs"
graphroot = "$dir/storage"
runroot = "/run/containers/storage"
END
mount -t tmpfs -o mode=755 tmpfs "$dir/dev"
mkdir "$dir/dev/pts" "$dir/dev/shm" "$dir/dev/mqueue"
for node in null:3 zero:5 full:7 random:8 urandom:9; do
	mknod -m 666 "$dir/dev/${node%:*}" c 1 "${node#*:}"
done
mknod -m 666 "$dir/dev/tty" c 5 0
ln -s pts/ptmx "$dir/dev/ptmx"
ln -s /proc/self/fd "$dir/dev/fd"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$dir/dev/pts"
mount --rbind "$dir/dev" /dev
`

// withContainers runs a script that may start containers, in a mount namespace and a PID namespace
// of its own. Its last arguments are args.
func withContainers(t *testing.T, script string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	dir := t.TempDir()
	argv := slices.Concat([]string{"--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "sh", "-c", apartForContainers + script, "sh", dir}, args)
	stdout, stderr, status = try(t, exec.Command("unshare", argv...))
	if left := rootedIn(t, dir); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
	return stdout, stderr, status
}

const multiarch = "usr/lib/x86_64-linux-gnu"

// install lays out programs and libraries of this machine, with their libraries, in the root
// folder of an image.
func install(t *testing.T, root string, files ...string) {
	t.Helper()
	for _, link := range []string{"lib", "lib64", "bin", "sbin"} {
		hosttest.NoError(t, os.MkdirAll(filepath.Join(root, "usr", link), 0o755))
		if err := os.Symlink("usr/"+link, filepath.Join(root, link)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Clone(files) {
		for line := range strings.Lines(run(t, "ldd", name)) {
			for word := range strings.FieldsSeq(line) {
				if strings.HasPrefix(word, "/") {
					files = append(files, word)
				}
			}
		}
	}
	for _, name := range files {
		real, err := filepath.EvalSymlinks(filepath.Dir(name))
		hosttest.NoError(t, err)
		to := filepath.Join(root, real)
		hosttest.NoError(t, os.MkdirAll(to, 0o755))
		run(t, "cp", "--dereference", name, to)
	}
}

// layDriver copies the driver's libraries of a release to a folder, with the links that packages
// have.
func layDriver(t *testing.T, release cudaparts.Release, dir string) {
	t.Helper()
	hosttest.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"libcuda1", "libnvidia-ml1"} {
		part, err := cudaparts.Fetch(t.Context(), release, name)
		hosttest.NoError(t, err)
		run(t, "cp", "-a", filepath.Join(part.Dir, cudaparts.Folder)+"/.", dir)
	}
}

// python is what an image needs to run a script of Python: its standard library is the machine's.
// The libraries are those that libcuda is linked to.
func python(t *testing.T, root string) {
	t.Helper()
	ctypes, err := filepath.Glob("/usr/lib/python3.*/lib-dynload/_ctypes.cpython-*.so")
	if err != nil || len(ctypes) != 1 {
		t.Fatalf("ctypes: %q, %v", ctypes, err)
	}
	interpreter, err := filepath.EvalSymlinks("/usr/bin/python3")
	hosttest.NoError(t, err)
	files := []string{interpreter, ctypes[0]}
	for _, name := range []string{"libdl.so.2", "librt.so.1", "libpthread.so.0"} {
		files = append(files, filepath.Join("/", multiarch, name))
	}
	install(t, root, files...)
	hosttest.NoError(t, os.Symlink(filepath.Base(interpreter), filepath.Join(root, "usr/bin/python3")))
	writeFile(t, filepath.Join(root, "etc/ld.so.conf"), "include /etc/ld.so.conf.d/*.conf\n")
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	hosttest.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	hosttest.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

// inContainer defines a shell function: in_container ROOT DEVICE SCRIPT runs a script of Python in
// a container of a root folder with a CDI device, and prints what it printed.
const inContainer = `
in_container() {
	podman run --rm --device "$2" --env PYTHONDONTWRITEBYTECODE=1 \
		$(for dir in /usr/lib/python3.*; do echo --volume $dir:$dir:ro; done) --rootfs "$1" /usr/bin/python3 -c "$3" 2>&1 || echo "exit status $?"
}
`

// whichCUDA prints which version of CUDA the libcuda is for that the loader of the container finds.
// cuDriverGetVersion needs no GPU.
const whichCUDA = `
import ctypes
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as e:
    print(e)
else:
    version = ctypes.c_int()
    print("error" if cuda.cuDriverGetVersion(ctypes.byref(version)) else version.value)
`

// What cuDriverGetVersion of each release's libcuda answers, and the loader's words for none.
const (
	cuda470 = "11040"
	cuda535 = "12020"
	cuda550 = "12040"
	noCUDA  = "libcuda.so.1: cannot open shared object file: No such file or directory"
)

// librarySpec is a CDI spec that injects the node's libcuda by its SONAME link.
func librarySpec(class, host, folder, environment string) string {
	return fmt.Sprintf(`{"cdiVersion":"0.5.0","kind":"test.local/%s","devices":[{"name":"gpu","containerEdits":{"env":["NVIDIA_VISIBLE_DEVICES=void"]}}],
"containerEdits":{"env":[%s],"mounts":[{"hostPath":"%s/libcuda.so.1","containerPath":"%s/libcuda.so.1","options":["ro","nosuid","nodev","rbind","rprivate"]}]}}
`, class, environment, host, folder)
}

// TestContainerLibraries: which libcuda real containers get from a node with driver 535, for each
// kind of image and each way to inject the library (docs/containers.md). Without LD_LIBRARY_PATH a
// folder that the image's cache does not know is not searched, and a copy of the image in another
// folder of its cache wins against one in a default folder.
func TestContainerLibraries(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	host := filepath.Join(base, "host")
	layDriver(t, cudaparts.Bookworm, host)
	own := func(release cudaparts.Release, folder string, listed bool) func(root string) {
		return func(root string) {
			layDriver(t, release, filepath.Join(root, folder))
			if listed {
				writeFile(t, filepath.Join(root, "etc/ld.so.conf.d/driver.conf"), "/"+folder+"\n")
			}
		}
	}
	const compat = "usr/local/cuda/compat"
	images := []struct {
		name string
		make func(root string)
		// the libcuda that a container gets: injected into a folder of its own without and with
		// LD_LIBRARY_PATH, and into the default folder of the image's loader
		folder, path, loader string
	}{
		{"none", func(string) {}, noCUDA, cuda535, cuda535},
		{"newer", own(cudaparts.Trixie, multiarch, false), cuda550, cuda535, cuda535},
		{"older", own(cudaparts.Bullseye, multiarch, false), cuda470, cuda535, cuda535},
		{"file", func(root string) {
			own(cudaparts.Trixie, multiarch, false)(root)
			run(t, "sh", "-ec", "cd $0; rm libcuda.so libcuda.so.1; mv libcuda.so.* libcuda.so.1", filepath.Join(root, multiarch))
		}, cuda550, cuda535, cuda535},
		{"debian", own(cudaparts.Trixie, cudaparts.Folder, true), cuda550, cuda535, cuda550},
		{"compat", own(cudaparts.Trixie, compat, false), noCUDA, cuda535, cuda535},
		{"compat-listed", own(cudaparts.Trixie, compat, true), cuda550, cuda535, cuda550},
	}
	const folder = "/usr/local/nvidia/lib64"
	specs := map[string]string{
		"folder": librarySpec("folder", host, folder, ""),
		"path":   librarySpec("path", host, folder, `"LD_LIBRARY_PATH=`+folder+`"`),
		"loader": librarySpec("loader", host, "/"+multiarch, ""),
	}
	script, want := inContainer, ""
	for class, text := range specs {
		script += "cat >/etc/cdi/" + class + ".json <<'END'\n" + text + "END\n"
	}
	for _, image := range images {
		root := filepath.Join(base, image.name)
		python(t, root)
		image.make(root)
		run(t, "ldconfig", "-r", root)
		// The engine makes the files on which it mounts others: "loader" is the last one.
		for _, row := range [][2]string{{"folder", image.folder}, {"path", image.path}, {"loader", image.loader}} {
			script += fmt.Sprintf("echo %s %s $(in_container $1/%[1]s test.local/%[2]s=gpu '%s')\n", image.name, row[0], whichCUDA)
			want += image.name + " " + row[0] + " " + row[1] + "\n"
		}
	}
	out, talk, status := withContainers(t, script, base)
	if diff := cmp.Diff(want, out); diff != "" || status != 0 {
		t.Errorf("exit status %d (-want +got):\n%s%s", status, diff, talk)
	}
}

// ourSpec returns the CDI spec of this kind that container prepare writes for a node with one GPU,
// whose libraries are in a folder, for containers in whose folder they are to be.
func ourSpec(t *testing.T, kind, libraries, folder string) string {
	t.Helper()
	const gpu = "sys/bus/pci/devices/0000:84:00.0/"
	root := hosttest.Lay(t, "-- "+gpu+"class --\n0x030200\n-- "+gpu+"vendor --\n0x10de\n-- "+gpu+"device --\n0x20b2\n")
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil || len(devices) != 1 {
		t.Fatal(devices, err)
	}
	minor, d := 0, devices[0]
	driver := nvidia.Driver{GPUs: []nvidia.GPU{{Address: d.Address, Minor: &minor}}}
	for _, link := range nvidia.CoreLinks() {
		if file, err := filepath.EvalSymlinks(filepath.Join(libraries, link)); err == nil {
			driver.Libraries = append(driver.Libraries, nvidia.Library{Folder: libraries, Link: link, File: file})
		}
	}
	specs := container.SpecOf(&contract.Containers{
		Functions: []contract.ContainerFunction{{Address: d.Address, VendorID: *d.VendorID, ProductID: *d.ProductID}},
	}, driver, rdma.Stack{}, devices)
	if specs.GPU == nil || len(specs.Missing) > 0 || len(specs.GPU.ContainerEdits.Mounts) < 2 {
		t.Fatalf("%+v", specs)
	}
	text, err := cdi.Text(*specs.GPU)
	hosttest.NoError(t, err)
	return strings.NewReplacer(cdi.GPUKind, kind, container.LibraryFolder, folder).Replace(string(text))
}

// TestContainerUpgrade: the driver is upgraded from 535 to 550 and the kernel gives nvidia-uvm
// another major. The spec of container prepare, with links and without majors, still gives
// containers the right library and device. One with a version does not start them; one with a
// major gives them another device, and no program says so. Nodes of the driver are played by
// devices of which every kernel has two.
func TestContainerUpgrade(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	host, root := filepath.Join(base, "host"), filepath.Join(base, "image")
	layDriver(t, cudaparts.Bookworm, host)
	layDriver(t, cudaparts.Trixie, filepath.Join(base, "upgrade"))
	python(t, root)
	run(t, "ldconfig", "-r", root)
	spec := func(class, library, major string) string {
		return fmt.Sprintf(`{"cdiVersion":"0.5.0","kind":"test.local/%s","devices":[{"name":"0000:84:00.0","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0"}]}}],
"containerEdits":{"deviceNodes":[{"path":"/dev/nvidia-uvm"%s}],
"mounts":[{"hostPath":"%s/%s","containerPath":"/%s/libcuda.so.1","options":["ro","nosuid","nodev","rbind","rprivate"]}]}}
`, class, major, host, library, multiarch)
	}
	part, err := cudaparts.Fetch(t.Context(), cudaparts.Bookworm, "libcuda1")
	hosttest.NoError(t, err)
	const zero, full = "1:5", "1:7" // of nvidia-uvm before and after
	evergreen := ourSpec(t, "test.local/evergreen", host, "/"+multiarch)
	script := inContainer
	for class, text := range map[string]string{
		"evergreen": evergreen,
		"major":     spec("major", "libcuda.so.1", `,"type":"c","major":1,"minor":5`),
		"version":   spec("version", "libcuda.so."+part.Upstream(), ""),
	} {
		script += "cat >/etc/cdi/" + class + ".json <<'END'\n" + text + "END\n"
	}
	const devices = whichCUDA + `
import os
for name in "nvidia0", "nvidia-uvm":
    number = os.stat("/dev/" + name).st_rdev
    print(name, "%d:%d" % (os.major(number), os.minor(number)))
`
	script += `
look() {
	for class in evergreen major version; do
		echo $1 $class $(in_container "$base/image" "test.local/$class=0000:84:00.0" '` + devices + `')
	done
}
base=$1
mknod -m 666 /dev/nvidia0 c 1 3
mknod -m 666 /dev/nvidiactl c 1 3
mknod -m 666 /dev/nvidia-uvm c 1 5
mknod -m 666 /dev/nvidia-uvm-tools c 1 5
look before
sha256sum /etc/cdi/*.json >"$base/sums"
rm -r "$base/host" /dev/nvidia-uvm
mv "$base/upgrade" "$base/host"
mknod -m 666 /dev/nvidia-uvm c 1 7
look after
sha256sum --quiet --check "$base/sums"
`
	out, talk, status := withContainers(t, script, base)
	hosttest.EqualIn(t, "the upgrade changes our spec", evergreen, ourSpec(t, "test.local/evergreen", host, "/"+multiarch))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{
		"before evergreen " + cuda535 + " nvidia0 1:3 nvidia-uvm " + zero,
		"before major " + cuda535 + " nvidia0 1:3 nvidia-uvm " + zero,
		"before version " + cuda535 + " nvidia0 1:3 nvidia-uvm " + zero,
		"after evergreen " + cuda550 + " nvidia0 1:3 nvidia-uvm " + full,
		"after major " + cuda550 + " nvidia0 1:3 nvidia-uvm " + zero,
	}
	if status != 0 || len(lines) != 6 || !slices.Equal(lines[:5], want) {
		t.Fatalf("exit status %d, want %q:\n%s%s", status, want, out, talk)
	}
	if last := lines[5]; !strings.HasPrefix(last, "after version ") || !strings.Contains(last, "libcuda.so."+part.Upstream()) || !strings.Contains(last, "no such file or directory") {
		t.Errorf("%s", last)
	}
}

// playedRpingInContainer is an rping that moves its data by TCP. It fails if it may do more than it
// needs, or has other devices than those of the adapter.
const playedRpingInContainer = `#!/bin/sh
for line in Uid:.65534.65534.65534.65534 CapEff:.0000000000000000 CapBnd:.0000000000000000 NoNewPrivs:.1; do
	grep -q "^$line$" /proc/self/status || { echo "not $line" >&2; exit 255; }
done
[ "$(echo /dev/infiniband/*)" = "/dev/infiniband/rdma_cm /dev/infiniband/uverbs0" ] || { echo "other devices" >&2; exit 255; }
for a; do [ "$prev" = -C ] && count=$a; [ "$prev" = -a ] && at=$a; [ "$prev" = -p ] && port=$a; prev=$a; done
if [ "$1" = -s ]; then
	nc -l -p $port >/dev/null
	count=10
elif ! echo x | nc -w 5 $at $port; then
	echo "cma event RDMA_CM_EVENT_REJECTED, error 8" >&2
	exit 255
fi
n=0
while [ $n -lt $count ]; do echo "ping data: rdma-ping-$n: ABC"; n=$((n+1)); done
`

// TestContainerPing: real podman accepts what rdma test --container asks of it. The containers have
// no privileges and the devices of a CDI spec, and are gone when the test ends, also at its limit.
func TestContainerPing(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	root := filepath.Join(base, "image")
	for _, dir := range []string{"bin", "etc", "tmp"} {
		hosttest.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	run(t, "cp", "/bin/busybox", filepath.Join(root, "bin"))
	for _, name := range []string{"sh", "nc", "grep", "ls"} {
		hosttest.NoError(t, os.Symlink("busybox", filepath.Join(root, "bin", name)))
	}
	writeFile(t, filepath.Join(root, "bin/rping"), playedRpingInContainer)
	hosttest.NoError(t, os.Chmod(filepath.Join(root, "bin/rping"), 0o755))
	run(t, "tar", "-C", root, "-cf", filepath.Join(base, "image.tar"), ".")
	node := hosttest.RDMA(t, "testdata/rdma/debian12-rxe.txtar").Path("/")
	script := `
image=$1 node=$2 gpustack=$3
ip link set lo up; ip address add 192.168.77.1/24 dev lo
mkdir /dev/infiniband
mknod -m 666 /dev/infiniband/uverbs0 c 1 3
mknod -m 666 /dev/infiniband/rdma_cm c 1 5
cat >/run/cdi/hca.json <<'END'
{"cdiVersion":"0.5.0","kind":"gpustack.local/hca",
"devices":[{"name":"rxe0","containerEdits":{"deviceNodes":[{"path":"/dev/infiniband/uverbs0","type":"c","permissions":"rw"}]}}],
"containerEdits":{"deviceNodes":[{"path":"/dev/infiniband/rdma_cm","type":"c","permissions":"rw"}]}}
END
podman import --quiet "$image" localhost/rdma:1 >/dev/null
podman import --quiet --change 'ENV PATH=/none' "$image" localhost/bare:1 >/dev/null
# sysfs of this machine, with the RDMA device of another one
mkdir /run/sys
mount --rbind /sys /run/sys
mount -t tmpfs tmpfs /sys
for name in $(ls -A "$node/sys"); do mkdir -p "/sys/$name"; cp -a "$node/sys/$name/." "/sys/$name"; done
mkdir -p /sys/fs; mount --rbind /run/sys/fs /sys/fs 2>/dev/null || { mkdir -p /sys/fs/cgroup; mount --rbind /run/sys/fs/cgroup /sys/fs/cgroup; }
set +e
for args in localhost/rdma:1 "localhost/bare:1 --peer 192.168.77.1" "localhost/rdma:1 --listen --wait 3s" localhost/none; do
	$gpustack rdma test --container $args 2>&1
	echo "exit status $?"
done
sed -i 's/rdma_cm/rdma_no/' /run/cdi/hca.json
$gpustack rdma test --container localhost/rdma:1 2>&1
echo "exit status $?"
echo "containers: $(podman ps --all --quiet)"
$gpustack rdma test --container localhost/rdma:1 --listen --wait 1m >/dev/null 2>&1 & pid=$!
while [ -z "$(podman ps --quiet)" ]; do sleep 0.1; done
kill -INT $pid; wait $pid; echo "interrupted: $?"
echo "containers after it: $(podman ps --all --quiet)"
`
	out, talk, status := withContainers(t, script, filepath.Join(base, "image.tar"), node, gpustack)
	for _, want := range []string{
		"pass: rxe0 port 1 (Ethernet, eth9 192.168.77.1, both sides here): 10 of 10 iterations of 64 bytes",
		"  in containers: podman run --device gpustack.local/hca=rxe0 localhost/rdma:1\n",
		"error: localhost/bare:1: the image has no rping\n",
		"cause: no peer completed a test within 3s\n",
		"error: podman: localhost/none: no such image on this machine: a test pulls none\n",
		"  in containers: podman run --device /dev/infiniband/uverbs0:/dev/infiniband/uverbs0:rw --device /dev/infiniband/rdma_cm:",
		"containers: \n", "interrupted: 130\ncontainers after it: \n",
	} {
		hosttest.Contains(t, want, out)
	}
	if statuses := regexp.MustCompile(`exit status \d+`).FindAllString(out, -1); status != 0 ||
		!slices.Equal(statuses, []string{"exit status 0", "exit status 1", "exit status 2", "exit status 1", "exit status 0"}) {
		t.Errorf("exit status %d, %q", status, statuses)
	}
	if t.Failed() {
		t.Logf("%s\n%s", out, talk)
	}
}
