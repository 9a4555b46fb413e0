/* SPDX-License-Identifier: Apache-2.0 */
/* What doctor says of the GPU work of a process and its children. */
#include "cmd/doctor.h"

#include "source/gpu_door.h"
#include "source/gpu_find.h"
#include "source/inject.h"

#include <errno.h>
#include <stdlib.h>

enum { MAX_SHOWN = 16 };

static int check_one(struct check_list *gpu, pid_t pid)
{
	char why[160], cupti[96];
	int err = check_add(gpu, "launches", CHECK_OK,
			    "pid %d: libcuda is mapped: launches, waits and copies can be probed",
			    pid),
	    refused;

	if (err || gpu_mapped_cupti(pid, cupti, sizeof(cupti)))
		return err;
	if (gpu_door_is_there(pid))
		return check_add(gpu, "graph, kernels", CHECK_OK,
				 "pid %d: it was started with libtokenlag.so, which waits: it "
				 "need not be traced",
				 pid);
	refused = inject_check(pid, NULL, why);
	if (refused)
		return check_add(gpu, "graph, kernels", CHECK_WARN,
				 "pid %d: no records of what its GPUs do: %s", pid, why);
	if (!*cupti)
		return check_add(gpu, "graph, kernels", CHECK_INFO,
				 "pid %d: no CUPTI is mapped: one that lies beside its CUDA "
				 "libraries is used, if there is one%s%s",
				 pid, *why ? "; " : "", why);
	return check_add(gpu, "graph, kernels", CHECK_OK,
			 "pid %d: %s is mapped, and the library that uses it can be brought in%s%s",
			 pid, cupti, *why ? "; " : "", why);
}

int doctor_gpu(pid_t pid, struct check_list *gpu)
{
	uint32_t *pids = NULL;
	int n = gpu_descendants(pid, &pids), err = 0;

	if (n < 0)
		return n;
	for (int i = -1; i < n && !err && gpu->n < 2 * MAX_SHOWN; i++) {
		pid_t at = i < 0 ? pid : (pid_t)pids[i];

		if (gpu_maps_cuda(at) > 0)
			err = check_one(gpu, at);
	}
	free(pids);
	return err;
}
