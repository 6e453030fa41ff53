package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/integration/cudaparts"
)

// played compiles a libcuda that plays a GPU (testdata/cuda/libcuda.c) into a folder.
func playedCUDA(t *testing.T, dir string, result int, address, wrong string) {
	t.Helper()
	hosttest.NoError(t, os.MkdirAll(dir, 0o755))
	run(t, "tcc", "-shared", "-nostdlib", fmt.Sprintf("-DRESULT=%d", result), fmt.Sprintf("-DADDRESS=%q", address), "-DWRONG="+wrong,
		"-o", filepath.Join(dir, "libcuda.so.1"), "testdata/cuda/libcuda.c")
}

// aGPU lets the machine of a script have a GPU at 84:00.0 that is bound to NVIDIA's driver: in
// sysfs and procfs as the driver shows it, with nodes that no driver has. spec LIBRARY FOLDER NODES
// writes the CDI spec of the GPU, with a libcuda that is mounted into a folder.
const aGPU = `
mkdir /run/sys
mount --rbind /sys /run/sys
mount -t tmpfs tmpfs /sys
mkdir -p /sys/fs; mount --rbind /run/sys/fs /sys/fs
gpu=/sys/bus/pci/devices/0000:84:00.0
mkdir -p $gpu /sys/bus/pci/drivers/nvidia
echo 0x030000 >$gpu/class; echo 0x10de >$gpu/vendor; echo 0x11b4 >$gpu/device
ln -s ../../../../bus/pci/drivers/nvidia $gpu/driver
mount -t tmpfs tmpfs /proc/driver
mkdir -p /proc/driver/nvidia/gpus/0000:84:00.0
echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:00:00 UTC 2025' >/proc/driver/nvidia/version
printf 'Model: \t\t Quadro K4200\nGPU UUID: \t GPU-11111111-2222-3333-4444-555555555555\nBus Location: \t 0000:84:00.0\nDevice Minor: \t 0\n' \
	>/proc/driver/nvidia/gpus/0000:84:00.0/information
nodes() {
	mknod -m 666 /dev/nvidia0 c 195 0; mknod -m 666 /dev/nvidiactl c 195 255; mknod -m 666 /dev/nvidia-uvm c 1 3
} 2>/dev/null
nodes
spec() {
	local library=$1 folder=$2 nodes= mounts=; shift 2
	for node; do nodes="$nodes,{\"path\":\"/dev/$node\"}"; done
	[ $library = none ] || mounts="{\"hostPath\":\"$base/$library/libcuda.so.1\",\"containerPath\":\"$folder/libcuda.so.1\",\"options\":[\"ro\",\"rbind\"]}"
	cat >/etc/cdi/gpustack-gpu.json <<END
{"cdiVersion":"0.5.0","kind":"gpustack.local/gpu","devices":[{"name":"0000:84:00.0","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0"}]}}],
"containerEdits":{"deviceNodes":[{"path":"/dev/nvidiactl"}$nodes],"mounts":[$mounts]}}
END
}
`

