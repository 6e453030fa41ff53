package containercheck_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/container/containercheck"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/snapshot"
)

// tree is a machine whose files a case changes before they are laid and observed.
type tree struct {
	links   map[string]string
	files   map[string]string
	offered machine.Look[[]containercheck.Offered]
	// Of files that are no text.
	onDisk    []nvidia.DiskModule
	libraries []nvidia.Library
	images    []container.Image
	// change changes what was observed: values that a tree of text files cannot have.
	change func(*containercheck.Observed)
}

const (
	first, second = "0000:84:00.0", "0000:88:00.0"
	hca           = "0000:0c:00.0"
	loaded        = "550.163.01"
	unit, wants   = "etc/systemd/system/gpustack-boot.service", "etc/systemd/system/multi-user.target.d/gpustack-boot.conf"
)

// function adds a PCI function with a driver, "" for none.
func (n *tree) function(address, class, ids, driver string) {
	at := "sys/bus/pci/devices/" + address
	vendor, product, _ := strings.Cut(ids, ":")
	n.files[at+"/class"], n.files[at+"/vendor"], n.files[at+"/device"] = "0x"+class, "0x"+vendor, "0x"+product
	delete(n.links, at+"/driver")
	if driver != "" {
		n.links[at+"/driver"] = "../../drivers/" + driver
	}
}

// gpu adds a GPU that is bound to NVIDIA's driver.
func (n *tree) gpu(address string, minor int) {
	n.function(address, "030200", "10de:20b2", "nvidia")
	n.files["proc/driver/nvidia/gpus/"+address+"/information"] = fmt.Sprintf(
		"Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 120\nGPU UUID: \t GPU-00000000-0000-0000-0000-%012d\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No",
		minor, address, minor)
	n.files[fmt.Sprintf("dev/nvidia%d", minor)] = fmt.Sprintf("c 195:%d 666", minor)
}

// unbind binds a GPU to another driver, as the kernel shows that: its node stays.
func (n *tree) unbind(address, driver string) {
	n.function(address, "030200", "10de:20b2", driver)
	delete(n.files, "proc/driver/nvidia/gpus/"+address+"/information")
}

// spec adds a CDI spec of a kind, with devices by the names of their nodes, and libraries. One with
// libcuda has all that compute needs.
func (n *tree) spec(file, kind string, devices map[string]string, libraries ...string) {
	var all, mounts []string
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		all = append(all, fmt.Sprintf(`{"name":%q,"containerEdits":{"deviceNodes":[{"path":%q}]}}`, name, devices[name]))
	}
	for _, library := range libraries {
		mounts = append(mounts, fmt.Sprintf(`{"hostPath":%q,"containerPath":%q,"options":["ro","bind"]}`, library, library))
	}
	nodes := ""
	if strings.Contains(strings.Join(libraries, " "), "libcuda.so.1") {
		nodes = `,"deviceNodes":[{"path":"/dev/nvidiactl"},{"path":"/dev/nvidia-uvm"}],"hooks":[{"hookName":"createContainer","path":"/usr/bin/nvidia-cdi-hook","args":` +
			`["nvidia-cdi-hook","create-symlinks","--link","libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so","update-ldcache"]}]`
		for _, name := range []string{"libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"} {
			mounts = append(mounts, fmt.Sprintf(`{"hostPath":"/%[1]s","containerPath":"/%[1]s","options":["ro","bind"]}`, multiarch+"/"+name))
		}
	}
	n.files[file] = fmt.Sprintf(`{"cdiVersion":"0.5.0","kind":%q,"devices":[%s],"containerEdits":{"env":["NVIDIA_VISIBLE_DEVICES=void"],"mounts":[%s]%s}}`,
		kind, strings.Join(all, ","), strings.Join(mounts, ","), nodes)
}

const libraries = "usr/lib/x86_64-linux-gnu/"

// healthy returns a machine whose checks all pass: two GPUs, a driver and a spec.
func healthy() *tree {
	n := &tree{links: map[string]string{}, files: map[string]string{
		"etc/hostname":               "gpu1",
		"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + loaded + "  Fri May 31 09:35:42 UTC 2024",
		"proc/sys/kernel/osrelease":  "6.1.0-28-amd64",
		"proc/devices":               "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n509 nvidia-uvm\n\nBlock devices:\n  8 sd",
		"dev/nvidiactl":              "c 195:255 666",
		"dev/nvidia-uvm":             "c 509:0 666",
		"dev/nvidia-uvm-tools":       "c 509:1 666",
		"usr/bin/nvidia-cdi-hook":    "",
		"usr/lib/systemd/systemd":    "",
	}}
	n.gpu(first, 0)
	n.gpu(second, 1)
	n.onDisk = []nvidia.DiskModule{{Kernel: "6.1.0-28-amd64", Running: true}}
	n.install(loaded)
	n.spec("etc/cdi/gpu.json", "gpustack.local/gpu", map[string]string{first: "/dev/nvidia0", second: "/dev/nvidia1"}, "/"+libraries+"libcuda.so.1")
	return n
}

// without removes an element of a list from the spec of the healthy machine.
func (n *tree) without(list, element string) {
	const file = "etc/cdi/gpu.json"
	text := strings.ReplaceAll(n.files[file], ","+element, "")
	n.files[file] = strings.ReplaceAll(text, `"`+list+`":[`+element+",", `"`+list+`":[`)
}

// hostCompat has the host's loader search libraries of forward compatibility.
func (n *tree) hostCompat(version string) {
	const dir = "/usr/local/cuda-12/compat"
	n.libraries = append(n.libraries, nvidia.Library{Folder: dir, Link: "libcuda.so.1", File: dir + "/libcuda.so." + version, Version: nvidia.Version(version)})
}

// ofContainer has the driver in a driver container.
func (n *tree) ofContainer() {
	n.onDisk = nil
	n.files["run/nvidia/driver/usr/bin/nvidia-smi"] = ""
	for i := range n.libraries {
		n.libraries[i].Folder = "/run/nvidia/driver" + n.libraries[i].Folder
	}
}

// runcPackage returns a list of packages with one of runc.
func runcPackage(version string) string {
	return "Package: runc\nStatus: install ok installed\nVersion: " + version + "\n\n"
}

// install replaces the libraries by those of a version.
func (n *tree) install(version string) {
	n.libraries = nil
	for _, link := range nvidia.CoreLinks() {
		name, _, _ := strings.Cut(link, ".so.")
		n.links[libraries+link] = name + ".so." + version
		n.files[libraries+name+".so."+version] = "\x00" + version + "\x00"
		n.libraries = append(n.libraries, nvidia.Library{
			Folder: "/usr/lib/x86_64-linux-gnu", Link: link, File: "/" + libraries + name + ".so." + version, Version: nvidia.Version(version),
		})
	}
}

// adapter adds an RDMA adapter of mlx5_core with a node.
func (n *tree) adapter() {
	n.function(hca, "020700", "15b3:101b", "mlx5_core")
	const at = "sys/bus/pci/devices/" + hca
	n.links["sys/class/infiniband/mlx5_0"] = "../../../" + at + "/infiniband/mlx5_0"
	n.links["sys/class/infiniband_verbs/uverbs0"] = "../../../" + at + "/infiniband_verbs/uverbs0"
	n.files[at+"/infiniband/mlx5_0/node_type"] = "1: CA"
	verbs := at + "/infiniband_verbs/uverbs0"
	n.files[verbs+"/ibdev"], n.files[verbs+"/dev"], n.files[verbs+"/abi_version"] = "mlx5_0", "231:192", "1"
	n.files["dev/infiniband/uverbs0"] = "c 231:192 666"
}

// unload removes the module, and what it shows.
func (n *tree) unload() {
	for _, name := range []string{"proc/driver/nvidia/version", "sys/module/nvidia/version", "proc/devices"} {
		delete(n.files, name)
	}
	n.unbind(first, "")
	n.unbind(second, "")
}

// record adds a record of host prepare with GPUs for guests.
func (n *tree) record(addresses ...string) {
	var functions, selected []string
	for _, a := range addresses {
		selected = append(selected, fmt.Sprintf("%q", a))
		functions = append(functions, fmt.Sprintf(`{"address":%q,"vendor_id":"10de","product_id":"20b2","subsystem_vendor_id":null,"subsystem_id":null,`+
			`"bridges":[],"sysfs_path":null,"boot_vga":false,"iommu_group":null,"group_members":[],"driver":"vfio-pci","by":"ids"}`, a))
	}
	n.files["var/lib/gpustack/contract.json"] = fmt.Sprintf(`{"schema":1,"kind":"contract","guests":{"driver":"vfio-pci","selected":[%s],"allowed":[],`+
		`"allow_unsafe_interrupts":false,"nvswitch":"","take_over":false,`+
		`"functions":[%s],"arguments":[],"files":[]},"containers":null}`, strings.Join(selected, ","), strings.Join(functions, ","))
}

