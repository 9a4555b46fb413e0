/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated libcuda.so.1: starting, contexts, memory, and how programs find its functions. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "fault.h"

enum { DRIVER_VERSION = 13000, ATTR_CC_MAJOR = 75, ATTR_CC_MINOR = 76, ATTR_SM_COUNT = 16 };

static const uint64_t total_bytes = 80ull << 30;
static uint64_t used_bytes;

/* As the real one does: a library named by the environment is told, once, before anything else. */
static void inject(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");
	int (*init)(void);
	void *lib;

	if (!path || !*path)
		return;
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	init = lib ? (int (*)(void))dlsym(lib, "InitializeInjection") : NULL;
	if (init)
		init();
}

SIM_API int cuInit(unsigned int flags)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct { unsigned int flags; } params = { flags };

	if (flags)
		return CUDA_INVALID_VALUE;
	pthread_once(&once, inject);
	ENTER(1, "cuInit");
	EXIT(sim_init());
}

SIM_API int cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_INVALID_VALUE;
	*version = DRIVER_VERSION;
	return CUDA_OK;
}

SIM_API int cuDeviceGetCount(int *n)
{
	struct { int *n; } params = { n };

	ENTER(4, "cuDeviceGetCount");
	if (!n)
		EXIT(CUDA_INVALID_VALUE);
	*n = sim_n_devices();
	EXIT(sim_ready());
}

SIM_API int cuDeviceGet(int *device, int ordinal)
{
	if (sim_ready())
		return sim_ready();
	if (!device || !sim_device_context(ordinal))
		return CUDA_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_OK;
}

SIM_API int cuDeviceGetName(char *name, int len, int device)
{
	if (!name || len <= 0)
		return CUDA_INVALID_VALUE;
	if (!sim_device_context(device))
		return CUDA_INVALID_DEVICE;
	snprintf(name, len, "tokenlag simulated device");
	return CUDA_OK;
}

SIM_API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	if (!value)
		return CUDA_INVALID_VALUE;
	if (!sim_device_context(device))
		return CUDA_INVALID_DEVICE;
	*value = attribute == ATTR_CC_MAJOR ? 9 : attribute == ATTR_SM_COUNT ? 132 : 0;
	return CUDA_OK;
}

SIM_API int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
	if (!uuid || !sim_device_context(device))
		return CUDA_INVALID_VALUE;
	memset(uuid, 0, 16);
	memcpy(uuid, "simulated", 9);
	uuid[15] = device;
	return CUDA_OK;
}

SIM_API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	if (!bytes || !sim_device_context(device))
		return CUDA_INVALID_VALUE;
	*bytes = total_bytes;
	return CUDA_OK;
}

/* ---- contexts: the primary one of each device ---- */
SIM_API int cuDevicePrimaryCtxRetain(void **context, int device)
{
	if (sim_ready())
		return sim_ready();
	if (!context || !sim_device_context(device))
		return CUDA_INVALID_DEVICE;
	*context = sim_device_context(device);
	return CUDA_OK;
}

SIM_API int cuDevicePrimaryCtxRelease_v2(int device)
{
	return sim_device_context(device) ? CUDA_OK : CUDA_INVALID_DEVICE;
}

SIM_API int cuCtxCreate_v2(void **context, unsigned int flags, int device)
{
	(void)flags;
	if (cuDevicePrimaryCtxRetain(context, device))
		return CUDA_INVALID_DEVICE;
	return sim_context__set(*context);
}

SIM_API int cuCtxSetCurrent(void *context)
{
	return sim_context__set(context);
}

SIM_API int cuCtxGetCurrent(void **context)
{
	if (!context)
		return CUDA_INVALID_VALUE;
	*context = sim_ready() ? NULL : sim_context();
	return CUDA_OK;
}

SIM_API int cuCtxGetDevice(int *device)
{
	if (!device)
		return CUDA_INVALID_VALUE;
	*device = sim_context()->device;
	return sim_ready();
}

SIM_API int cuCtxSynchronize(void)
{
	struct { int none; } params = { 0 };

	ENTER(17, "cuCtxSynchronize");
	if (!sim_ready())
		sim_stream__wait(sim_stream__of(NULL), call_.corr, 4, sim_context__end());
	EXIT(sim_ready());
}

/* ---- memory: of the host, so that copies have something to copy ---- */
SIM_API int cuMemAlloc_v2(uint64_t *ret_ptr, size_t bytes)
{
	struct { uint64_t *ret_ptr; size_t bytes; } params = { ret_ptr, bytes };
	size_t *p;

	ENTER(243, "cuMemAlloc_v2");
	if (sim_ready())
		EXIT(sim_ready());
	if (!bytes || !ret_ptr || used_bytes + bytes > total_bytes)
		EXIT(bytes && ret_ptr ? CUDA_OUT_OF_MEMORY : CUDA_INVALID_VALUE);
	/* Only what is touched costs anything. */
	p = malloc(bytes + 64);
	if (!p)
		EXIT(CUDA_OUT_OF_MEMORY);
	*p = bytes;
	__atomic_fetch_add(&used_bytes, bytes, __ATOMIC_RELAXED);
	*ret_ptr = (uintptr_t)p + 64;
	EXIT(CUDA_OK);
}

