package hardware

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jaypipes/ghw"
)

const (
	cpuDir  = "sys/devices/system/cpu"
	cpuInfo = "proc/cpuinfo"
)

// cores are the CPUs that are online: the physical core of each, by its name.
type cores map[string]string

// count returns the numbers of cores and threads among those CPUs of a list that are online.
func (c cores) count(cpus []string) (cores, threads int) {
	seen := map[string]bool{}
	for _, name := range cpus {
		if core, online := c[name]; online {
			threads++
			seen[core] = true
		}
	}
	return len(seen), threads
}

// readCPUs reads the processors. It returns nil if which CPUs share a core could not be read.
//
// ghw names the model. The numbers are the kernel's: ghw counts cores of two dies of a package with
// the same core_id once, and leaves out packages of whose first CPU /proc/cpuinfo has no entry.
func (p *probe) readCPUs(ctx context.Context, m *Facts) cores {
	found, ok := p.list(cpuDir, "cpu[0-9]*", "the CPUs are unknown")
	if !ok {
		return nil
	}
	if !p.clear(cpuInfo, cpuDir+"/cpu[0-9]*/online", cpuDir+"/cpu[0-9]*/topology/*", deviceTree+"/compatible") {
		return nil
	}
	if info, err := ghw.CPU(ctx); err != nil {
		p.failed(cpuDir, err)
	} else if len(info.Processors) > 0 && info.Processors[0].Model != "" {
		m.CPU.Model = &info.Processors[0].Model
	} else {
		p.warn("/%s: shows no model of the CPU", cpuInfo)
	}
	m.CPU.AddressBits = p.addressBits()
	all := cores{}
	packages := map[string]bool{}
	whole := len(found) > 0
	for _, name := range found {
		if _, err := strconv.Atoi(strings.TrimPrefix(name, "cpu")); err != nil {
			continue // cpufreq, cpuidle
		}
		dir := cpuDir + "/" + name
		// CPUs that cannot be switched off have no such file (Linux,
		// Documentation/core-api/cpu_hotplug.rst).
		if exists, err := p.root.Exists(dir + "/online"); err != nil {
			p.failed(dir+"/online", err)
			whole = false
		} else if exists {
			if online, ok := p.read(dir + "/online"); !ok || online == "0" {
				whole = whole && ok
				continue
			}
		}
		// Both list the threads of a core (Linux, Documentation/admin-guide/cputopology.rst); the
		// former is the name since 5.2.
		file := "core_cpus_list"
		if exists, err := p.root.Exists(dir + "/topology/" + file); err == nil && !exists {
			file = "thread_siblings_list"
		}
		core, ok1 := p.read(dir + "/topology/" + file)
		of, ok2 := p.read(dir + "/topology/physical_package_id")
		if !ok1 || !ok2 {
			whole = false
			continue
		}
		all[name], packages[of] = core, true
	}
	if !whole {
		return nil
	}
	physical, threads := all.count(slices.Collect(maps.Keys(all)))
	m.CPU.Sockets, m.CPU.Cores, m.CPU.Threads = new(len(packages)), &physical, &threads
	return all
}

// addressBits returns the size of physical addresses of the first CPU, or nil: only kernels of x86
// show it (Linux, arch/x86/kernel/cpu/proc.c: "address sizes").
func (p *probe) addressBits() *int {
	const enough = 64 << 10 // for the lines of one CPU
	text, err := p.root.ReadHead(cpuInfo, enough)
	if err != nil {
		return nil // ghw has reported it
	}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "address sizes" {
			bits, _, ok := strings.Cut(strings.TrimSpace(value), " bits physical")
			n, err := strconv.Atoi(bits)
			if !ok || err != nil {
				p.warn("/%s: not a size of addresses: %q", cpuInfo, strings.TrimSpace(value))
				return nil
			}
			return &n
		}
	}
	return nil
}

// reduceCPUs returns /proc/cpuinfo with all lines of its first CPU, and only number, vendor and
// model of the others.
func reduceCPUs(text []byte) []byte {
	first, rest, more := bytes.Cut(text, []byte("\n\n"))
	kept := append([]byte{}, first...)
	if !more {
		return kept
	}
	kept = append(kept, "\n\n"...)
	for line := range bytes.Lines(rest) {
		key, _, _ := bytes.Cut(line, []byte(":"))
		switch string(bytes.TrimSpace(key)) {
		case "", "processor", "vendor_id", "model name", "CPU implementer":
			kept = append(kept, line...)
		}
	}
	return kept
}
