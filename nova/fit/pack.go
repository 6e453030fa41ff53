package fit

import (
	"slices"

	"gpustack/nova"
)

// pack reports whether the pinned CPUs of a guest's cell fit the free cores of a host's
// (_pack_instance_onto_cores). reserved is the number of CPUs for QEMU itself.
func (f *fitting) pack(host Cell, guest *instanceCell, reserved int) bool {
	threads := 1
	var free [][]int // of each core
	for _, core := range host.Siblings {
		threads = max(threads, len(core))
		free = append(free, host.free(core))
	}
	switch policy := f.instance.threadPolicy; {
	case len(host.Siblings) == 0:
		return false // Nova fails: max() of an empty list
	case policy == isolate:
		return packIsolated(host, guest, free, threads, reserved)
	case policy == require && threads == 1:
		return false
	}
	return f.packThreads(guest, free, reserved)
}

// packIsolated uses one thread of each core that is free as a whole.
func packIsolated(host Cell, guest *instanceCell, free [][]int, threads, reserved int) bool {
	whole := withAtLeast(free, threads)
	if len(whole) == 0 || threads != 1 && !host.usesLegacySets() {
		return false
	}
	pinned, ok := pin(1, whole, len(guest.pinned))
	if !ok || len(pinned) == 0 {
		return false
	}
	if reserved == 0 {
		return true
	}
	others := slices.DeleteFunc(slices.Clone(withAtLeast(free, 1)), func(core []int) bool {
		return slices.ContainsFunc(pinned, func(cpu int) bool { return slices.Contains(core, cpu) })
	})
	return len(others) > 0
}

// isEmptyUnfit reports whether a cell without pinned CPUs of a guest with some does not fit any
// host: later releases accept it.
func (f *fitting) isEmptyUnfit() bool { return f.release < emptyCells }

// emptyCells is the release since which a cell of a mixed guest may have no pinned CPU: 26.2.2 does
// not accept it and 31.0.0 does; releases between were not compared.
const emptyCells = nova.Antelope

// packThreads uses as many threads of each core as possible, and with other policies than require
// any free CPUs if that is not enough.
func (f *fitting) packThreads(guest *instanceCell, free [][]int, reserved int) bool {
	cores := withAtLeast(free, 1)
	most := 0
	for _, core := range cores {
		most = max(most, len(core))
	}
	var pinned []int
	isPinned, hasReserved := false, false
	for threads := most; threads > 0; threads-- {
		if f.instance.threadPolicy == require && threads == 1 {
			continue
		}
		pinned, isPinned = pin(threads, withAtLeast(free, threads), len(guest.pinned))
		hasReserved = isPinned && hasFree(cores, pinned, reserved)
		if isPinned && (reserved == 0 || hasReserved) {
			break
		}
	}
	if f.instance.threadPolicy != require && len(pinned) == 0 {
		var single [][]int
		for _, core := range cores {
			for _, cpu := range core {
				single = append(single, []int{cpu})
			}
		}
		pinned, isPinned = pin(1, single, len(guest.pinned))
		hasReserved = isPinned && hasFree(single, pinned, reserved)
	}
	if !isPinned || len(pinned) == 0 && f.isEmptyUnfit() {
		return false
	}
	return reserved == 0 || hasReserved
}

// hasFree reports whether cores have free CPUs besides those that are pinned. Without any pinned
// CPU Nova reserves none (_get_reserved).
func hasFree(cores [][]int, pinned []int, reserved int) bool {
	if reserved == 0 || len(pinned) == 0 {
		return false
	}
	n := 0
	for _, core := range cores {
		n += len(core)
	}
	return n > len(pinned)
}

// withAtLeast returns the cores with at least a number of free threads.
func withAtLeast(free [][]int, threads int) [][]int {
	return slices.DeleteFunc(slices.Clone(free), func(core []int) bool { return len(core) < threads })
}

// pin returns a number of CPUs, as many of each core as threads says (_get_pinning).
func pin(threads int, cores [][]int, count int) (cpus []int, ok bool) {
	if threads*len(cores) < count {
		return nil, false
	}
	for _, core := range cores {
		for _, cpu := range core[:min(threads, len(core))] {
			if len(cpus) < count {
				cpus = append(cpus, cpu)
			}
		}
	}
	return cpus, true
}