// TestContainerTest: container test starts real containers, without privileges, and proves that
// CUDA computes in them: by a libcuda that plays a GPU, by NVIDIA's own libraries, which find none
// here, and by commands. A fault leads to its cause. Nothing is left, also after a time limit and
// Ctrl-C.
func TestContainerTest(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, dir := range []string{filepath.Dir(base), base} { // nobody runs libcuda from there
		hosttest.NoError(t, os.Chmod(dir, 0o755))
	}
	const address = "0000:84:00.0"
	playedCUDA(t, filepath.Join(base, "good"), 0, address, "")
	playedCUDA(t, filepath.Join(base, "wrong"), 0, address, "v[7]++")
	playedCUDA(t, filepath.Join(base, "other"), 0, "0000:0a:00.0", "")
	for _, result := range []int{802, 803, 804, 999} {
		playedCUDA(t, filepath.Join(base, fmt.Sprint(result)), result, address, "")
	}
	for _, release := range cudaparts.Releases() {
		layDriver(t, release, filepath.Join(base, string(release)))
	}
	image, musl := filepath.Join(base, "image"), filepath.Join(base, "musl")
	install(t, image, "/bin/sh", "/bin/cat", "/bin/sleep")
	for _, name := range []string{"libdl.so.2", "libpthread.so.0", "libm.so.6", "librt.so.1"} {
		run(t, "cp", "--dereference", filepath.Join("/", multiarch, name), filepath.Join(image, multiarch))
	}
	writeFile(t, filepath.Join(image, "etc/ld.so.conf"), "")
	run(t, "ldconfig", "-r", image)
	hosttest.NoError(t, os.MkdirAll(filepath.Join(musl, "bin"), 0o755))
	run(t, "cp", "/bin/busybox", filepath.Join(musl, "bin/sh"))
	const uvm, loader = "nvidia-uvm", "/" + multiarch
	const fails = "fail: 0000:84:00.0 does not compute in a container of localhost/cuda\n"
	rows := []struct {
		name, before, args string
		status             int
		want               []string
	}{
		{"computes", "spec good " + loader + " " + uvm, "", 0,
			[]string{"pass: 0000:84:00.0 computes in a container of localhost/cuda\n", "device    gpustack.local/gpu=0000:84:00.0 (podman)\n",
				"GPU       Quadro K4200, driver 550.163.01\n", "library   " + loader + "/libcuda.so.1, CUDA 12.4\n",
				"kernel    1048576 numbers computed and compared\n"}},
		{"wrong numbers", "spec wrong " + loader + " " + uvm, "", 2, []string{fails, "cause     1 of 1048576 numbers that the GPU has computed are wrong\n"}},
		{"another GPU", "spec other " + loader + " " + uvm, "", 2, []string{fails, "cause     CUDA finds 0000:0a:00.0 in the container, not 0000:84:00.0\n"}},
		{"no Fabric Manager", "spec 802 " + loader + " " + uvm, "", 2, []string{fails, "message   802 CUDA_ERROR_PLAYED: played\n", "Fabric Manager"}},
		{"another driver", "spec 803 " + loader + " " + uvm, "", 2, []string{fails, "is of another version than the loaded module\n"}},
		{"forward compatibility", "spec 804 " + loader + " " + uvm, "", 2, []string{fails, "is for forward compatibility"}},
		{"no nvidia-uvm", "spec 999 " + loader, "", 2, []string{fails, "cause     /dev/nvidia-uvm is missing in the container\n"}},
		{"a folder that the loader does not search", "spec good /usr/local/nvidia/lib64 " + uvm, "", 2,
			[]string{fails, "message   35 cudaErrorInsufficientDriver", "cause     the loader of the image does not look into /usr/local/nvidia/lib64,",
				"container prepare --library-path"}},
		{"no library", "spec none x " + uvm, "", 2, []string{fails,
			"cause     the image has no libcuda.so.1, and gpustack.local/gpu=0000:84:00.0 mounts none\n"}},
		{"driver 470", "spec bullseye " + loader + " " + uvm, "", 2,
			[]string{fails, "libcuda.so.1, CUDA 11.4\n", "message   100 CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"}},
		{"driver 535", "spec bookworm " + loader + " " + uvm, "", 2,
			[]string{fails, "libcuda.so.1, CUDA 12.2\n", "message   100 CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"}},
		{"driver 550", "spec trixie " + loader + " " + uvm, "", 2,
			[]string{fails, "libcuda.so.1, CUDA 12.4\n", "message   100 CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"}},
		{"musl", "spec good " + loader + " " + uvm, "--image localhost/musl", 1,
			[]string{"error: localhost/musl: the image has no loader of glibc, as images with musl have none"}},
		{"no image", "", "--image localhost/none", 1, []string{"error: podman: localhost/none: no such image on this machine"}},
		{"a command without privileges", "", "--console -- cat /proc/self/status", 0,
			[]string{"pass: 0000:84:00.0 is in a container", "Uid:\t65534\t65534\t65534\t65534\n", "CapEff:\t0000000000000000\n",
				"CapBnd:\t0000000000000000\n", "NoNewPrivs:\t1\n"}},
		{"a command that shows its network and nodes", "", "--console -- sh -c 'cat /proc/net/dev; echo /dev/nvidia*'", 0,
			[]string{"    lo:", "  /dev/nvidia-uvm /dev/nvidia0 /dev/nvidiactl\n"}},
		{"a command of musl", "", "--image localhost/musl -- sh -c 'exit 0'", 0, []string{"pass: 0000:84:00.0 is in a container of localhost/musl\n"}},
		{"a command that fails", "", "-- sh -c 'echo SECRET; exit 3'", 2, []string{"cause     the command ended with exit status 3 in the container\n"}},
		{"a command that ends with 127", "", "--console -- sh -c 'nosuch'", 2, []string{"exit status 127", "nosuch: not found"}},
		{"no such command", "", "-- nosuch", 1, []string{"error: localhost/cuda: the image does not have the program: "}},
		{"a command that does not end", "", "--wait 2s -- sleep 1000", 2,
			[]string{"cause     the program did not end within 2s in the container\n"}},
		{"a device that cannot be injected", "rm /dev/nvidia-uvm", "", 1, []string{"/dev/nvidia-uvm"}},
		{"another engine", "nodes", "--engine docker", 1, []string{"error: neither podman, docker nor nerdctl is installed\n"}},
		{"another function", "", "--device 85:00.0", 1, []string{"error: 0000:85:00.0: no such PCI function\n"}},
		{"no device of CDI", "rm /etc/cdi/gpustack-gpu.json", "", 1,
			[]string{"error: 0000:84:00.0: no CDI device has /dev/nvidia0", "hint: gpustack container prepare --device 0000:84:00.0"}},
		{"bound to vfio-pci", "ln -sfn ../../../../bus/pci/drivers/vfio-pci $gpu/driver; mkdir /sys/bus/pci/drivers/vfio-pci; rm -r " +
			"/proc/driver/nvidia/gpus/*", "", 1,
			[]string{"error: 0000:84:00.0: is bound to vfio-pci: containers use GPUs that are bound to NVIDIA's driver\n"}},
	}
	var script strings.Builder
	script.WriteString("base=$1 gpustack=$2\n" + aGPU + `
mkdir -p /etc/ld.so.conf.d; echo $base/good >/etc/ld.so.conf.d/played.conf; ldconfig
for image in image musl; do tar -C $base/$image -cf - . | podman import --quiet - localhost/$image >/dev/null; done
podman tag localhost/image localhost/cuda
set +e
`)
	for _, row := range rows {
		args := row.args
		if !strings.Contains(args, "--image") {
			args = "--image localhost/cuda " + args
		}
		if !strings.Contains(args, "--device") {
			args = "--device 84:00.0 " + args
		}
		fmt.Fprintf(&script, "%s\n$gpustack container test %s 2>&1; echo \"exit status $?\"; echo \"left: $(podman ps --all --quiet)\"; echo ==\n",
			row.before, args)
	}
	// Ctrl-C, and what JSON says.
	script.WriteString(`
ln -sfn ../../../../bus/pci/drivers/nvidia $gpu/driver; mkdir -p /proc/driver/nvidia/gpus/0000:84:00.0
printf 'Device Minor: \t 0\n' >/proc/driver/nvidia/gpus/0000:84:00.0/information
spec good /` + multiarch + ` nvidia-uvm
$gpustack container test --device 84:00.0 --image localhost/cuda -o json
echo ==
$gpustack container test --device 84:00.0 --image localhost/cuda -- sleep 1000 & pid=$!
while [ -z "$(podman ps --quiet)" ]; do sleep 0.1; done
kill -INT $pid; wait $pid; echo "interrupted: $?"
echo "containers: $(podman ps --all --quiet)"
echo "folders: $(ls /var/lib | grep gpustack-test)"
echo "nodes: $(echo /dev/nvidia*)"
`)
	out, talk, status := withContainers(t, script.String(), base, gpustack)
	parts := strings.Split(out, "==\n")
	if status != 0 || len(parts) != len(rows)+2 {
		t.Fatalf("exit status %d, %d parts:\n%s%s", status, len(parts), out, talk)
	}
	for i, row := range rows {
		missing := []string{}
		for _, want := range append(row.want, fmt.Sprintf("exit status %d\nleft: \n", row.status)) {
			if !strings.Contains(parts[i], want) {
				missing = append(missing, want)
			}
		}
		if len(missing) > 0 || strings.Contains(parts[i], "SECRET") {
			t.Errorf("%s: no %q in\n%s", row.name, missing, parts[i])
		}
	}
	var report struct{ Verdict string }
	if err := json.Unmarshal([]byte(parts[len(rows)]), &report); err != nil || report.Verdict != "pass" {
		t.Errorf("%v: %s", err, parts[len(rows)])
	}
	if end := parts[len(rows)+1]; end != "interrupted: 130\ncontainers: \nfolders: \nnodes: /dev/nvidia-uvm /dev/nvidia0 /dev/nvidiactl\n" {
		t.Errorf("%s\n%s", end, talk)
	}
}
