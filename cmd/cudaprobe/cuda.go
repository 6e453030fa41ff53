package main

import (
	"bytes"
	"unsafe"

	"github.com/ebitengine/purego"

	"gpustack/host/cuda/answer"
)

// cuda are functions of libcuda, as cuda.h of the CUDA toolkit 13.0 declares them. All are in the
// libraries of drivers since 340, under these names.
type cuda struct {
	init               func(flags uint32) int32
	driverGetVersion   func(version *int32) int32
	getErrorName       func(result int32, text **byte) int32
	getErrorString     func(result int32, text **byte) int32
	deviceGetCount     func(count *int32) int32
	deviceGet          func(device *int32, ordinal int32) int32
	deviceGetName      func(name *byte, size int32, device int32) int32
	deviceGetPCIBusID  func(id *byte, size int32, device int32) int32
	deviceTotalMem     func(bytes *uint64, device int32) int32
	deviceGetAttribute func(value *int32, attribute int32, device int32) int32
	primaryCtxRetain   func(context *uintptr, device int32) int32
	primaryCtxRelease  func(device int32) int32
	ctxSetCurrent      func(context uintptr) int32
	ctxSynchronize     func() int32
	memAlloc           func(pointer *uint64, size uint64) int32
	memFree            func(pointer uint64) int32
	memcpyToDevice     func(to uint64, from unsafe.Pointer, size uint64) int32
	memcpyToHost       func(to unsafe.Pointer, from uint64, size uint64) int32
	moduleLoadData     func(module *uintptr, image *byte) int32
	moduleUnload       func(module uintptr) int32
	moduleGetFunction  func(function *uintptr, module uintptr, name *byte) int32
	launchKernel       func(function uintptr, gridX, gridY, gridZ, blockX, blockY, blockZ, shared uint32, stream uintptr, parameters *unsafe.Pointer,
		extra uintptr) int32
}

// load finds the functions in a library. One that is missing is a failure without a result.
func load(library uintptr) (*cuda, *answer.Failure) {
	c := new(cuda)
	for _, f := range []struct {
		name string
		to   any
	}{
		{"cuInit", &c.init}, {"cuDriverGetVersion", &c.driverGetVersion},
		{"cuGetErrorName", &c.getErrorName}, {"cuGetErrorString", &c.getErrorString},
		{"cuDeviceGetCount", &c.deviceGetCount}, {"cuDeviceGet", &c.deviceGet},
		{"cuDeviceGetName", &c.deviceGetName}, {"cuDeviceGetPCIBusId", &c.deviceGetPCIBusID},
		{"cuDeviceTotalMem_v2", &c.deviceTotalMem}, {"cuDeviceGetAttribute", &c.deviceGetAttribute},
		{"cuDevicePrimaryCtxRetain", &c.primaryCtxRetain}, {"cuDevicePrimaryCtxRelease", &c.primaryCtxRelease},
		{"cuCtxSetCurrent", &c.ctxSetCurrent}, {"cuCtxSynchronize", &c.ctxSynchronize},
		{"cuMemAlloc_v2", &c.memAlloc}, {"cuMemFree_v2", &c.memFree},
		{"cuMemcpyHtoD_v2", &c.memcpyToDevice}, {"cuMemcpyDtoH_v2", &c.memcpyToHost},
		{"cuModuleLoadData", &c.moduleLoadData}, {"cuModuleUnload", &c.moduleUnload},
		{"cuModuleGetFunction", &c.moduleGetFunction}, {"cuLaunchKernel", &c.launchKernel},
	} {
		symbol, err := purego.Dlsym(library, f.name)
		if err != nil {
			return nil, &answer.Failure{Function: f.name, Result: -1, Name: "", Text: err.Error()}
		}
		purego.RegisterFunc(f.to, symbol)
	}
	return c, nil
}

// failure returns the failure of a function, nil for its success.
func (c *cuda) failure(function string, result int32) *answer.Failure {
	if result == 0 {
		return nil
	}
	text := func(of func(int32, **byte) int32) string {
		var p *byte
		if of(result, &p) != 0 || p == nil {
			return ""
		}
		return string(terminated(unsafe.Slice(p, 256)))
	}
	return &answer.Failure{Function: function, Result: int(result), Name: text(c.getErrorName), Text: text(c.getErrorString)}
}

