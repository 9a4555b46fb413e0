/* SPDX-License-Identifier: Apache-2.0 */
/* What doctor says of the GPU work of a process and its children. */
#include "base/plural.h"
#include "cmd/doctor.h"

#include "cmd/session.h"
#include "cmd/session_gpu.h"
#include "source/gpu_door.h"
#include "source/gpu_find.h"
#include "source/inject.h"
#include "source/nvml.h"
#include "source/pep768.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_SHOWN = 16, NVML_WAIT_MS = 3000, NVML_LOOK_MS = 20 };

static int check_one(struct check_list *gpu, pid_t pid, bool allowed)
{
	const char *simulated = gpu_is_simulated(pid) ? "SIMULATED: " : "";
	char why[160], why_script[96], cupti[96];
	int err, refused;

	if (!allowed)
		return check_add(gpu, "launches", CHECK_WARN,
				 "%spid %d uses CUDA: nothing of it is seen without a capture, see above", simulated, pid);
	err = gpu_can_probe(pid) ?
		check_add(gpu, "launches", CHECK_OK,
			  "%spid %d: libcuda is mapped: launches, waits and copies can be probed", simulated, pid) :
		check_add(gpu, "launches", CHECK_WARN,
			  "%spid %d: its libcuda cannot be read, or has none of the functions that are "
			  "probed: launches are not seen", simulated, pid);
	if (err || gpu_mapped_cupti(pid, cupti, sizeof(cupti)))
		return err;
	if (gpu_door_is_there(pid))
		return check_add(gpu, "graph, kernels", CHECK_OK,
				 "pid %d: it was started with libtokenlag.so, which waits: it "
				 "need not be traced",
				 pid);
	refused = inject_check(pid, NULL, why);
	if (refused && !pep768_check(pid, NULL, why_script))
		return check_add(gpu, "graph, kernels", CHECK_OK,
				 "pid %d: its Python can be asked to load the library (PEP 768), as ptrace is refused: %s",
				 pid, why);
	if (refused)
		return check_add(gpu, "graph, kernels", CHECK_WARN,
				 "pid %d: no records of what its GPUs do: %s%s%s", pid, why,
				 *why_script ? ", and " : "", why_script);
	if (!*cupti)
		return check_add(gpu, "graph, kernels", CHECK_INFO,
				 "pid %d: no CUPTI is mapped: one that lies beside its CUDA "
				 "libraries is used, if there is one%s%s",
				 pid, *why ? "; " : "", why);
	return check_add(gpu, "graph, kernels", CHECK_OK,
			 "pid %d: %s is mapped, and the library that uses it can be brought in%s%s",
			 pid, cupti, *why ? "; " : "", why);
}

/* It is another thread's to start it: a driver that is not well takes long for that. */
static enum nvml_state wait_for_nvml(struct nvml *n, char why[160])
{
	const struct timespec pause = { 0, NVML_LOOK_MS * 1000000 };
	enum nvml_state state = nvml__state(n, monotonic_ns(), why);

	for (int ms = 0; state == NVML_STARTING && ms < NVML_WAIT_MS; ms += NVML_LOOK_MS) {
		nanosleep(&pause, NULL);
		state = nvml__state(n, monotonic_ns(), why);
	}
	return state;
}

static int check_nvml(struct check_list *gpu)
{
	static const char lost[] = "clocks, neighbours and free memory of GPUs are not seen";
	const char *path = session_gpu_nvml_path();
	const struct nvml_device *devices;
	struct nvml *n = NULL;
	enum nvml_state state;
	char why[160], mig[80] = "";
	uint32_t n_mig;
	int err = path && !*path ? -ENOENT : nvml__open(path, &n, why);

	if (path && !*path)
		return check_add(gpu, "clocks, neighbours", CHECK_INFO, "NVML is switched off: %s", lost);
	if (err)
		return err == -ENOMEM ? err : check_add(gpu, "clocks, neighbours", CHECK_INFO, "%s: %s", why, lost);
	state = wait_for_nvml(n, why);
	n_mig = state == NVML_READY ? session_gpu_n_mig(n) : 0;
	if (n_mig)
		snprintf(mig, sizeof(mig), "; %u of them partitioned (MIG): nothing is said of such", n_mig);
	if (state == NVML_READY)
		err = check_add(gpu, "clocks, neighbours", CHECK_OK, "%sNVML tells of %u device%s, driver %s%s",
				nvml__is_simulated(n) ? "SIMULATED: " : "", nvml__devices(n, &devices),
				plural_s(nvml__devices(n, &devices)), nvml__driver(n), mig);
	else
		err = check_add(gpu, "clocks, neighbours", CHECK_WARN, "%s: %s",
				state == NVML_STARTING ? "NVML has not started within 3 s" : why, lost);
	nvml__close(n);
	return err;
}

int doctor_gpu(pid_t pid, bool allowed, struct check_list *gpu)
{
	uint32_t *pids = NULL;
	/* All processes come from the first one: what they do is not its doing. */
	int n = pid == 1 ? 0 : gpu_descendants(pid, &pids), err = 0;
	size_t before = gpu->n;
	bool known = true;	/* of all of them, what they map */

	if (n < 0)
		return n;
	for (int i = -1; i < n && !err && gpu->n < 2 * MAX_SHOWN; i++) {
		pid_t at = i < 0 ? pid : (pid_t)pids[i];

		int maps = gpu_maps_cuda(at);

		known &= maps >= 0;
		if (maps > 0)
			err = check_one(gpu, at, allowed);
	}
	free(pids);
	if (!err && known && gpu->n == before)
		return check_add(gpu, "launches", CHECK_INFO, "no libcuda in pid %d%s: nothing to record with --gpu", pid,
				 n ? " or in what it has started" : "");
	return err || !gpu->n || !allowed ? err : check_nvml(gpu);
}
