package containercheck_test

import (
	"debug/elf"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/container"
	"gpustack/host/container/containercheck"
	"gpustack/host/hosttest"
)

// image lays the root folder of an image and names it.
func (n *tree) image(t *testing.T, archive string) {
	t.Helper()
	dir := hosttest.Lay(t, archive).Path("/")
	n.images = append(n.images, container.ReadImage(dir, "amd64"))
}

const (
	runtime124 = "symlink usr/local/cuda-12.4/lib64/libcudart.so.12 -> libcudart.so.12.4.127\n"
	file124    = "-- usr/local/cuda-12.4/lib64/libcudart.so.12.4.127 --\n"
	runtime118 = "symlink usr/local/cuda-11.8/lib64/libcudart.so.11.0 -> libcudart.so.11.8.89\n"
	file118    = "-- usr/local/cuda-11.8/lib64/libcudart.so.11.8.89 --\n"
)

// ownCUDA returns an image with its own libcuda in a folder.
func ownCUDA(folder, version string) string {
	return runtime124 + "symlink " + folder + "/libcuda.so.1 -> libcuda.so." + version + "\n" + file124 + "-- " + folder + "/libcuda.so." + version + " --\n"
}

const multiarch = "usr/lib/x86_64-linux-gnu"

// injecting replaces the spec by one that mounts libcuda into a folder of containers.
func (n *tree) injecting(folder, env string) {
	n.files["etc/cdi/gpu.json"] = `{"cdiVersion":"0.5.0","kind":"gpustack.local/gpu","devices":[{"name":"` + first +
		`","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0"}]}}],"containerEdits":{"env":["NVIDIA_VISIBLE_DEVICES=void"` + env +
		`],"mounts":[{"hostPath":"/usr/lib/x86_64-linux-gnu/libcuda.so.1","containerPath":"` + folder + `/libcuda.so.1","options":["ro","bind"]}]}}`
}

// nvidiaOnly replaces the spec by NVIDIA's runtime of docker.
func (n *tree) nvidiaOnly() {
	delete(n.files, "etc/cdi/gpu.json")
	n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
}

// compat returns an image of NVIDIA's with a CUDA runtime and libraries of forward compatibility.
func compat(version string) string {
	return "symlink usr/local/cuda -> cuda-12.4\n" + ownCUDA("usr/local/cuda-12.4/compat", version) + "-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n"
}

const libraryPath = `,"LD_LIBRARY_PATH=/usr/local/nvidia/lib64"`