func terminated(text []byte) []byte {
	before, _, _ := bytes.Cut(text, []byte{0})
	return before
}

// Attributes of devices.
const (
	computeMajor = 75
	computeMinor = 76
)

// gpu asks a GPU what it is, and computes on it.
func (c *cuda) gpu(ordinal int32) (g answer.GPU) {
	var device, major, minor int32
	name, id := make([]byte, 128), make([]byte, 32)
	step := func(function string, result int32) bool {
		g.Failed = c.failure(function, result)
		return g.Failed == nil
	}
	if !step("cuDeviceGet", c.deviceGet(&device, ordinal)) {
		return g
	}
	if step("cuDeviceGetName", c.deviceGetName(&name[0], int32(len(name)), device)) {
		g.Name = string(terminated(name))
	}
	if !step("cuDeviceGetPCIBusId", c.deviceGetPCIBusID(&id[0], int32(len(id)), device)) {
		return g
	}
	g.Address = string(bytes.ToLower(terminated(id)))
	if !step("cuDeviceTotalMem", c.deviceTotalMem(&g.Memory, device)) ||
		!step("cuDeviceGetAttribute", c.deviceGetAttribute(&major, computeMajor, device)) ||
		!step("cuDeviceGetAttribute", c.deviceGetAttribute(&minor, computeMinor, device)) {
		return g
	}
	g.Compute = decimal(major) + "." + decimal(minor)
	var context uintptr
	if !step("cuDevicePrimaryCtxRetain", c.primaryCtxRetain(&context, device)) {
		return g
	}
	defer c.primaryCtxRelease(device)
	if !step("cuCtxSetCurrent", c.ctxSetCurrent(context)) {
		return g
	}
	c.compute(&g, step)
	return g
}

// How much is computed, and by how many threads of a block.
const (
	numbers = 1 << 20
	block   = 256
)

// kernel adds its parameter to each number. The driver compiles it, for which it needs its
// compiler, libnvidia-ptxjitcompiler; the oldest GPU that it runs on is of compute capability 3.0.
const kernel = `.version 3.2
.target sm_30
.address_size 64
.visible .entry add(.param .u64 p, .param .u32 n)
{
	.reg .u32 %r<6>;
	.reg .u64 %d<4>;
	ld.param.u64 %d1, [p];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.u32 %r2, %r2, %r3, %r4;
	mul.wide.u32 %d2, %r2, 4;
	cvta.to.global.u64 %d1, %d1;
	add.u64 %d1, %d1, %d2;
	ld.global.u32 %r5, [%d1];
	add.u32 %r5, %r5, %r1;
	st.global.u32 [%d1], %r5;
	ret;
}
` + "\x00"

// compute runs the kernel on numbers and compares the results.
func (c *cuda) compute(g *answer.GPU, step func(string, int32) bool) {
	var module, function uintptr
	image, name := []byte(kernel), []byte("add\x00")
	if !step("cuModuleLoadData", c.moduleLoadData(&module, &image[0])) {
		return
	}
	defer c.moduleUnload(module)
	if !step("cuModuleGetFunction", c.moduleGetFunction(&function, module, &name[0])) {
		return
	}
	values := make([]uint32, numbers)
	for i := range values {
		values[i] = uint32(i) * 2654435761
	}
	var pointer uint64
	if !step("cuMemAlloc", c.memAlloc(&pointer, 4*numbers)) {
		return
	}
	defer c.memFree(pointer)
	if !step("cuMemcpyHtoD", c.memcpyToDevice(pointer, unsafe.Pointer(&values[0]), 4*numbers)) {
		return
	}
	const added = uint32(20171205)
	n := added
	parameters := []unsafe.Pointer{unsafe.Pointer(&pointer), unsafe.Pointer(&n)}
	if !step("cuLaunchKernel", c.launchKernel(function, numbers/block, 1, 1, block, 1, 1, 0, 0, &parameters[0], 0)) ||
		!step("cuCtxSynchronize", c.ctxSynchronize()) {
		return
	}
	clear(values)
	if !step("cuMemcpyDtoH", c.memcpyToHost(unsafe.Pointer(&values[0]), pointer, 4*numbers)) {
		return
	}
	g.Numbers = numbers
	for i, v := range values {
		if v != uint32(i)*2654435761+added {
			g.Wrong++
		}
	}
}