// recordContainers adds a record of container prepare with GPUs.
func (n *tree) recordContainers(addresses ...string) {
	var functions []string
	for _, a := range addresses {
		functions = append(functions, fmt.Sprintf(`{"address":%q,"vendor_id":"10de","product_id":"20b2","subsystem_vendor_id":null,`+
			`"subsystem_id":null,"bridges": [],"hca":false}`, a))
	}
	n.files["var/lib/gpustack/contract.json"] = fmt.Sprintf(`{"schema":1,"kind":"contract","containers":{"functions":[%s],"options":{"umad_nodes":false,`+
		`"static":true,"library_path":false},`+
		`"files":[{"name":"/etc/modules-load.d/x.conf","hash":"h"}]},"guests":null}`, strings.Join(functions, ","))
	n.files["etc/modules-load.d/x.conf"] = "nvidia"
}

// dynamic has the specs of container prepare in /run/cdi.
func (n *tree) dynamic() {
	const file = "var/lib/gpustack/contract.json"
	n.files[file] = strings.Replace(n.files[file], `"static":true`, `"static":false`, 1)
	n.files[unit], n.files[wants] = "", ""
}

// verify lays the tree, observes it and returns the findings.
func (n *tree) verify(t testing.TB) ([]host.Finding, checklist.Verdict, error) {
	t.Helper()
	findings, verdict, err := containercheck.Verify(n.observe(t, n.lay(t)))
	return findings, verdict, err
}

func (n *tree) lay(t testing.TB) host.Root {
	t.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(n.links)) {
		fmt.Fprintf(&b, "symlink %s -> %s\n", name, n.links[name])
	}
	for _, name := range slices.Sorted(maps.Keys(n.files)) {
		fmt.Fprintf(&b, "-- %s --\n%s\n", name, n.files[name])
	}
	root := hosttest.Lay(t, b.String())
	if hook := root.Path("usr/bin/nvidia-cdi-hook"); n.files["usr/bin/nvidia-cdi-hook"] == "" {
		if err := os.Chmod(hook, 0o755); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return root
}

func (n *tree) observe(t testing.TB, root host.Root) containercheck.Observed {
	t.Helper()
	devices := hosttest.Devices(t, root)
	m := containercheck.Observe(root.Once(), machine.Saw(machine.DevicesDir, devices, nil), n.offered)
	m.Driver.Value.OnDisk, m.Driver.Value.Libraries = n.onDisk, n.libraries
	m.Images = n.images
	if n.change != nil {
		n.change(&m)
	}
	return m
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	findings, verdict, err := healthy().verify(t)
	if err != nil || verdict != checklist.Ready {
		t.Errorf("verdict %q, error %v", verdict, err)
	}
	for _, f := range findings {
		if f.Status == host.Fail || f.Status == host.Warn {
			t.Errorf("%+v", f)
		}
	}
}

const (
	containerdConf = "etc/containerd/config.toml"
	nvidiaRuntime  = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
)

// runtimeTable returns the table of a runtime in containerd's configuration.
func runtimeTable(name, program string) string {
	return fmt.Sprintf("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.%s.options]\n  BinaryName = %q\n", name, program)
}

// testCase is a change of the healthy machine with the finding that it must lead to.
type testCase struct {
	name   string
	change func(*tree)
	check  string
	status host.Status
	seen   string // a part of it
	effect string // a part of it
	remedy string // a part of it
}

