/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated libnvidia-ml.so.1: tells of the devices of the simulated libcuda what struct sim_machine says. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "../../agent/source/nvml_abi.h"
#include "fault.h"
#include "machine.h"
#include "sim.h"

SIM_API const int tokenlag_simulated = 1;	/* how to tell this library from NVIDIA's */

enum { INVALID = 2 };

static volatile struct sim_machine *machine;

static int started;

static int n_devices(void)
{
	const char *n = getenv("TL_SIM_DEVICES");
	int v = n ? atoi(n) : 8;

	return v < 0 ? 0 : v > SIM_MACHINE_DEVICES ? SIM_MACHINE_DEVICES : v;
}

/* Each call but the first begins with this. */
static int enter(void)
{
	if (!started)
		return 1;
	__atomic_add_fetch(&machine->n_calls, 1, __ATOMIC_RELAXED);
	while (machine->hang)
		usleep(10000);
	if (machine->delay_ms)
		usleep(machine->delay_ms * 1000);
	return machine->error;
}

static int index_of(void *device)
{
	return (int)(intptr_t)device - 1;
}

#define ENTER(device) \
	int err = enter(), at = index_of(device); \
	if (err) \
		return err; \
	if (at < 0 || at >= n_devices()) \
		return INVALID

static int init(void)
{
	machine = sim_machine_open();
	if (machine->init_ms)
		usleep(machine->init_ms * 1000);
	if (machine->error)
		return machine->error;
	started = 1;
	return 0;
}

static int count(uint32_t *n)
{
	int err = enter();

	if (!err)
		*n = n_devices();
	return err;
}

static int handle(uint32_t index, void **device)
{
	int err = enter();

	if (err || (int)index >= n_devices())
		return err ? err : INVALID;
	*device = (void *)(intptr_t)(index + 1);
	return 0;
}

SIM_API int nvmlShutdown(void)
{
	started = 0;
	return 0;
}

SIM_API int nvmlDeviceGetClockInfo(void *device, uint32_t which, uint32_t *mhz)
{
	ENTER(device);
	if (which != NVML_SM_CLOCK)
		return NVML_NOT_SUPPORTED;
	*mhz = machine->devices[at].mhz ? machine->devices[at].mhz : 1980;
	return 0;
}

SIM_API int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, uint64_t *bits)
{
	ENTER(device);
	*bits = machine->devices[at].why;
	return 0;
}

SIM_API int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory_info *info)
{
	ENTER(device);
	info->total = machine->devices[at].total_bytes ? machine->devices[at].total_bytes : 80ull << 30;
	info->free = machine->devices[at].free_bytes ? machine->devices[at].free_bytes : 40ull << 30;
	info->used = info->total - info->free;
	return 0;
}

static int processes(void *device, uint32_t *n, void *infos, size_t stride)
{
	uint32_t room = *n;

	ENTER(device);
	*n = 0;
	for (int i = 0; i < SIM_MACHINE_PROCESSES; i++) {
		struct nvml_process_info p = { machine->devices[at].processes[i].pid,
					       machine->devices[at].processes[i].bytes, UINT32_MAX, UINT32_MAX };

		if (!p.pid)
			continue;
		if (*n < room)
			memcpy((char *)infos + *n * stride, &p, stride);
		(*n)++;
	}
	return *n > room ? NVML_TOO_SMALL : 0;
}

#ifdef SIM_OLD			/* as drivers of long ago were */
SIM_API int nvmlInit(void)
{
	return init();
}

SIM_API int nvmlDeviceGetCount(uint32_t *n)
{
	return count(n);
}

SIM_API int nvmlDeviceGetHandleByIndex(uint32_t index, void **device)
{
	return handle(index, device);
}

SIM_API int nvmlDeviceGetComputeRunningProcesses(void *device, uint32_t *n, void *infos)
{
	return processes(device, n, infos, sizeof(struct nvml_process_info_v1));
}
#else
SIM_API int nvmlInit_v2(void)
{
	return init();
}

SIM_API int nvmlDeviceGetCount_v2(uint32_t *n)
{
	return count(n);
}

SIM_API int nvmlDeviceGetHandleByIndex_v2(uint32_t index, void **device)
{
	return handle(index, device);
}

SIM_API int nvmlDeviceGetComputeRunningProcesses_v3(void *device, uint32_t *n, void *infos)
{
	return processes(device, n, infos, sizeof(struct nvml_process_info));
}

SIM_API int nvmlDeviceGetCurrentClocksEventReasons(void *device, uint64_t *bits)
{
	return nvmlDeviceGetCurrentClocksThrottleReasons(device, bits);
}

SIM_API int nvmlSystemGetDriverVersion(char *text, uint32_t size)
{
	int err = enter();

	if (!err)
		snprintf(text, size, "580.0 (simulated)");
	return err;
}

SIM_API int nvmlDeviceGetPciInfo_v3(void *device, struct nvml_pci_info *info)
{
	ENTER(device);
	*info = (struct nvml_pci_info){ .domain = 0, .bus = 0x10 + at, .device = 0 };
	return 0;
}

SIM_API int nvmlDeviceGetUUID(void *device, char *text, uint32_t size)
{
	ENTER(device);
	snprintf(text, size, "GPU-%08x-0000-0000-0000-000000000000", 0xa0 + at);
	return 0;
}

SIM_API int nvmlDeviceGetName(void *device, char *text, uint32_t size)
{
	ENTER(device);
	snprintf(text, size, "Simulated %llu", (unsigned long long)machine->devices[at].kind);
	return 0;
}

SIM_API int nvmlDeviceGetMinorNumber(void *device, uint32_t *minor)
{
	ENTER(device);
	*minor = 100 + at;	/* no such file: containers are not simulated */
	return 0;
}

SIM_API int nvmlDeviceGetMigMode(void *device, uint32_t *now, uint32_t *later)
{
	ENTER(device);
	*now = *later = machine->devices[at].mig;
	return 0;
}

SIM_API int nvmlDeviceGetMaxClockInfo(void *device, uint32_t which, uint32_t *mhz)
{
	ENTER(device);
	if (which != NVML_SM_CLOCK)
		return NVML_NOT_SUPPORTED;
	*mhz = machine->devices[at].max_mhz ? machine->devices[at].max_mhz : 1980;
	return 0;
}

/* A sample for each process that does something, up to now. */
SIM_API int nvmlDeviceGetProcessUtilization(void *device, struct nvml_utilization *samples, uint32_t *n,
					    uint64_t since_us)
{
	uint64_t now_us = sim_clock(CLOCK_REALTIME) / 1000;
	uint32_t room = *n;

	ENTER(device);
	*n = 0;
	for (int i = 0; i < SIM_MACHINE_PROCESSES && now_us > since_us; i++) {
		struct nvml_utilization u = { .pid = machine->devices[at].processes[i].pid, .stamp_us = now_us,
					      .sm_pct = machine->devices[at].processes[i].sm_pct };

		if (!u.pid || !u.sm_pct)
			continue;
		if (*n < room)
			samples[*n] = u;
		(*n)++;
	}
	return !*n ? NVML_FOUND_NONE : *n > room ? NVML_TOO_SMALL : 0;
}
#endif
