// Command cudaprobe says what CUDA's driver library says in the place where it runs, as one line of
// JSON (see host/cuda/answer): which libcuda the loader finds, which GPUs it has, and whether a
// kernel computes on each. gpustack carries it for container test, and runs it in containers.
//
// It is linked to the libc of where it runs, without a C compiler: purego loads libraries with the
// loader of glibc. Run by root, libcuda creates device nodes; gpustack runs it as nobody. It never
// judges.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/ebitengine/purego"

	"gpustack/host/cuda/answer"
)

func main() {
	runtime.LockOSThread() // contexts of CUDA are those of a thread
	a := ask()
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		fmt.Fprintln(os.Stderr, "cudaprobe:", err)
		os.Exit(1)
	}
}

// ask loads libcuda and asks it all.
func ask() answer.Answer {
	a := answer.Answer{Version: answer.Version, GPUs: []answer.GPU{}, Nodes: nodes()}
	library, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		a.LoadError = err.Error()
		return a
	}
	a.Library = mapped("libcuda.so")
	c, failed := load(library)
	if failed != nil {
		a.Failed = failed
		return a
	}
	var version int32
	if c.driverGetVersion(&version) == 0 {
		a.CUDA = decimal(version/1000) + "." + decimal(version%1000/10)
	}
	if a.Failed = c.failure("cuInit", c.init(0)); a.Failed != nil {
		return a
	}
	var count int32
	if a.Failed = c.failure("cuDeviceGetCount", c.deviceGetCount(&count)); a.Failed != nil {
		return a
	}
	for i := range count {
		a.GPUs = append(a.GPUs, c.gpu(i))
	}
	return a
}

// nodes returns the device nodes of NVIDIA's driver. They are opened as libcuda opens them.
func nodes() []answer.Node {
	found := []answer.Node{}
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return found // what is missing is seen to be
	}
	for _, entry := range entries {
		name := filepath.Join("/dev", entry.Name())
		if !strings.HasPrefix(entry.Name(), "nvidia") {
			continue
		}
		var stat syscall.Stat_t
		if err := syscall.Stat(name, &stat); err != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFCHR {
			continue
		}
		n := answer.Node{Path: name, Major: major(stat.Rdev), Minor: minor(stat.Rdev)}
		switch fd, err := syscall.Open(name, syscall.O_RDWR|syscall.O_CLOEXEC, 0); err {
		case nil:
			syscall.Close(fd) //nolint:errcheck // nothing was written
		case syscall.EACCES, syscall.EPERM:
			n.Denied = true
		case syscall.ENXIO, syscall.ENODEV:
			n.Dead = true
		}
		found = append(found, n)
	}
	return found
}

// major and minor are those of makedev(3).
func major(dev uint64) uint32 { return uint32(dev>>8&0xfff | dev>>32&0xfffff000) }
func minor(dev uint64) uint32 { return uint32(dev&0xff | dev>>12&0xffffff00) }

// mapped returns the file of a library that is loaded, by the beginning of its name.
func mapped(name string) string {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		_, file, ok := strings.Cut(strings.TrimSpace(line), "/")
		if ok && strings.HasPrefix(filepath.Base(file), name) {
			return "/" + file
		}
	}
	return ""
}

func decimal(n int32) string { return strconv.Itoa(int(n)) }
