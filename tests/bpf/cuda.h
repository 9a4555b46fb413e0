/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda in test programs: the simulated one, opened by name as engines do. */
#ifndef TL_TEST_CUDA_H
#define TL_TEST_CUDA_H

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct launch_config {		/* as CUlaunchConfig, without attributes */
	uint32_t grid[3], block[3], shmem;
	void *stream, *attrs;
	uint32_t n_attrs;
};

#define CUDA_GRID uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t
static struct cuda_api {
	void *lib;
	int (*init)(unsigned int);
	int (*stream_create)(void **, unsigned int);
	int (*event_create)(void **, unsigned int);
	int (*event_record)(void *, void *);
	int (*module_load)(void **, const void *);
	int (*get_function)(void **, void *, const char *);
	int (*capture)(void *, int);
	int (*end_capture)(void *, void **);
	int (*instantiate)(void **, void *, unsigned long long);
	int (*graph_launch)(void *, void *), (*graph_launch_ptsz)(void *, void *);
	int (*launch)(void *, CUDA_GRID, uint32_t, void *, void **, void **);
	int (*launch_ptsz)(void *, CUDA_GRID, uint32_t, void *, void **, void **);
	int (*cooperative)(void *, CUDA_GRID, uint32_t, void *, void **);
	int (*cooperative_ptsz)(void *, CUDA_GRID, uint32_t, void *, void **);
	int (*launch_ex)(const struct launch_config *, void *, void **, void **);
	int (*launch_ex_ptsz)(const struct launch_config *, void *, void **, void **);
	int (*stream_sync)(void *), (*stream_sync_ptsz)(void *), (*event_sync)(void *), (*ctx_sync)(void);
	int (*htod_async)(uint64_t, const void *, size_t, void *);
	int (*htod_async_ptsz)(uint64_t, const void *, size_t, void *);
	int (*dtoh_async)(void *, uint64_t, size_t, void *), (*dtoh_async_ptsz)(void *, uint64_t, size_t, void *);
	int (*htod)(uint64_t, const void *, size_t), (*dtoh)(void *, uint64_t, size_t);
	int (*alloc)(uint64_t *, size_t), (*free)(uint64_t);
	int (*create)(uint64_t *, size_t, const void *, unsigned long long);
} cu;

static const struct {
	const char *name;
	void *at;
} cuda_names[] = {
	{ "cuInit", &cu.init }, { "cuStreamCreate", &cu.stream_create }, { "cuEventCreate", &cu.event_create },
	{ "cuEventRecord", &cu.event_record }, { "cuModuleLoadData", &cu.module_load },
	{ "cuModuleGetFunction", &cu.get_function }, { "cuStreamBeginCapture_v2", &cu.capture },
	{ "cuStreamEndCapture", &cu.end_capture }, { "cuGraphInstantiateWithFlags", &cu.instantiate },
	{ "cuGraphLaunch", &cu.graph_launch }, { "cuGraphLaunch_ptsz", &cu.graph_launch_ptsz },
	{ "cuLaunchKernel", &cu.launch }, { "cuLaunchKernel_ptsz", &cu.launch_ptsz },
	{ "cuLaunchCooperativeKernel", &cu.cooperative }, { "cuLaunchCooperativeKernel_ptsz", &cu.cooperative_ptsz },
	{ "cuLaunchKernelEx", &cu.launch_ex }, { "cuLaunchKernelEx_ptsz", &cu.launch_ex_ptsz },
	{ "cuStreamSynchronize", &cu.stream_sync }, { "cuStreamSynchronize_ptsz", &cu.stream_sync_ptsz },
	{ "cuEventSynchronize", &cu.event_sync }, { "cuCtxSynchronize", &cu.ctx_sync },
	{ "cuMemcpyHtoDAsync_v2", &cu.htod_async }, { "cuMemcpyHtoDAsync_v2_ptsz", &cu.htod_async_ptsz },
	{ "cuMemcpyDtoHAsync_v2", &cu.dtoh_async }, { "cuMemcpyDtoHAsync_v2_ptsz", &cu.dtoh_async_ptsz },
	{ "cuMemcpyHtoD_v2", &cu.htod }, { "cuMemcpyDtoH_v2", &cu.dtoh }, { "cuMemAlloc_v2", &cu.alloc },
	{ "cuMemFree_v2", &cu.free }, { "cuMemCreate", &cu.create },
};

/* Where the build put a file: beside this program, or in build/sim/. */
static inline const char *cuda_path(const char *name)
{
	static char path[PATH_MAX + 64];
	char exe[PATH_MAX] = "";
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	exe[n > 0 ? n : 0] = '\0';
	for (int up = 0; up < 3 && strrchr(exe, '/'); up++) {
		*strrchr(exe, '/') = '\0';
		snprintf(path, sizeof(path), "%s/sim/%s", exe, name);
		if (!access(path, R_OK))
			return path;
	}
	return name;
}

static inline int cuda_load(const char *path)
{
	cu.lib = dlopen(path, RTLD_NOW);
	for (size_t i = 0; cu.lib && i < sizeof(cuda_names) / sizeof(cuda_names[0]); i++) {
		void *s = dlsym(cu.lib, cuda_names[i].name);

		if (!s)
			return 1;
		memcpy(cuda_names[i].at, &s, sizeof(s));
	}
	return cu.lib ? cu.init(0) : 1;
}

#endif