SIM_API int cuMemFree_v2(uint64_t ptr)
{
	struct { uint64_t ptr; } params = { ptr };
	size_t *p = (void *)(uintptr_t)(ptr - 64);

	ENTER(245, "cuMemFree_v2");
	if (ptr) {
		__atomic_fetch_sub(&used_bytes, *p, __ATOMIC_RELAXED);
		free(p);
	}
	EXIT(CUDA_OK);
}

SIM_API int cuMemCreate(uint64_t *handle, size_t bytes, const void *prop, unsigned long long flags)
{
	struct {
		uint64_t *handle;
		size_t bytes;
		const void *prop;
		unsigned long long flags;
	} params = { handle, bytes, prop, flags };

	ENTER(549, "cuMemCreate");
	EXIT(handle ? cuMemAlloc_v2(handle, bytes) : CUDA_INVALID_VALUE);
}

SIM_API int cuMemRelease(uint64_t handle)
{
	return cuMemFree_v2(handle);
}

SIM_API int cuMemGetInfo_v2(size_t *available, size_t *total)
{
	struct { size_t *available, *total; } params = { available, total };
	struct sim_hooks *h = sim_hooks;
	uint64_t grown = h && sim_fault("memory_growth", NULL) ? h->records * 32 : 0;

	ENTER(242, "cuMemGetInfo_v2");
	if (!available || !total)
		EXIT(CUDA_INVALID_VALUE);
	*total = total_bytes;
	*available = total_bytes - used_bytes > grown ? total_bytes - used_bytes - grown : 0;
	EXIT(sim_ready());
}

SIM_API int cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
	(void)flags;
	*ptr = malloc(bytes);
	return *ptr ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

SIM_API int cuMemFreeHost(void *ptr)
{
	free(ptr);
	return CUDA_OK;
}

/* ---- code: a module is its name space, a function its name ---- */
SIM_API int cuModuleLoadData(void **module, const void *image)
{
	static char any;
	struct { void **module; const void *image; } params = { module, image };

	ENTER(19, "cuModuleLoadData");
	if (!module)
		EXIT(CUDA_INVALID_VALUE);
	*module = &any;
	EXIT(sim_ready());
}

SIM_API int cuModuleUnload(void *module)
{
	return module ? CUDA_OK : CUDA_INVALID_HANDLE;
}

SIM_API int cuModuleGetFunction(void **function, void *module, const char *name)
{
	struct { void **function; void *module; const char *name; } params = { function, module, name };

	ENTER(23, "cuModuleGetFunction");
	if (!function || !module || !name)
		EXIT(CUDA_INVALID_VALUE);
	*function = sim_function(name);
	EXIT(*function ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

SIM_API int cuFuncGetName(const char **name, void *function)
{
	if (!name || !function)
		return CUDA_INVALID_VALUE;
	*name = ((struct sim_function *)function)->name;
	return CUDA_OK;
}

SIM_API int cuGetErrorString(int error, const char **text)
{
	*text = error ? "simulated error" : "no error";
	return CUDA_OK;
}

SIM_API int cuGetErrorName(int error, const char **text)
{
	*text = error ? "CUDA_ERROR_SIMULATED" : "CUDA_SUCCESS";
	return CUDA_OK;
}

/* ---- functions by name, as the runtime asks for them: the exported ones ---- */
enum { PER_THREAD = 1 << 1, LEGACY = 1 << 0 };

static void *find(const char *name, uint64_t flags)
{
	static const char *const versions[] = { "_v3", "_v2", "" };
	char full[128];
	void *self = NULL, *fn = NULL;
	Dl_info info;

	if (!dladdr((void *)cuInit, &info))
		return NULL;
	self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	for (size_t i = 0; self && !fn && i < 3; i++) {
		snprintf(full, sizeof(full), "%s%s_ptsz", name, versions[i]);
		fn = flags & PER_THREAD ? dlsym(self, full) : NULL;
		if (!fn) {
			snprintf(full, sizeof(full), "%s%s", name, versions[i]);
			fn = dlsym(self, full);
		}
	}
	if (self)
		dlclose(self);
	return fn;
}

SIM_API int cuGetProcAddress_v2(const char *name, void **fn, int version, uint64_t flags, int *status)
{
	(void)version;
	if (!name || !fn || flags & ~(uint64_t)(PER_THREAD | LEGACY))
		return CUDA_INVALID_VALUE;
	*fn = strncmp(name, "cu", 2) ? NULL : find(name, flags);
	if (status)
		*status = *fn ? 0 : 1;
	return *fn ? CUDA_OK : CUDA_NOT_FOUND;
}

SIM_API int cuGetProcAddress(const char *name, void **fn, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(name, fn, version, flags, NULL);
}

SIM_API int cuGetExportTable(const void **table, const void *uuid)
{
	(void)uuid;
	*table = NULL;		/* NVIDIA's private tables are not simulated */
	return CUDA_NOT_FOUND;
}