func cases(t *testing.T) []testCase {
	t.Helper()
	return append(imageCases(t), []testCase{
		{"module not loaded", func(n *tree) { n.unload() },
			"module", host.Fail, "NVIDIA's kernel module is not loaded", "100 cudaErrorNoDevice", "modprobe nvidia"},
		{"module not loaded, for an argument of the kernel", func(n *tree) {
			n.unload()
			n.files["proc/cmdline"] = "quiet modprobe.blacklist=nouveau,nvidia\n"
		}, "module", host.Fail, "not loaded: /proc/cmdline: modprobe.blacklist=nvidia prevents it", "100 cudaErrorNoDevice", "remove the argument"},
		{"module not loaded, for modprobe's configuration", func(n *tree) {
			n.unload()
			n.files["etc/modprobe.d/x.conf"] = "install nvidia /bin/false\n"
		}, "module", host.Fail, "not loaded: /etc/modprobe.d/x.conf:1: install nvidia prevents it", "100 cudaErrorNoDevice", "remove the line"},
		{"module not loaded, for gpustack's own blacklist", func(n *tree) {
			n.unload()
			n.files[modprobe.OwnFiles()[0][1:]] = "blacklist nvidia\n"
		}, "module", host.Fail, "blacklist nvidia prevents it", "100 cudaErrorNoDevice", "gpustack host prepare"},
		{"module not loaded, modprobe's configuration cannot be read", func(n *tree) {
			n.unload()
			n.files["etc/modprobe.d/x.conf/y"] = ""
		}, "module", host.Fail, "NVIDIA's kernel module is not loaded", "100 cudaErrorNoDevice", "cannot be read: "},
		{"module not installed", func(n *tree) { n.unload(); n.onDisk = nil },
			"module", host.Fail, "is not loaded nor installed", "9 Driver Not Loaded", "install the driver"},
		{"module of another kernel", func(n *tree) { n.unload(); n.onDisk[0].Kernel, n.onDisk[0].Running = "6.1.0-30-amd64", false },
			"module", host.Fail, "it is installed for 6.1.0-30-amd64", "100 cudaErrorNoDevice", "boot 6.1.0-30-amd64"},
		{"module that only its GPUs show", func(n *tree) {
			delete(n.files, "proc/driver/nvidia/version")
		}, "module", host.NA, "is loaded, and its version is not shown", "unknown", ""},
		{"module removed from disk", func(n *tree) { n.onDisk = nil },
			"module", host.Warn, "the running kernel has no module on disk", "after the next reboot", "install the module"},
		{"libraries upgraded, not reloaded", func(n *tree) { n.install("560.28.03") },
			"libraries", host.Fail, "libcuda.so.1 (and 10 more) is of version 560.28.03, the loaded module is 550.163.01", "803 system has", "reboot"},

		{"GPU of vfio-pci only", func(n *tree) { n.unbind(first, "vfio-pci"); n.unbind(second, "vfio-pci"); n.record(first, second) },
			"gpus", host.Fail, "no GPU is bound to NVIDIA's driver", "100 cudaErrorNoDevice", "host release --device 0000:84:00.0"},
		{"GPU of nouveau", func(n *tree) { n.unbind(first, "nouveau"); n.unbind(second, "nouveau") },
			"gpus", host.Fail, "no GPU is bound to NVIDIA's driver: 0000:84:00.0 (nouveau), 0000:88:00.0 (nouveau)", "100 cudaErrorNoDevice", "blacklist"},
		{"one GPU of nouveau", func(n *tree) { n.unbind(second, "nouveau") },
			"gpus", host.Warn, "0000:88:00.0 (nouveau)", "do not see", "unload nouveau, or blacklist it and reboot"},
		{"one GPU of vfio-pci", func(n *tree) { n.unbind(second, "vfio-pci") },
			"gpus", host.Warn, "0000:88:00.0 (vfio-pci)", "do not see", "gpustack host release --device 0000:88:00.0"},
		{"GPUs of nouveau and of vfio-pci", func(n *tree) { n.unbind(first, "nouveau"); n.unbind(second, "vfio-pci") },
			"gpus", host.Fail, "0000:84:00.0 (nouveau), 0000:88:00.0 (vfio-pci)", "100 cudaErrorNoDevice",
			"bind them: gpustack host release --device 0000:88:00.0; unload nouveau, or blacklist it and reboot"},
		{"one GPU for guests, one without driver", func(n *tree) { n.unbind(first, "vfio-pci"); n.unbind(second, ""); n.record(first) },
			"gpus", host.Fail, "no GPU is bound to NVIDIA's driver: 0000:88:00.0 (no driver)", "100 cudaErrorNoDevice",
			"echo 0000:88:00.0 > /sys/bus/pci/drivers/nvidia/bind"},
		{"one GPU without driver", func(n *tree) { n.unbind(second, "") },
			"gpus", host.Warn, "0000:88:00.0 (no driver)", "do not see", "echo 0000:88:00.0 > /sys/bus/pci/drivers/nvidia/bind"},
		{"GPU for containers of vfio-pci", func(n *tree) {
			n.unbind(second, "vfio-pci")
			n.recordContainers(second)
		}, "gpus", host.Fail, "0000:88:00.0 is recorded for containers and bound to vfio-pci", "100 cudaErrorNoDevice",
			"--to container --device 0000:88:00.0, once no guest has it: gpustack host guests shows that"},
		{"GPU for containers without driver", func(n *tree) {
			n.unbind(second, "")
			n.recordContainers(second)
		}, "gpus", host.Fail, "0000:88:00.0 is recorded for containers and bound to no driver", "100 cudaErrorNoDevice", "--to container --device 0000:88:00.0"},
		{"MIG", func(n *tree) {
			n.change = func(m *containercheck.Observed) {
				m.Driver.Value.MIG = map[pci.Address]bool{hosttest.Address(t, second): true}
			}
		}, "gpus", host.Warn, "MIG is enabled on 0000:88:00.0", "nvidia-caps", "-mig 0"},

		{"no libcuda", func(n *tree) { n.libraries = n.libraries[1:] },
			"libraries", host.Fail, "libcuda.so.1 is not installed", "35 cudaErrorInsufficientDriver", "libcuda1"},
		{"no libcuda, and a module that shows no version", func(n *tree) {
			n.libraries = n.libraries[1:]
			n.change = func(m *containercheck.Observed) { m.Driver.Value.Loaded.Version = "" }
		}, "libraries", host.Fail, "libcuda.so.1 is not installed", "35 cudaErrorInsufficientDriver", "the libraries of the driver: "},
		{"no NVML", func(n *tree) { n.libraries = append(n.libraries[:1:1], n.libraries[2:]...) },
			"libraries", host.Warn, "libnvidia-ml.so.1 is not installed", "nvidia-smi", "install"},
		{"no PTX compiler", func(n *tree) { n.libraries = append(n.libraries[:2:2], n.libraries[3:]...) },
			"libraries", host.Warn, "libnvidia-ptxjitcompiler.so.1 is not installed", "PTX", "install"},
		{"no shared compiler of a driver that opens it", func(n *tree) {
			n.old(t, "595.71.05")
			n.injecting("/usr/lib/x86_64-linux-gnu", "")
		}, "libraries", host.Warn, "libnvidia-gpucomp.so.595.71.05 is not installed", "221 cudaErrorJitCompilerNotFound", "install"},
		{"two versions", func(n *tree) {
			n.libraries = append(n.libraries, nvidia.Library{Folder: "/usr/lib64", Link: "libcuda.so.1", File: "/usr/lib64/libcuda.so.535.161.07", Version: "535.161.07"})
		}, "libraries", host.Fail, "/usr/lib64/libcuda.so.1 is of version 535.161.07", "18 Driver/library", "remove"},

		{"uvm node missing after a boot", func(n *tree) { delete(n.files, "dev/nvidia-uvm") },
			"nodes", host.Fail, "/dev/nvidia-uvm is missing", "999 cudaErrorUnknown", "nvidia-modprobe -u -c 0"},
		{"GPU node missing", func(n *tree) { delete(n.files, "dev/nvidia1") },
			"nodes", host.Fail, "/dev/nvidia1 is missing", "100 cudaErrorNoDevice", "nvidia-modprobe -u -c 1,"},
		{"tools node missing", func(n *tree) { delete(n.files, "dev/nvidia-uvm-tools") },
			"nodes", host.Warn, "/dev/nvidia-uvm-tools is missing", "profilers", "nvidia-modprobe"},
		{"uvm not loaded", func(n *tree) { n.files["proc/devices"] = "Character devices:\n195 nvidia" },
			"nodes", host.Fail, "module nvidia-uvm is not loaded", "999 cudaErrorUnknown", "nvidia-modprobe"},
		{"stale uvm major", func(n *tree) { n.files["dev/nvidia-uvm"] = "c 511:0 666" },
			"nodes", host.Fail, "/dev/nvidia-uvm is device 511:0, the driver's is 509:0", "999 cudaErrorUnknown", "rm /dev/nvidia-uvm"},
		{"node for root only", func(n *tree) { n.files["dev/nvidia0"] = "c 195:0 600" },
			"nodes", host.Warn, "/dev/nvidia0 has mode 0600", "other than root", "NVreg_DeviceFileMode"},
		{"node of a GPU that was unbound", func(n *tree) { n.unbind(second, "vfio-pci"); n.record(second) },
			"nodes", host.Warn, "/dev/nvidia1 belongs to no GPU", "No such device or address", "rm /dev/nvidia1"},

		{"malformed YAML", func(n *tree) { n.files["etc/cdi/x.yaml"] = "cdiVersion: \"0.5.0\"\nkind: [" },
			"specs", host.Fail, "not a spec in YAML or JSON: yaml: line 2", "Error: setting up CDI devices: unresolvable CDI devices NAME", "correct"},
		{"unknown key", func(n *tree) {
			n.files["etc/cdi/x.yaml"] = "cdiVersion: \"0.5.0\"\nkind: example.com/gpu\ndevNodes: []"
		},
			"specs", host.Fail, "a key is unknown", "devNodes", "correct"},
		{".yml", func(n *tree) { n.files["etc/cdi/x.yml"] = "cdiVersion: \"0.5.0\"" },
			"specs", host.Warn, "silently ignore", "unresolvable CDI devices", "rename"},
		{"a folder that is a file", func(n *tree) { n.files["run/cdi"] = "" },
			"specs", host.Fail, "not a directory", "unknown", "put a readable one"},
		{"two specs of one name", func(n *tree) { n.files["etc/cdi/copy.json"] = n.files["etc/cdi/gpu.json"] },
			"specs", host.Fail, "", "unresolvable CDI devices gpustack.local/gpu=0000:84:00.0", "keep one"},
		{"two folders, one name", func(n *tree) { n.files["run/cdi/copy.json"] = n.files["etc/cdi/gpu.json"] },
			"specs", host.Warn, "", "the other file", "remove one"},
		{"node of a spec missing", func(n *tree) {
			n.spec("etc/cdi/x.json", "example.com/gpu", map[string]string{"d": "/dev/nvidia7"})
		}, "specs", host.Fail, "/dev/nvidia7", `failed to stat CDI host device`, "generate the spec again"},
		{"library of a spec missing", func(n *tree) {
			n.spec("etc/cdi/x.json", "example.com/gpu", map[string]string{"d": "/dev/nvidia0"}, "/usr/lib/x86_64-linux-gnu/libEGL_nvidia.so.535.161.07")
		}, "specs", host.Fail, "libEGL_nvidia.so.535.161.07 does not exist", "error mounting", "generate the spec again"},
		{"stale major in a spec", func(n *tree) {
			n.files["etc/cdi/x.json"] = `{"cdiVersion":"0.5.0","kind":"example.com/gpu","devices":[{"name":"d","containerEdits":{"deviceNodes":[` +
				`{"path":"/dev/nvidia-uvm","type":"c","major":511}]}}]}`
		}, "specs", host.Fail, "511:0, but /dev/nvidia-uvm is 509:0", "999 cudaErrorUnknown", "without major"},

		{"minors that have changed", func(n *tree) {
			n.spec("etc/cdi/gpu.json", "gpustack.local/gpu", map[string]string{first: "/dev/nvidia1", second: "/dev/nvidia0"})
		}, "devices", host.Fail, "gpustack.local/gpu=0000:84:00.0 names /dev/nvidia1, but the node of 0000:84:00.0 is /dev/nvidia0",
			"another GPU", "have the program that writes /etc/cdi/gpu.json write it again"},
		{"UUID with another minor", func(n *tree) {
			n.spec("etc/cdi/x.json", "nvidia.com/gpu", map[string]string{"GPU-00000000-0000-0000-0000-000000000001": "/dev/nvidia0"})
		}, "devices", host.Fail, "the node of 0000:88:00.0 is /dev/nvidia1", "another GPU", "nvidia-ctk cdi generate"},
		{"spec of a GPU that was unbound", func(n *tree) { n.unbind(second, "vfio-pci") },
			"devices", host.Fail, "names /dev/nvidia1, but 0000:88:00.0 is not bound to NVIDIA's driver", "No such device or address",
			"remove its device from /etc/cdi/gpu.json, or return the GPU to its driver: gpustack host release --device 0000:88:00.0"},
		{"libraries of an older driver in a spec", func(n *tree) {
			n.files["usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07"] = ""
			n.spec("etc/cdi/x.json", "nvidia.com/gpu", map[string]string{"0": "/dev/nvidia0"}, "/usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07")
		}, "devices", host.Fail, "nvidia.com/gpu=0: containers get /usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07, the loaded module is", "18 Driver/library", "nvidia-ctk"},
		{"libraries of EGL, which have versions of their own", func(n *tree) {
			n.files["usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2"] = ""
			n.spec("etc/cdi/x.json", "nvidia.com/gpu", map[string]string{"GPU-00000000-0000-0000-0000-000000000001": "/dev/nvidia1"},
				"/usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2", "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
		}, "devices", host.Pass, "", "", ""},
		{"our spec with the name of an older driver's library", func(n *tree) {
			n.files["usr/lib/x86_64-linux-gnu/libnvidia-gpucomp.so.535.161.07"] = ""
			n.spec("run/cdi/gpustack-gpu.json", "gpustack.local/gpu", map[string]string{first: "/dev/nvidia0"}, "/usr/lib/x86_64-linux-gnu/libnvidia-gpucomp.so.535.161.07")
		}, "devices", host.Fail, "containers get /usr/lib/x86_64-linux-gnu/libnvidia-gpucomp.so.535.161.07, the loaded module is", "18 Driver/library", "systemctl restart gpustack-boot.service"},

		{"recorded device without spec", func(n *tree) {
			n.recordContainers(first, second)
			n.spec("etc/cdi/gpu.json", "gpustack.local/gpu", map[string]string{first: "/dev/nvidia0"})
		}, "record", host.Fail, "no spec has gpustack.local/gpu=0000:88:00.0", "unresolvable CDI devices gpustack.local/gpu=0000:88:00.0", "gpustack container prepare writes the specs again"},
		{"device that is not recorded", func(n *tree) { n.recordContainers(first) },
			"record", host.Fail, "gpustack.local/gpu=0000:88:00.0 is not recorded", "guests", "a kind of its own"},
		{"spec that was edited", func(n *tree) {
			n.recordContainers(first, second)
			n.spec("etc/cdi/gpustack-gpu.json", "gpustack.local/gpu", map[string]string{first: "/dev/nvidia0", second: "/dev/nvidia1"})
		}, "record", host.Warn, "gpustack-gpu.json differs from the spec", "nodes or libraries", "--dry-run"},
		{"spec of a boot that was edited", func(n *tree) {
			n.recordContainers(first, second)
			n.dynamic()
			n.spec("run/cdi/gpustack-gpu.json", "gpustack.local/gpu", map[string]string{first: "/dev/nvidia0", second: "/dev/nvidia1"})
		}, "record", host.Warn, "/run/cdi/gpustack-gpu.json differs from the spec", "nodes or libraries", "systemctl restart gpustack-boot.service writes it again"},
		{"unit that is masked", func(n *tree) {
			n.recordContainers(first, second)
			n.dynamic()
			delete(n.files, unit)
			n.links[unit] = "/dev/null"
		},
			"record", host.Fail, "gpustack-boot.service is masked", "the next boot carries out no steps", "systemctl unmask gpustack-boot.service"},
		{"unit that no boot starts", func(n *tree) { n.recordContainers(first, second); n.dynamic(); delete(n.files, wants) },
			"record", host.Fail, "/" + wants + " missing, although steps are recorded", "the next boot carries out no steps", "gpustack container prepare"},
		{"unit whose program is gone", func(n *tree) {
			n.recordContainers(first, second)
			n.dynamic()
			n.files[unit] = "[Unit]\nConditionFileIsExecutable=/usr/sbin/gpustack\n"
		}, "record", host.Fail, "/usr/sbin/gpustack, which gpustack-boot.service starts, does not exist", "the next boot carries out no steps",
			"install -m 755 FILE /usr/sbin/gpustack"},
		{"spec of a boot that is missing", func(n *tree) { n.recordContainers(first, second); n.dynamic() },
			"record", host.Fail, "/run/cdi/gpustack-gpu.json is missing", "do not get", "systemctl restart gpustack-boot.service"},
		{"spec of a boot that is older than the record", func(n *tree) {
			n.recordContainers(first)
			n.dynamic()
			n.spec("run/cdi/gpustack-gpu.json", "gpustack.local/gpu", map[string]string{first: "/dev/nvidia0", second: "/dev/nvidia1"})
		}, "record", host.Fail, "gpustack.local/gpu=0000:88:00.0 is not recorded", "guests", "systemctl restart gpustack-boot.service writes the spec again"},
		{"spec without a record", func(n *tree) {
			n.spec("run/cdi/gpustack-gpu.json", "gpustack.local/gpu", map[string]string{first: "/dev/nvidia0"})
		}, "record", host.Warn, "/run/cdi/gpustack-gpu.json is a spec of gpustack, and nothing is recorded", "guests", "gpustack container prepare --none"},
		{"recorded device without minor", func(n *tree) { n.recordContainers(first, second); n.unbind(second, "vfio-pci") },
			"record", host.Fail, "0000:88:00.0: the GPU is not bound", "cannot be written", "--remove 0000:88:00.0"},
		{"recorded device replaced", func(n *tree) { n.recordContainers(first, second); n.function(second, "030200", "10de:2330", "nvidia") },
			"record", host.Fail, "0000:88:00.0 is not the recorded function 10de:20b2", "another device", "--remove 0000:88:00.0"},
		{"file of the record changed", func(n *tree) { n.recordContainers(first, second) },
			"record", host.Fail, "/etc/modules-load.d/x.conf was changed", "may not take effect", "--dry-run"},
		{"file of the record missing", func(n *tree) { n.recordContainers(first, second); delete(n.files, "etc/modules-load.d/x.conf") },
			"record", host.Fail, "/etc/modules-load.d/x.conf is missing", "does not take effect", "gpustack container prepare"},

		{"refresh unit without spec", func(n *tree) { n.files["usr/lib/systemd/system/nvidia-cdi-refresh.service"] = "" },
			"toolkit", host.Warn, "/run/cdi/nvidia.yaml, which it writes, is missing", "unresolvable CDI devices nvidia.com/gpu=all", "systemctl restart nvidia-cdi-refresh.service"},
		{"static spec beside the refresh unit", func(n *tree) {
			n.files["usr/lib/systemd/system/nvidia-cdi-refresh.service"] = ""
			n.spec("etc/cdi/nvidia.json", "nvidia.com/gpu", map[string]string{"0": "/dev/nvidia0"})
			n.spec("run/cdi/nvidia.json", "nvidia.com/gpu", map[string]string{"1": "/dev/nvidia1"})
		}, "toolkit", host.Warn, "/etc/cdi/nvidia.json has the kind nvidia.com/gpu", "of two files", "rm /etc/cdi/nvidia.json"},
		{"the refresh unit writes another file", func(n *tree) {
			n.files["usr/lib/systemd/system/nvidia-cdi-refresh.service"] = ""
			n.files["etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"] = "NVIDIA_CTK_DEBUG=1\nNVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/etc/cdi/nvidia.json\n"
			n.spec("etc/cdi/nvidia.json", "nvidia.com/gpu", map[string]string{"0": "/dev/nvidia0"})
		}, "toolkit", host.Pass, "nvidia-cdi-refresh.service writes the specs of nvidia.com/gpu", "", ""},
		{"spec that nothing writes again", func(n *tree) {
			n.spec("etc/cdi/nvidia.json", "nvidia.com/gpu", map[string]string{"0": "/dev/nvidia0"})
		}, "toolkit", host.Warn, "nothing writes it again", "after the next upgrade", "gpustack container prepare --device 0000:84:00.0"},

		{"GPU for guests in a spec, before the reboot", func(n *tree) { n.record(second) },
			"roles", host.Warn, "gpustack.local/gpu=0000:88:00.0 gives 0000:88:00.0 to containers, and it is recorded for guests", "until the reboot", "reboot"},
		{"adapter in exclusive mode", func(n *tree) {
			n.adapter()
			n.files["sys/module/ib_core/parameters/netns_mode"] = "N"
			n.spec("run/cdi/hca.json", "example.com/hca", map[string]string{"0": "/dev/infiniband/uverbs0"})
		}, "devices", host.Warn, "example.com/hca=0 is of an adapter, and network namespaces are exclusive", "Failed to open device", "--network host"},
		{"device_spec of an adapter", func(n *tree) {
			n.adapter()
			n.spec("run/cdi/hca.json", "example.com/hca", map[string]string{"0": "/dev/infiniband/uverbs0"})
			n.offered.Value = []containercheck.Offered{{Address: hosttest.Address(t, hca), Spec: "{}", File: "/etc/nova/nova.conf", Line: 7, ByAddress: true}}
		}, "roles", host.Fail, "device_spec {} matches 0000:0c:00.0, which containers use", "libvirt unbinds it", "remove the address from the spec"},
		{"device_spec of a twin", func(n *tree) {
			n.record(second)
			n.spec("etc/cdi/gpu.json", "gpustack.local/gpu", map[string]string{first: "/dev/nvidia0"})
			n.offered.Value = []containercheck.Offered{
				{Address: hosttest.Address(t, first), Spec: `{"vendor_id":"10de","product_id":"20b2"}`, File: "/etc/nova/nova.conf", Line: 7},
				{Address: hosttest.Address(t, second), Spec: `{"vendor_id":"10de","product_id":"20b2"}`, File: "/etc/nova/nova.conf", Line: 7},
			}
		}, "roles", host.Fail, `matches 0000:84:00.0, which containers use`, "Nova assigns it to a guest", "addresses"},

		{"NVSwitches without Fabric Manager", func(n *tree) {
			n.function("0000:20:00.0", "060400", "8086:2f02", "pcieport")
			n.function("0000:21:00.0", "068000", "10de:1af1", "nvidia-nvswitch")
			parent := hosttest.Address(t, "0000:20:00.0")
			n.change = func(m *containercheck.Observed) {
				for i := range m.Devices.Value {
					m.Devices.Value[i].Parent = &parent
				}
			}
		}, "fabric", host.Fail, "nvidia-fabricmanager.service does not run", "802 system not yet initialized", "enable --now"},

		{"a card that is not seated well", func(n *tree) {
			at := "sys/bus/pci/devices/" + first
			n.files[at+"/current_link_width"], n.files[at+"/max_link_width"] = "4", "16"
		}, "pcie", host.Warn, first + ": the PCIe link has 4 of 16 lanes", "slower", "lspci -vv -s " + first},
		{"a card for guests that is not seated well", func(n *tree) {
			at := "sys/bus/pci/devices/" + first
			n.files[at+"/current_link_width"], n.files[at+"/max_link_width"] = "4", "16"
			n.record(first)
		}, "pcie", host.NA, "the kernel shows no PCIe link of a GPU", "", ""},
		{"all lanes", func(n *tree) {
			at := "sys/bus/pci/devices/" + first
			n.files[at+"/current_link_width"], n.files[at+"/max_link_width"] = "16", "16"
		}, "pcie", host.Pass, "1 PCIe link with all lanes of card and slot", "", ""},

		{"NVIDIA's hook behind a runtime with cgroups of systemd", func(n *tree) {
			n.files["etc/docker/daemon.json"] = `{"exec-opts":["native.cgroupdriver=systemd"],"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
		}, "cgroups", host.Warn, "NVIDIA's runtime of docker (mode auto) adds nodes that systemd", "Failed to initialize NVML: Unknown Error", "create-dev-char-symlinks"},
		{"NVIDIA's runtime that makes a spec in memory", func(n *tree) {
			n.files["etc/docker/daemon.json"] = `{"exec-opts":["native.cgroupdriver=systemd"],"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
			n.files["usr/lib/systemd/system/nvidia-cdi-refresh.service"] = ""
		}, "cgroups", host.Pass, "nothing is known to take GPUs", "", ""},
		{"NVIDIA's hook behind a runtime with cgroupfs", func(n *tree) {
			n.files["sys/fs/cgroup/cgroup.controllers"] = ""
			n.files["etc/docker/daemon.json"] = `{"exec-opts":["native.cgroupdriver=cgroupfs"],"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
		}, "cgroups", host.Pass, "nothing is known to take GPUs", "", ""},
		{"NVIDIA's hook behind docker with cgroups of version 2", func(n *tree) {
			n.files["sys/fs/cgroup/cgroup.controllers"] = ""
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
		}, "cgroups", host.Warn, "NVIDIA's runtime of docker", "daemon-reload", "udev"},
		{"NVIDIA's hook, with links", func(n *tree) {
			n.files["etc/docker/daemon.json"] = `{"exec-opts":["native.cgroupdriver=systemd"],"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
			n.files["dev/char/195:0"] = ""
		}, "cgroups", host.Pass, "/dev/char has links", "", ""},
		{"a spec, and a runc that drops its nodes", func(n *tree) { n.files["var/lib/dpkg/status"] = runcPackage("1.1.5+ds1-1+deb12u1") },
			"cgroups", host.Warn, "runc 1.1.5 drops device nodes", "daemon-reload", "runc 1.1.7 or later"},
		{"a spec, and a runc that keeps its nodes", func(n *tree) { n.files["var/lib/dpkg/status"] = runcPackage("1.1.15+ds1-2") },
			"cgroups", host.Pass, "nothing is known to take GPUs", "", ""},
		{"a spec, and a runc before the one that drops its nodes", func(n *tree) { n.files["var/lib/dpkg/status"] = runcPackage("1.0.0~rc93-1") },
			"cgroups", host.Pass, "nothing is known to take GPUs", "", ""},
		{"a spec, and the systemd of RHEL 8", func(n *tree) { n.files["usr/lib/systemd/libsystemd-shared-239.so"] = "" },
			"cgroups", host.Warn, "systemd 239 drops device nodes", "daemon-reload", "udev"},
		{"a spec, and the systemd of Debian 12", func(n *tree) { n.files["usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so"] = "" },
			"cgroups", host.Pass, "nothing is known to take GPUs", "", ""},
		{"no spec, and the systemd of RHEL 8", func(n *tree) {
			delete(n.files, "etc/cdi/gpu.json")
			n.files["usr/lib/systemd/libsystemd-shared-239.so"] = ""
		}, "cgroups", host.NA, "nothing gives containers a GPU", "", ""},
		{"SELinux denies devices", func(n *tree) {
			n.files["sys/fs/selinux/enforce"] = "1"
			n.files["sys/fs/selinux/booleans/container_use_devices"] = "0 0"
		},
			"selinux", host.Warn, "SELinux is enforcing, and denies containers device nodes", "100 cudaErrorNoDevice", "--security-opt=label=disable"},
		{"SELinux with the boolean", func(n *tree) {
			n.files["sys/fs/selinux/enforce"] = "1"
			n.files["sys/fs/selinux/booleans/container_use_devices"] = "1 1"
		},
			"selinux", host.Pass, "container_use_devices is on", "", ""},
		{"SELinux without the boolean", func(n *tree) { n.files["sys/fs/selinux/enforce"] = "1" },
			"selinux", host.Warn, "its policy has no boolean container_use_devices", "100 cudaErrorNoDevice",
			"--security-opt=label=disable, or install a container-selinux"},
		{"SELinux with a malformed boolean", func(n *tree) {
			n.files["sys/fs/selinux/enforce"] = "1"
			n.files["sys/fs/selinux/booleans/container_use_devices"] = "yes"
		}, "selinux", host.NA, `/sys/fs/selinux/booleans/container_use_devices: "yes"`, "", ""},
		{"SELinux permissive", func(n *tree) { n.files["sys/fs/selinux/enforce"] = "0" }, "selinux", host.NA, "not enforcing", "", ""},

		{"no libcuda on RHEL", func(n *tree) { n.libraries = n.libraries[1:]; n.files["etc/os-release"] = "ID=\"rhel\"\n" },
			"libraries", host.Fail, "libcuda.so.1 is not installed", "35 cudaErrorInsufficientDriver", "dnf install nvidia-driver-cuda"},
		{"no libcuda on Ubuntu", func(n *tree) { n.libraries = n.libraries[1:]; n.files["etc/os-release"] = "ID=ubuntu\n" },
			"libraries", host.Fail, "libcuda.so.1 is not installed", "35 cudaErrorInsufficientDriver", "apt-get install libnvidia-compute-550 nvidia-utils-550"},
		{"no libcuda beside a driver container", func(n *tree) { n.libraries = n.libraries[1:]; n.files["run/nvidia/driver/usr/bin/nvidia-smi"] = "" },
			"libraries", host.Fail, "libcuda.so.1 is not installed", "35 cudaErrorInsufficientDriver", "restart the driver container, whose root is /run/nvidia/driver"},
		{"module of a driver container", func(n *tree) { n.onDisk = nil; n.files["run/nvidia/driver/usr/bin/nvidia-smi"] = "" },
			"module", host.Pass, "version 550.163.01 is loaded, by the driver container in /run/nvidia/driver", "", ""},
		{"NVIDIA's runtime of docker", func(n *tree) {
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime","runtimeArgs":[]}},"default-runtime":"nvidia"}`
			n.files["etc/nvidia-container-runtime/config.toml"] = "[nvidia-container-runtime]\nmode = \"legacy\"\n"
		}, "runtimes", host.Pass, "NVIDIA's runtime of docker (mode legacy) gives containers GPUs and the driver without a CDI spec", "no role of a GPU", ""},
		{"NVIDIA's runtime of containerd", func(n *tree) {
			n.files["etc/containerd/config.toml"] = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]\n  BinaryName = \"/usr/local/nvidia/toolkit/nvidia-container-runtime\"\n"
		}, "runtimes", host.Pass, "NVIDIA's runtime of containerd (mode auto)",
			"no role of a GPU", ""},
		{"NVIDIA's runtime of docker, not the default", func(n *tree) {
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"gpu":{"path":"nvidia-container-runtime"}}}`
		}, "runtimes", host.Pass, "NVIDIA's runtime of docker (mode auto)",
			"no role of a GPU", ""},
		{"NVIDIA's runtime of containerd before runc without a program", func(n *tree) {
			n.files[containerdConf] = runtimeTable("nvidia", nvidiaRuntime) + runtimeTable("runc", "")
		}, "runtimes", host.Pass, "NVIDIA's runtime of containerd (mode auto)", "no role of a GPU", ""},
		{"NVIDIA's runtime of containerd before runc", func(n *tree) {
			n.files[containerdConf] = "default_runtime_name = \"nvidia\"\n" + runtimeTable("nvidia", nvidiaRuntime) + runtimeTable("runc", "/usr/sbin/runc")
		}, "runtimes", host.Pass, "NVIDIA's runtime of containerd (mode auto)", "no role of a GPU", ""},
		{"NVIDIA's runtimes of containerd, one of them the default", func(n *tree) {
			n.files[containerdConf] = runtimeTable("nvidia", nvidiaRuntime) + runtimeTable("nvidia-cdi", nvidiaRuntime+".cdi") +
				runtimeTable("nvidia-legacy", nvidiaRuntime+".legacy") + "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  default_runtime_name = 'nvidia-legacy'\n"
		}, "runtimes", host.Pass, "NVIDIA's runtime of containerd (mode legacy)", "no role of a GPU", ""},
		{"NVIDIA's runtime of containerd in place of runc", func(n *tree) {
			n.files[containerdConf] = runtimeTable("runc", nvidiaRuntime)
		}, "runtimes", host.Pass, "NVIDIA's runtime of containerd (mode auto)", "no role of a GPU", ""},
		{"NVIDIA's runtime of containerd by dotted keys and a quoted name", func(n *tree) {
			n.files[containerdConf] = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes]\n  \"gpu.class\".options.BinaryName = '" + nvidiaRuntime +
				"' # of the toolkit\n"
		}, "runtimes", host.Pass, "NVIDIA's runtime of containerd (mode auto)", "no role of a GPU", ""},
		{"NVIDIA's runtime of containerd that a later file replaces", func(n *tree) {
			n.files[containerdConf] = "imports = ['conf.d/*.toml']\n" + runtimeTable("nvidia", nvidiaRuntime)
			n.files["etc/containerd/conf.d/x.toml"] = runtimeTable("nvidia", "/usr/bin/runc")
		}, "runtimes", host.NA, "neither docker nor a runtime", "", ""},
		{"NVIDIA's runtime of containerd in a later file", func(n *tree) {
			n.files[containerdConf] = "imports = ['conf.d/*.toml']\n" + runtimeTable("runc", "/usr/bin/runc")
			n.files["etc/containerd/conf.d/x.toml"] = "default_runtime_name = 'nvidia'\n" + runtimeTable("nvidia", nvidiaRuntime)
		}, "runtimes", host.Pass, "NVIDIA's runtime of containerd (mode auto)", "no role of a GPU", ""},
		{"NVIDIA's runtime of containerd in a folder of two that are imported", func(n *tree) {
			n.files[containerdConf] = "imports = [\"/etc/containerd/config.toml\", \"/srv/conf/*.toml\"]\n" + runtimeTable("runc", "/usr/bin/runc")
			n.files["srv/conf/x.toml"] = runtimeTable("nvidia", nvidiaRuntime)
		}, "runtimes", host.Pass, "NVIDIA's runtime of containerd (mode auto)", "no role of a GPU", ""},
		{"NVIDIA's runtime of containerd in a file that is imported", func(n *tree) {
			n.files[containerdConf] = "imports = ['gpu.toml']\n"
			n.files["etc/containerd/gpu.toml"] = runtimeTable("nvidia", nvidiaRuntime)
			n.files["etc/containerd/other.toml"] = runtimeTable("nvidia", nvidiaRuntime+".legacy")
		}, "runtimes", host.Pass, "NVIDIA's runtime of containerd (mode auto)", "no role of a GPU", ""},
		{"NVIDIA's runtime of containerd in a folder that is not imported", func(n *tree) {
			n.files[containerdConf] = "imports = []\n" + runtimeTable("runc", "/usr/bin/runc")
			n.files["etc/containerd/conf.d/x.toml"] = runtimeTable("nvidia", nvidiaRuntime)
		}, "runtimes", host.NA, "neither docker nor a runtime", "", ""},
		{"imports of containerd on several lines", func(n *tree) {
			n.files[containerdConf] = "imports = [\n  'conf.d/*.toml',\n]\n"
			n.files["etc/containerd/conf.d/x.toml"] = runtimeTable("nvidia", nvidiaRuntime)
		}, "runtimes", host.NA, "/etc/containerd/config.toml: not judged: imports", "", ""},
		{"imports of containerd from several folders", func(n *tree) {
			n.files[containerdConf] = "imports = ['/srv/*/x.toml']\n"
		}, "runtimes", host.NA, "/etc/containerd/config.toml: not judged: imports", "", ""},
		{"imports of a file that containerd imports", func(n *tree) {
			n.files[containerdConf] = "imports = ['conf.d/*.toml']\n"
			n.files["etc/containerd/conf.d/x.toml"] = "imports = ['/srv/*.toml']\n"
		}, "cgroups", host.NA, "/etc/containerd/conf.d/x.toml: not judged: imports", "", ""},
		{"two of docker's runtimes are NVIDIA's, the later one is the default", func(n *tree) {
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"a":{"path":"nvidia-container-runtime"},"b":{"path":"nvidia-container-runtime"}},"default-runtime":"b"}`
		}, "runtimes", host.Pass, "NVIDIA's runtime of docker (mode auto)", "no role of a GPU", ""},

		{"docker's configuration cannot be read", func(n *tree) { n.files["etc/docker/daemon.json"] = `{"runtimes":` },
			"runtimes", host.NA, "/etc/docker/daemon.json: malformed JSON", "", ""},
		{"docker's configuration cannot be read, as what creates cgroups", func(n *tree) { n.files["etc/docker/daemon.json"] = `{"runtimes":` },
			"cgroups", host.NA, "/etc/docker/daemon.json: malformed JSON", "", ""},
		{"the mode of NVIDIA's runtime cannot be read", func(n *tree) {
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
			n.files["etc/nvidia-container-runtime/config.toml/x"] = ""
		}, "runtimes", host.NA, "/etc/nvidia-container-runtime/config.toml: ", "", ""},
		{"the mode of NVIDIA's runtime cannot be read, docker reads no specs", func(n *tree) {
			delete(n.files, "etc/cdi/gpu.json")
			n.files["usr/bin/dockerd"] = ""
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
			n.files["etc/nvidia-container-runtime/config.toml/x"] = ""
		}, "runtimes", host.NA, "/etc/nvidia-container-runtime/config.toml: ", "", ""},
		{"a mode that cannot be read, of a runtime with its own", func(n *tree) {
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime.legacy"}}}`
			n.files["etc/nvidia-container-runtime/config.toml/x"] = ""
		}, "runtimes", host.Pass, "(mode legacy)", "", ""},
		{"NVIDIA's runtime in mode cdi needs specs", func(n *tree) {
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
			n.files["etc/nvidia-container-runtime/config.toml"] = "[nvidia-container-runtime]\nmode = \"cdi\"\n"
		}, "runtimes", host.NA, "neither docker nor a runtime", "", ""},
		{"docker that reads no specs, with NVIDIA's runtime", func(n *tree) {
			delete(n.files, "etc/cdi/gpu.json")
			n.files["usr/bin/dockerd"] = ""
			n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"/usr/bin/nvidia-container-runtime"}}}`
		}, "runtimes", host.Pass, "NVIDIA's runtime of docker (mode auto) gives containers GPUs and the driver without a CDI spec", "", ""},
		{"systemd cgroups of one of containerd's runtimes", func(n *tree) {
			n.files[containerdConf] = runtimeTable("nvidia", nvidiaRuntime) + "  SystemdCgroup = true # default of kubeadm\n" + runtimeTable("runc", "") + "  SystemdCgroup = false\n"
		}, "cgroups", host.Warn, "NVIDIA's runtime of containerd (mode auto) adds nodes", "daemon-reload", "udev"},
		{"systemd cgroups of another of containerd's runtimes", func(n *tree) {
			n.files[containerdConf] = runtimeTable("nvidia", nvidiaRuntime) + "  SystemdCgroup = false\n" + runtimeTable("runc", "") + "  SystemdCgroup = true\n"
		}, "cgroups", host.Pass, "nothing is known to take GPUs", "", ""},

		{"NVIDIA's runtime as the default of CRI-O", func(n *tree) {
			n.files["etc/crio/crio.conf.d/99-nvidia.conf"] = "[crio.runtime]\ndefault_runtime = \"nvidia\"\n[crio.runtime.runtimes.nvidia]\nruntime_path = \"/usr/bin/nvidia-container-runtime\"\n"
		}, "runtimes", host.Pass, "NVIDIA's runtime of crio (mode auto) gives containers GPUs", "no role of a GPU", ""},
		{"NVIDIA's runtime of CRI-O, with its cgroups", func(n *tree) {
			n.files["etc/crio/crio.conf"] = "[crio.runtime.runtimes.nvidia]\nruntime_path = \"/usr/bin/nvidia-container-runtime\"\n"
		}, "cgroups", host.Warn, "NVIDIA's runtime of crio (mode auto) adds nodes", "daemon-reload", "udev"},
		{"docker with NVIDIA's hook, for --gpus", func(n *tree) {
			n.files["usr/bin/dockerd"], n.files["usr/bin/nvidia-container-runtime-hook"] = "", ""
		}, "runtimes", host.Pass, "NVIDIA's hook of docker gives containers GPUs", "no role of a GPU", ""},
		{"docker with NVIDIA's hook, and cgroups of version 2", func(n *tree) {
			n.files["usr/bin/dockerd"], n.files["usr/bin/nvidia-container-runtime-hook"] = "", ""
			n.files["sys/fs/cgroup/cgroup.controllers"] = "devices\n"
		}, "cgroups", host.Warn, "NVIDIA's hook of docker adds nodes", "daemon-reload", "udev"},
		{"NVIDIA's runtime of the GPU operator, which makes specs in memory", func(n *tree) {
			n.files["etc/crio/crio.conf"] = "[crio.runtime.runtimes.nvidia]\nruntime_path = \"/usr/local/nvidia/toolkit/nvidia-container-runtime\"\n"
			n.files["usr/local/nvidia/toolkit/libnvidia-container.so.1.18.2"] = ""
		}, "cgroups", host.Pass, "nothing is known to take GPUs", "", ""},
		{"NVIDIA's hook of podman", func(n *tree) { n.files["usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"] = "{}" },
			"runtimes", host.Pass, "NVIDIA's hook of podman gives containers GPUs", "no role of a GPU", ""},
		{"NVIDIA's runtime of k3s", func(n *tree) {
			n.files["var/lib/rancher/k3s/agent/etc/containerd/config.toml"] = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.'nvidia'.options]\n" +
				"  BinaryName = \"/usr/bin/nvidia-container-runtime\"\n  SystemdCgroup = true\n"
		}, "runtimes", host.Pass, "NVIDIA's runtime of k3s (mode auto) gives", "no role of a GPU", ""},
		{"NVIDIA's runtime of k3s in a folder", func(n *tree) {
			n.files["var/lib/rancher/k3s/agent/etc/containerd/config.toml"] = "imports = [\"/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml\"]\n"
			n.files["var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml"] = runtimeTable("nvidia", "/usr/bin/nvidia-container-runtime")
		}, "runtimes", host.Pass, "NVIDIA's runtime of k3s (mode auto) gives", "no role of a GPU", ""},
		{"NVIDIA's runtime of RKE2", func(n *tree) {
			n.files["var/lib/rancher/rke2/agent/etc/containerd/config.toml"] = runtimeTable("nvidia", "/usr/local/nvidia/toolkit/nvidia-container-runtime")
		}, "runtimes", host.Pass, "NVIDIA's runtime of rke2 (mode auto) gives", "no role of a GPU", ""},

		{"forward compatibility for the host's loader", func(n *tree) { n.hostCompat("560.28.03") },
			"libraries", host.Pass, "9 libraries of version 550.163.01", "", ""},
		{"forward compatibility for the host's loader, on a GeForce", func(n *tree) {
			n.files["proc/driver/nvidia/gpus/"+first+"/information"] = "Model: \t NVIDIA GeForce RTX 3090\nDevice Minor: \t 0"
			n.hostCompat("560.28.03")
		}, "libraries", host.Fail, "/usr/local/cuda-12/compat/libcuda.so.1 is of version 560.28.03", "803 system", "reboot"},
		{"older libraries of forward compatibility for the host's loader", func(n *tree) { n.hostCompat("535.161.07") },
			"libraries", host.Fail, "/usr/local/cuda-12/compat/libcuda.so.1 is of version 535.161.07", "803 system", "reboot"},
		{"no spec on a node of a driver container", func(n *tree) {
			n.ofContainer()
			n.spec("etc/cdi/x.json", "example.com/gpu", map[string]string{"0": "/dev/nvidia0"})
		}, "devices", host.Fail, "containers get no libcuda.so.1", "35 cuda", "gpustack container prepare --device 0000:84:00.0 --static"},
		{"a node that is missing beside a driver container", func(n *tree) {
			n.ofContainer()
			delete(n.files, "dev/nvidia-uvm")
		}, "nodes", host.Fail, "/dev/nvidia-uvm is missing", "999 cuda", "restart the driver container"},
		{"a node that is missing without systemd", func(n *tree) {
			delete(n.files, "usr/lib/systemd/systemd")
			delete(n.files, "dev/nvidia-uvm")
		}, "nodes", host.Fail, "/dev/nvidia-uvm is missing", "999 cuda", "nvidia-modprobe -u -c 0, at every boot"},
		{"a spec without libcuda, without systemd", func(n *tree) {
			delete(n.files, "usr/lib/systemd/systemd")
			n.spec("etc/cdi/x.json", "example.com/gpu", map[string]string{"0": "/dev/nvidia0"})
		}, "devices", host.Fail, "containers get no libcuda.so.1", "35 cuda", "--device 0000:84:00.0 --static"},
		{"a node of MIG that is missing", func(n *tree) {
			n.spec("etc/cdi/x.json", "example.com/gpu", map[string]string{"0": "/dev/nvidia-caps/nvidia-cap12"})
		}, "specs", host.Fail, "/dev/nvidia-caps/nvidia-cap12 does not exist", "failed to stat CDI host device", "generate the spec again after every change of the driver"},

		{"a spec without libcuda", func(n *tree) { n.spec("etc/cdi/x.json", "example.com/gpu", map[string]string{"0": "/dev/nvidia0"}) },
			"devices", host.Fail, "example.com/gpu=0: containers get no libcuda.so.1", "35 cudaErrorInsufficientDriver", "gpustack container prepare --device 0000:84:00.0"},
		{"a spec without nvidia-uvm", func(n *tree) { n.without("deviceNodes", `{"path":"/dev/nvidia-uvm"}`) },
			"devices", host.Fail, "gpustack.local/gpu=0000:84:00.0: containers get no /dev/nvidia-uvm", "999 cudaErrorUnknown", "generate the spec again"},
		{"a spec without nvidiactl", func(n *tree) { n.without("deviceNodes", `{"path":"/dev/nvidiactl"}`) },
			"devices", host.Fail, "containers get no /dev/nvidiactl", "100 cudaErrorNoDevice", "generate the spec again"},
		{"a spec without the PTX compiler of a driver that has it", func(n *tree) {
			n.old(t, "590.48.01")
			n.files["etc/cdi/gpu.json"] = strings.ReplaceAll(n.files["etc/cdi/gpu.json"], "libnvidia-ptxjitcompiler.so.1", "libnvidia-cfg.so.1")
		}, "devices", host.Fail, "containers get no libnvidia-ptxjitcompiler.so.1, which driver 590.48.01 needs", "221 cudaErrorJitCompilerNotFound", "generate the spec again"},
		{"a spec without the library that CUDA of 590 opens", func(n *tree) {
			n.old(t, "590.48.01")
			const name = "libnvidia-gpucomp.so.590.48.01"
			n.libraries = append(n.libraries, nvidia.Library{Folder: "/" + multiarch, Link: name, File: "/" + multiarch + "/" + name, Version: "590.48.01"})
		}, "devices", host.Fail, "containers get no libnvidia-gpucomp.so.590.48.01, which", "221 cudaErrorJitCompilerNotFound", "generate the spec again"},
		{"a spec with a versioned libcuda and no link to it", func(n *tree) {
			n.files[libraries+"libcuda.so."+loaded] = ""
			text := n.files["etc/cdi/gpu.json"]
			text = strings.ReplaceAll(text, "libcuda.so.1\",\"containerPath", "libcuda.so."+loaded+"\",\"containerPath")
			text = strings.ReplaceAll(text, "libcuda.so.1\",\"options", "libcuda.so."+loaded+"\",\"options")
			n.files["etc/cdi/gpu.json"] = strings.ReplaceAll(text, "update-ldcache", "chmod")
		}, "devices", host.Fail, "and no hook makes the link libcuda.so.1 to it", "35 cudaErrorInsufficientDriver", "generate the spec again"},
		{"a spec without what Triton links with", func(n *tree) {
			n.files["etc/cdi/gpu.json"] = strings.ReplaceAll(n.files["etc/cdi/gpu.json"], "update-ldcache", "chmod")
		},
			"devices", host.Warn, "neither the link libcuda.so with the loader's cache, nor TRITON_LIBCUDA_PATH", "torch.compile", "generate the spec again"},
		{"an adapter of guests in a spec", func(n *tree) {
			n.adapter()
			n.record(hca)
			n.spec("etc/cdi/hca.json", "example.com/hca", map[string]string{"0": "/dev/infiniband/uverbs0"})
		}, "roles", host.Fail, "example.com/hca=0 gives 0000:0c:00.0 to containers, and it is recorded for guests", "beside guests", "remove its device from /etc/cdi/hca.json"},
	}...)
}

func TestFindings(t *testing.T) {
	t.Parallel()
	for _, test := range cases(t) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := healthy()
			test.change(n)
			findings, verdict, err := n.verify(t)
			hosttest.NoError(t, err)
			if test.status == host.Fail && verdict != checklist.NotReady {
				t.Errorf("verdict %q", verdict)
			}
			var others []host.Finding
			for _, f := range findings {
				if f.Check != test.check {
					continue
				}
				if f.Status == test.status && strings.Contains(f.Seen, test.seen) && strings.Contains(f.Effect, test.effect) && strings.Contains(f.Remedy.String(), test.remedy) {
					return
				}
				others = append(others, f)
			}
			t.Errorf("no finding %q of %s with %q, %q, %q among %+v", test.status, test.check, test.seen, test.effect, test.remedy, others)
		})
	}
}

// TestUnreadFile: of several files that a value is read from, a finding names the one that cannot
// be read, once and no other.
func TestUnreadFile(t *testing.T) {
	t.Parallel()
	n := healthy()
	n.files["usr/bin/dockerd"], n.files["etc/docker/daemon.json"] = "", `{"runtimes":`
	n.image(t, runtime124+file124)
	findings, _, err := n.verify(t)
	hosttest.NoError(t, err)
	const file = "/etc/docker/daemon.json"
	checks := map[string]bool{}
	for _, f := range findings {
		if f.Status != host.NA || !strings.Contains(f.Seen, "malformed") {
			continue
		}
		checks[f.Check] = true
		if seen := strings.TrimPrefix(f.Seen, n.images[0].Name+": "); f.File != file || !strings.HasPrefix(seen, file+": malformed JSON: ") ||
			strings.Count(seen, file) != 1 {
			t.Errorf("%+v", f)
		}
	}
	hosttest.EqualIn(t, "checks with the finding", map[string]bool{"images": true, "runtimes": true, "cgroups": true}, checks)
}

// TestRemedyOfNodes: nvidia-modprobe is not offered for nodes that it does not make.
func TestRemedyOfNodes(t *testing.T) {
	t.Parallel()
	for node, offered := range map[string]bool{
		"/dev/nvidia7": true, "/dev/nvidia-uvm": true, "/dev/nvidia-caps/nvidia-cap12": false, "/dev/dri/renderD128": false,
		"/dev/nvidia-caps-imex-channels/channel0": false,
	} {
		n := healthy()
		delete(n.files, node[1:])
		n.spec("etc/cdi/x.json", "example.com/gpu", map[string]string{"0": node})
		findings, _, err := n.verify(t)
		hosttest.NoError(t, err)
		i := slices.IndexFunc(findings, func(f host.Finding) bool {
			return f.Check == "specs" && strings.Contains(f.Seen, node+" does not exist")
		})
		if i < 0 || strings.Contains(findings[i].Remedy.String(), "nvidia-modprobe") != offered {
			t.Errorf("%s: %+v", node, findings)
		}
	}
}

// TestSnapshot: a spec with hooks of NVIDIA's toolkit, and one that only root can read, are judged
// from a snapshot as on the node.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	n := healthy()
	n.spec("etc/cdi/private.json", "example.com/gpu", map[string]string{"0": "/dev/nvidia0"}, "/"+libraries+"libcuda.so.1")
	root := n.lay(t)
	hosttest.NoError(t, os.Chmod(root.Path("etc/cdi/private.json"), 0o600))
	var tree snapshot.Tree
	want, _, err := containercheck.Verify(n.observe(t, root.Recorded(&tree)))
	hosttest.NoError(t, err)
	dir := t.TempDir()
	hosttest.NoError(t, tree.Unpack(dir))
	again := hosttest.Root(t, dir)
	got, _, err := containercheck.Verify(n.observe(t, again))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-node +snapshot):\n%s", err, diff)
	}
	private := func(f host.Finding) bool {
		return f.File == "/etc/cdi/private.json" && f.Status == host.Warn && strings.Contains(f.Seen, "mode 0600") &&
			f.Remedy.String() == "chmod 644 /etc/cdi/private.json"
	}
	if !slices.ContainsFunc(want, private) {
		t.Errorf("the mode is not judged: %+v", want)
	}
}

// TestReduced: from what a snapshot contains of configurations, NVIDIA's runtimes are as from the
// files.
func TestReduced(t *testing.T) {
	t.Parallel()
	n := healthy()
	n.files[containerdConf] = "imports = ['conf.d/*.toml']\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  default_runtime_name = 'nvidia-legacy'\n" +
		runtimeTable("nvidia", nvidiaRuntime) + "  SystemdCgroup = true\n" + runtimeTable("nvidia-legacy", nvidiaRuntime+".legacy") + "  SystemdCgroup = false\n" +
		runtimeTable("nvidia-cdi", nvidiaRuntime+".cdi") + "[plugins.\"io.containerd.grpc.v1.cri\".registry.auth]\n  password = 'hunter2'\n"
	n.files["etc/containerd/conf.d/x.toml"] = runtimeTable("nvidia-cdi", "")
	n.files["etc/docker/daemon.json"] = `{"runtimes":{"nvidia":{"path":"nvidia-container-runtime"}}}`
	recorded := recorder{files: map[string]string{}}
	root := n.lay(t)
	want := n.observe(t, root.Recorded(&recorded))
	again := healthy()
	for name, data := range recorded.files {
		if strings.HasPrefix(name, "etc/containerd/") || strings.HasPrefix(name, "etc/docker/") {
			again.files[name] = data
		}
		if strings.Contains(data, "hunter2") {
			t.Errorf("%s is recorded with a password", name)
		}
	}
	got := again.observe(t, again.lay(t))
	if len(want.Injectors.Value) != 3 || !slices.ContainsFunc(want.Injectors.Value, func(i container.Injector) bool { return i.Systemd }) {
		t.Errorf("%+v", want.Injectors)
	}
	hosttest.EqualIn(t, "injectors", want.Injectors, got.Injectors)
}

// recorder records the content of files.
type recorder struct {
	sync.Mutex
	files map[string]string
}

func (r *recorder) File(name string, data []byte, err error) {
	if err == nil && data != nil {
		r.Lock()
		defer r.Unlock()
		r.files[name] = string(data)
	}
}
func (*recorder) Mode(string, fs.FileMode)    {}
func (*recorder) Link(string, string, error)  {}
func (*recorder) Dir(string, []string, error) {}

// general returns a message as docs/containers.md has it: names of one machine differ.
func general(message string) string {
	for _, r := range []struct{ from, to string }{
		{`devices \S+=\S+$|devices NAME$`, "devices nvidia.com/gpu=all"},
		{`host device "\S+"`, `host device "/dev/nvidia7"`},
		{`error mounting .*: no such`, `error mounting "/usr/lib/…/libcuda.so.535.161.07" to rootfs at "…": stat …: no such`},
		{`unmarshal CDI Spec: .*`, "unmarshal CDI Spec: …"},
		{`conflicting device .*`, "conflicting device …"},
	} {
		message = regexp.MustCompile(r.from).ReplaceAllString(message, r.to)
	}
	return message
}

// TestMessages: docs/containers.md lists exactly the messages that findings quote.
func TestMessages(t *testing.T) {
	t.Parallel()
	// Messages of the CDI library and of runtimes have quoted names in them.
	quoted := regexp.MustCompile(`"((?:[^"]|"[^" ]*/[^" ]*")+)"`)
	found := map[string]bool{}
	for _, test := range cases(t) {
		n := healthy()
		test.change(n)
		findings, _, _ := n.verify(t)
		for _, f := range findings {
			for _, match := range quoted.FindAllStringSubmatch(f.Effect, -1) {
				found[general(match[1])] = true
			}
		}
	}
	text := hosttest.Read(t, "../../../docs/containers.md")
	_, table, _ := strings.Cut(text, "| message | cause | cure |\n")
	documented := map[string]bool{}
	for line := range strings.Lines(table) {
		cell, ok := strings.CutPrefix(line, "| `")
		if strings.HasPrefix(line, "|---") {
			continue
		}
		if !ok {
			break
		}
		message, _, _ := strings.Cut(cell, "` |")
		documented[message] = true
	}
	hosttest.EqualIn(t, "messages (-docs/containers.md +findings)", documented, found)
}

// BenchmarkCheck measures a host with 16 GPUs and 40 specs.
func BenchmarkCheck(b *testing.B) {
	n := healthy()
	for i := range 14 {
		n.gpu(fmt.Sprintf("0000:9%x:00.0", i), 2+i)
	}
	for i := range 39 {
		devices := map[string]string{}
		for k := range 16 {
			devices[fmt.Sprint(k)] = fmt.Sprintf("/dev/nvidia%d", k)
		}
		n.spec(fmt.Sprintf("etc/cdi/%d.json", i), fmt.Sprintf("example.com/gpu%d", i), devices, "/"+libraries+"libcuda.so.1", "/"+libraries+"libnvidia-ml.so.1")
	}
	root := n.lay(b)
	for b.Loop() {
		if _, _, err := containercheck.Verify(n.observe(b, root)); err != nil {
			b.Fatal(err)
		}
	}
}
