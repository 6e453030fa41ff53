/* A libcuda that plays a GPU of CUDA for cudaprobe: it adds numbers as the kernel does, and fails as
 * it is compiled (TestContainerTest). RESULT is what cuInit returns, ADDRESS where the GPU is, WRONG
 * a statement after the kernel. The functions are those of cuda.h of the CUDA toolkit 13.0. */
typedef unsigned int u32; typedef unsigned long long u64; typedef unsigned long size_t;
static char device[8 << 20]; static u64 used;
static void copy(char *to, const char *from, size_t n) { while (n--) *to++ = *from++; }
static void text(char *to, int n, const char *from) { while (--n > 0 && *from) *to++ = *from++; *to = 0; }
int cuInit(u32 f) { return RESULT; }
int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
int cuGetErrorName(int r, const char **t) { *t = "CUDA_ERROR_PLAYED"; return 0; }
int cuGetErrorString(int r, const char **t) { *t = "played"; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *t, int n, int d) { text(t, n, "Quadro K4200"); return 0; }
int cuDeviceGetPCIBusId(char *t, int n, int d) { text(t, n, ADDRESS); return 0; }
int cuDeviceTotalMem_v2(u64 *n, int d) { *n = 4ULL << 30; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 3 : 0; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = device; return 0; }
int cuDevicePrimaryCtxRelease(int d) { return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(u64 *p, u64 n) { *p = (u64)device + used; used += n; return 0; }
int cuMemFree_v2(u64 p) { return 0; }
int cuMemcpyHtoD_v2(u64 to, const void *from, u64 n) { copy((char *)to, from, n); return 0; }
int cuMemcpyDtoH_v2(void *to, u64 from, u64 n) { copy(to, (char *)from, n); return 0; }
int cuModuleLoadData(void **m, const char *ptx) { *m = device; return 0; }
int cuModuleUnload(void *m) { return 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) { *f = device; return 0; }
int cuLaunchKernel(void *f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 shared, void *s, void **p, void **e) {
	u32 *v = *(u32 **)p[0], n = *(u32 *)p[1], i;
	for (i = 0; i < gx * bx; i++) v[i] += n;
	WRONG;
	return 0;
}