func imageCases(t *testing.T) []testCase {
	t.Helper()
	return []testCase{
		{"row 1: driver on the host, nothing in the image, no spec", func(n *tree) {
			delete(n.files, "etc/cdi/gpu.json")
			n.image(t, runtime124+file124)
		}, "images", host.Fail, "it has a CUDA runtime and no libcuda, and no CDI spec", "35 cudaErrorInsufficientDriver", "gpustack container prepare --device 0000:84:00.0"},
		{"driver on the host, nothing in the image, NVIDIA's runtime", func(n *tree) {
			delete(n.files, "etc/cdi/gpu.json")
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
			n.image(t, runtime124+file124+"-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"newer driver in the image, NVIDIA's runtime", func(n *tree) {
			delete(n.files, "etc/cdi/gpu.json")
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
			n.image(t, ownCUDA(multiarch, "560.28.03"))
		}, "images", host.Fail, "its own libcuda 560.28.03, which is newer than the loaded module 550.163.01, and programs load it instead of the one of NVIDIA's runtime of docker",
			"18 Driver/library", "remove"},
		{"older driver in the image, NVIDIA's runtime: the loader's cache has the newer one", func(n *tree) {
			delete(n.files, "etc/cdi/gpu.json")
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
			n.image(t, ownCUDA(multiarch, "470.256.02"))
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"docker's configuration cannot be read, and no spec", func(n *tree) {
			delete(n.files, "etc/cdi/gpu.json")
			n.files["etc/docker/daemon.json"] = `{"runtimes":`
			n.image(t, runtime124+file124)
		}, "images", host.NA, "/etc/docker/daemon.json: malformed JSON", "may load another libcuda, or none", ""},
		{"the mode of NVIDIA's runtime cannot be read, and a spec", func(n *tree) {
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
			n.files["etc/nvidia-container-runtime/config.toml/x"] = ""
			n.image(t, runtime124+file124+"-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.NA, "/etc/nvidia-container-runtime/config.toml: ", "may load another libcuda, or none", ""},
		{"NVIDIA's runtime of containerd, before runc", func(n *tree) {
			delete(n.files, "etc/cdi/gpu.json")
			n.files[containerdConf] = runtimeTable("nvidia", nvidiaRuntime) + runtimeTable("runc", "/usr/sbin/runc")
			n.image(t, runtime124+file124+"-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"older driver in an image of RHEL, NVIDIA's runtime", func(n *tree) {
			n.nvidiaOnly()
			n.image(t, "symlink lib64 -> usr/lib64\n"+ownCUDA("usr/lib64", "535.261.03")+"-- etc/os-release --\nID=rocky\n")
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"newer driver in an image of RHEL, NVIDIA's runtime", func(n *tree) {
			n.nvidiaOnly()
			n.image(t, "symlink lib64 -> usr/lib64\n"+ownCUDA("usr/lib64", "560.28.03")+"-- etc/os-release --\nID=rocky\n")
		}, "images", host.Fail, "its own libcuda 560.28.03, which is newer", "18 Driver/library", "remove"},
		{"older driver in an image for arm64, NVIDIA's runtime", func(n *tree) {
			n.nvidiaOnly()
			n.change = func(m *containercheck.Observed) { m.Architecture = "arm64" }
			n.image(t, ownCUDA("usr/lib/aarch64-linux-gnu", "535.261.03")+"-- etc/os-release --\nID=debian\n")
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"forward compatibility by NVIDIA's runtime", func(n *tree) {
			n.old(t, "470.256.02")
			n.nvidiaOnly()
			n.image(t, compat("550.54.15"))
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"forward compatibility by the hook of a spec", func(n *tree) {
			n.old(t, "470.256.02")
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.change = func(m *containercheck.Observed) {
				edits := &m.Specs.Files[0].Spec.ContainerEdits
				edits.Hooks = append(edits.Hooks, &specs.Hook{HookName: "createContainer", Path: "/usr/bin/nvidia-cdi-hook",
					Args: []string{"nvidia-cdi-hook", "enable-cuda-compat"}})
			}
			n.image(t, compat("550.54.15"))
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"forward compatibility that a spec without the hook does not use", func(n *tree) {
			n.old(t, "470.256.02")
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, compat("550.54.15"))
		}, "images", host.Fail, "its CUDA runtime 12.4 needs driver 525.60.13 or later, loaded is 470.256.02", "35 cudaErrorInsufficientDriver", ""},
		{"forward compatibility by NVIDIA's runtime beside a spec without the hook", func(n *tree) {
			n.old(t, "470.256.02")
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
			n.image(t, compat("550.54.15"))
		}, "images", host.Warn, "its CUDA runtime 12.4 needs driver 525.60.13 or later, loaded is 470.256.02",
			"; with NVIDIA's runtime of docker (mode auto) it runs by forward compatibility", ""},
		{"forward compatibility of an older branch, NVIDIA's runtime", func(n *tree) {
			n.old(t, "470.256.02")
			n.nvidiaOnly()
			n.image(t, compat("470.57.02"))
		}, "images", host.Fail, "needs driver 525.60.13 or later, loaded is 470.256.02", "35 cudaErrorInsufficientDriver", ""},
		{"forward compatibility in a folder where NVIDIA's runtime does not look", func(n *tree) {
			n.old(t, "470.256.02")
			n.nvidiaOnly()
			n.image(t, strings.Replace(compat("550.54.15"), "symlink usr/local/cuda ", "symlink usr/local/other ", 1))
		}, "images", host.Fail, "needs driver 525.60.13 or later, loaded is 470.256.02", "35 cudaErrorInsufficientDriver", ""},
		{"forward compatibility by NVIDIA's runtime on a GeForce", func(n *tree) {
			n.old(t, "470.256.02")
			n.files["proc/driver/nvidia/gpus/"+first+"/information"] = "Model: \t NVIDIA GeForce RTX 3090\nDevice Minor: \t 0"
			n.nvidiaOnly()
			n.image(t, compat("550.54.15"))
		}, "images", host.Fail, "is a NVIDIA GeForce RTX 3090", "804 forward compatibility was attempted", "cuda-compat"},
		{"row 2: nothing on the host, driver in the image", func(n *tree) {
			n.unload()
			n.image(t, ownCUDA(multiarch, loaded))
		}, "images", host.Fail, "it has libcuda 550.163.01, and this node has no driver loaded", "100 cudaErrorNoDevice", "load the driver"},
		{"row 3: equal on both", func(n *tree) {
			n.injecting("/usr/local/nvidia/lib64", "")
			n.image(t, ownCUDA(multiarch, loaded))
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"row 4: older driver in the image", func(n *tree) {
			n.injecting("/usr/local/nvidia/lib64", "")
			n.image(t, ownCUDA(multiarch, "470.256.02"))
		}, "images", host.Fail, "its own libcuda 470.256.02, which is older than the loaded module 550.163.01", "18 Driver/library version mismatch", "remove"},
		{"row 5: newer driver in the image", func(n *tree) {
			n.injecting("/usr/local/nvidia/lib64", "")
			n.image(t, ownCUDA(multiarch, "560.28.03"))
		}, "images", host.Fail, "its own libcuda 560.28.03, which is newer than", "803 system has unsupported", "remove"},
		{"row 6: libraries mounted, same toolkit", func(n *tree) {
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, runtime124+file124+"-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"row 7: older toolkit", func(n *tree) {
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, runtime118+file118+"-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"row 8: other driver, uvm of an earlier boot", func(n *tree) { n.files["dev/nvidia-uvm"] = "c 511:0 666" },
			"nodes", host.Fail, "/dev/nvidia-uvm is device 511:0, the driver's is 509:0", "999 cudaErrorUnknown", "rm /dev/nvidia-uvm"},
		{"toolkit too new for the driver", func(n *tree) {
			n.files["proc/driver/nvidia/version"] = strings.ReplaceAll(n.files["proc/driver/nvidia/version"], loaded, "470.256.02")
			n.files["sys/module/nvidia/version"] = "470.256.02"
			n.install("470.256.02")
			n.injecting("/usr/lib/x86_64-linux-gnu", libraryPath)
			n.image(t, runtime124+file124)
		}, "images", host.Fail, "its CUDA runtime 12.4 needs driver 525.60.13 or later, loaded is 470.256.02", "35 cudaErrorInsufficientDriver", "CUDA 11.4 or earlier"},
		{"minor version compatibility", func(n *tree) {
			n.files["proc/driver/nvidia/version"] = strings.ReplaceAll(n.files["proc/driver/nvidia/version"], loaded, "535.261.03")
			n.files["sys/module/nvidia/version"] = "535.261.03"
			n.install("535.261.03")
			n.image(t, runtime124+file124+"-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Warn, "its CUDA runtime 12.4 came with driver 550.54.14, loaded is 535.261.03", "PTX", "CUDA 12.2"},
		{"own libcuda in a folder of ld.so.conf.d", func(n *tree) {
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, ownCUDA(multiarch+"/nvidia/current", "535.261.03")+"-- etc/ld.so.conf --\ninclude /etc/ld.so.conf.d/*.conf\n"+
				"-- etc/ld.so.conf.d/nvidia.conf --\n/usr/lib/x86_64-linux-gnu/nvidia/current\n")
		}, "images", host.Fail, "its own libcuda 535.261.03", "18 Driver/library", "--library-path"},
		{"own libcuda covered by the mount", func(n *tree) {
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, ownCUDA(multiarch, "535.261.03"))
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"usrmerged: own libcuda covered by the mount under the folder's other name", func(n *tree) {
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, "symlink lib -> usr/lib\n"+ownCUDA(multiarch, "535.261.03"))
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"usrmerged: the loader has the mount's folder under another name", func(n *tree) {
			n.injecting("/usr/lib64", "")
			n.image(t, "symlink lib64 -> usr/lib64\n"+runtime124+file124+"-- usr/lib64/libc.so.6 --\n")
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"not usrmerged: the loader does not look into the other folder's copy first", func(n *tree) {
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, ownCUDA("lib/x86_64-linux-gnu", "535.261.03")+"-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Fail, "its own libcuda 535.261.03", "18 Driver/library", "remove"},
		{"own libcuda behind LD_LIBRARY_PATH of the spec", func(n *tree) {
			n.injecting("/usr/local/nvidia/lib64", libraryPath)
			n.image(t, ownCUDA(multiarch, "535.261.03"))
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"folder that the loader does not know", func(n *tree) {
			n.injecting("/usr/local/nvidia/lib64", "")
			n.image(t, runtime124+file124+"-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Warn, "mounts libcuda into /usr/local/nvidia/lib64, where its loader looks only if", "35 cudaErrorInsufficientDriver", "gpustack container prepare --device 0000:84:00.0 --library-path"},
		{"forward compatibility on a GeForce", func(n *tree) {
			n.files["proc/driver/nvidia/gpus/"+first+"/information"] = "Model: \t NVIDIA GeForce RTX 4090\nDevice Minor: \t 0"
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, ownCUDA("usr/local/cuda-12.4/compat", "560.28.03")+"-- etc/ld.so.conf.d/compat.conf --\n/usr/local/cuda-12.4/compat\n"+
				"-- etc/ld.so.conf --\ninclude ld.so.conf.d/*.conf\n")
		}, "images", host.Fail, "is a NVIDIA GeForce RTX 4090", "804 forward compatibility was attempted", "cuda-compat"},
		{"forward compatibility on a data centre GPU: the driver alone is too old", func(n *tree) {
			n.old(t, "470.256.02")
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, ownCUDA("usr/local/cuda-12.4/compat", "550.54.15")+"-- etc/ld.so.conf --\n/usr/local/cuda-12.4/compat\n-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"forward compatibility in the folder of NVIDIA's images", func(n *tree) {
			n.old(t, "535.261.03")
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, ownCUDA("usr/local/cuda-12.4/compat/lib.real", "550.54.15")+"-- etc/ld.so.conf --\n/usr/local/cuda-12.4/compat/lib.real\n"+
				"-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"toolkit that is older than every driver", func(n *tree) {
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, "-- usr/local/cuda-6.5/lib64/libcudart.so.6.5.14 --\n-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"runtime of a Python package", func(n *tree) {
			n.old(t, "470.256.02")
			n.image(t, "-- usr/venv/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12 --\n")
		}, "images", host.Fail, "its CUDA runtime 12 needs driver 525.60.13 or later", "35 cudaErrorInsufficientDriver", "CUDA 11.4 or earlier"},
		{"runtime of a family, driver between", func(n *tree) {
			n.old(t, "535.261.03")
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, "-- y/nvidia/cuda_runtime/lib/libcudart.so.12 --\n-- z/nvidia/cuda_runtime/lib/libcudart.so.11.0 --\n-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"runtime that torch brings", func(n *tree) {
			n.old(t, "440.33")
			n.image(t, "-- usr/conda/lib/python3.10/site-packages/torch/lib/libcudart-d0da41ae.so.11.0 --\n")
		}, "images", host.Fail, "its CUDA runtime 11 needs driver 450.80.02 or later", "35 cudaErrorInsufficientDriver", "CUDA 10.2 or earlier"},
		{"runtime of unknown version", func(n *tree) { n.image(t, "-- usr/libcudart.so --\n") },
			"images", host.NA, "which driver its CUDA runtime of an unknown version needs", "", "release notes"},
		{"image of another architecture", func(n *tree) { n.image(t, "-- lib/ld-linux-aarch64.so.1 --\n"+elfHead(elf.EM_AARCH64)+file124) },
			"images", host.Fail, "it is built for arm64, and this node is amd64", "exec format error", "podman pull --arch amd64"},
		{"library of another architecture", func(n *tree) {
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, "-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n-- x/libcudart.so.12 --\n"+elfHead(elf.EM_AARCH64))
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"libcuda for 32 bits", func(n *tree) {
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
			n.image(t, runtime124+file124+"-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n-- etc/ld.so.conf --\n/usr/lib32\n-- usr/lib32/libcuda.so.1 --\n"+elfHead(elf.EM_386))
		}, "images", host.Pass, "nothing in it conflicts", "", ""},
		{"musl without CUDA", func(n *tree) { n.image(t, "-- lib/ld-musl-x86_64.so.1 --\n") },
			"images", host.Warn, "its loader is that of musl", "nor does nvidia-smi run", "glibc"},
		{"musl", func(n *tree) { n.image(t, runtime124+file124+"-- lib/ld-musl-x86_64.so.1 --\n") },
			"images", host.Fail, "its loader is that of musl", "35 cudaErrorInsufficientDriver", "glibc"},
		{"NVML of another version", func(n *tree) {
			n.image(t, "symlink usr/lib64/libnvidia-ml.so.1 -> libnvidia-ml.so.535.261.03\n-- usr/lib64/libnvidia-ml.so.535.261.03 --\n-- usr/lib/x86_64-linux-gnu/libc.so.6 --\n")
		}, "images", host.Warn, "its own libnvidia-ml.so.1 535.261.03", "18 Driver/library", "remove"},
		{"nothing of CUDA or RDMA", func(n *tree) { n.image(t, "-- etc/os-release --\nID=debian\n-- lib/x86_64-linux-gnu/libc.so.6 --\n") },
			"images", host.Pass, "nothing in it conflicts", "", ""},
		{"no provider for the adapter", func(n *tree) {
			n.adapter()
			n.image(t, "-- usr/lib/x86_64-linux-gnu/libibverbs.so.1 --\nIBVERBS_PRIVATE_34\x00\n-- etc/libibverbs.d/mlx5.driver --\ndriver mlx5\n"+
				"-- usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav44.so --\n")
		}, "images", host.Fail, "libmlx5-rdmav44.so", "libibverbs: Warning: couldn't load driver", "never mount the host's library"},
		{"no driver line for the adapter", func(n *tree) {
			n.adapter()
			n.image(t, "-- usr/lib/x86_64-linux-gnu/libibverbs.so.1 --\nIBVERBS_PRIVATE_34\x00\n")
		}, "images", host.Fail, `has the line "driver mlx5"`, "No IB devices found", "ibverbs-providers"},
		{"provider whose ABI is too old", func(n *tree) {
			n.adapter()
			n.files["sys/bus/pci/devices/0000:0c:00.0/infiniband_verbs/uverbs0/abi_version"] = "2"
			n.image(t, "-- usr/lib/x86_64-linux-gnu/libibverbs.so.1 --\nIBVERBS_PRIVATE_34\x00\n-- etc/libibverbs.d/mlx5.driver --\ndriver mlx5\n"+
				"-- usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so --\n")
		}, "images", host.Fail, "does not accept version 2", "Driver mlx5 does not support the kernel ABI of 2", "ibverbs-providers"},
		{"providers of two private ABIs", func(n *tree) {
			n.image(t, "-- usr/lib/x86_64-linux-gnu/libibverbs.so.1 --\nIBVERBS_PRIVATE_34\x00\n-- etc/libibverbs.d/mlx5.driver --\ndriver mlx5\n"+
				"-- usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so --\n-- usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav57.so --\n"+
				"-- usr/lib/x86_64-linux-gnu/librdmacm.so.1 --\n")
		}, "images", host.Fail, "libraries of several releases of rdma-core, with private ABIs 34 in", "No IB devices found", "keep one release"},
		{"no librdmacm", func(n *tree) {
			n.adapter()
			n.image(t, "-- usr/lib/x86_64-linux-gnu/libibverbs.so.1 --\nIBVERBS_PRIVATE_34\x00\n-- etc/libibverbs.d/mlx5.driver --\ndriver mlx5\n"+
				"-- usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so --\n")
		}, "images", host.Warn, "it has libibverbs and no librdmacm", "rping", "librdmacm1"},
		{"uverbs number that has changed", func(n *tree) {
			n.adapter()
			n.files["dev/infiniband/uverbs7"] = "c 231:199 666"
			n.spec("etc/cdi/gpustack-hca.json", "gpustack.local/hca", map[string]string{"0000:0c:00.0": "/dev/infiniband/uverbs7"})
		}, "devices", host.Fail, "names /dev/infiniband/uverbs7, but the node of 0000:0c:00.0 is /dev/infiniband/uverbs0", "another adapter",
			"gpustack container prepare writes the specs again"},
		{"adapter of a spec without RDMA device", func(n *tree) {
			n.files["dev/infiniband/uverbs0"] = "c 231:192 666"
			n.spec("run/cdi/hca.json", "gpustack.local/hca", map[string]string{"0000:0c:00.0": "/dev/infiniband/uverbs0"})
		}, "devices", host.Fail, "but 0000:0c:00.0 has no RDMA device", "No IB devices found", "gpustack rdma check"},
	}
}

// elfHead returns the header of an ELF file for a machine, as a line of an archive.
func elfHead(machine elf.Machine) string {
	class := elf.ELFCLASS64
	if machine == elf.EM_386 {
		class = elf.ELFCLASS32
	}
	head := [20]byte{4: byte(class), 5: byte(elf.ELFDATA2LSB), 6: byte(elf.EV_CURRENT), 16: byte(elf.ET_DYN), 18: byte(machine)}
	copy(head[:], elf.ELFMAG)
	return string(head[:]) + "\n"
}

// old replaces the driver by another.
func (n *tree) old(t *testing.T, version string) {
	t.Helper()
	n.files["proc/driver/nvidia/version"] = strings.ReplaceAll(n.files["proc/driver/nvidia/version"], loaded, version)
	n.install(version)
}

// TestImageRuntimes: each runtime of an image is judged, each file once.
func TestImageRuntimes(t *testing.T) {
	t.Parallel()
	i := container.ReadImage(hosttest.Lay(t, runtime124+file124+runtime118+file118+"-- a/libcudart.so.12 --\n-- b/nvidia/cuda_runtime/lib/libcudart.so.12 --\n").Path("/"), "amd64")
	want := []container.ImageRuntime{
		{Path: "/a/libcudart.so.12", Release: "12"}, {Path: "/b/nvidia/cuda_runtime/lib/libcudart.so.12", Release: "12"},
		{Path: "/usr/local/cuda-11.8/lib64/libcudart.so.11.8.89", Release: "11.8"}, {Path: "/usr/local/cuda-12.4/lib64/libcudart.so.12.4.127", Release: "12.4"},
	}
	if diff := cmp.Diff(want, i.Runtimes); diff != "" || i.Err != nil {
		t.Errorf("runtimes (-want +got), error %v:\n%s", i.Err, diff)
	}
}
