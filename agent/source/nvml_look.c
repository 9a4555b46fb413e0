/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML is asked: once, which devices there are; twice a second, how
 * they do. On its own thread. */
#include <stdio.h>
#include <string.h>

#include "source/nvml_priv.h"
#include "source/nvml_view.h"

enum { MAX_LISTED = 512, MAX_SAMPLES = 1024, MAX_SILENT = 5 };

static const char *text_of(int result, char text[32])
{
	static const struct { int result; const char *text; } known[] = {
		{ NVML_NOT_SUPPORTED, "not supported" }, { NVML_NO_PERMISSION, "no permission" },
		{ NVML_NO_DRIVER, "no NVIDIA driver is loaded" },
		{ NVML_GPU_LOST, "the GPU is lost" },
		{ NVML_MISMATCH, "NVML and the driver are of different versions" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].result == result)
			return known[i].text;
	snprintf(text, 32, "error %d", result);
	return text;
}

/* ---- once ---- */

static void read_device(struct nvml *n, uint32_t i)
{
	struct nvml_device *d = &n->devices[i];
	void *h = n->handles[i];
	struct nvml_pci_info pci = { .legacy_id = "" };
	uint32_t number, later;

	d->minor = -1;
	if (n->api.pci && !NVML_CALL(n, "nvmlDeviceGetPciInfo", pci, h, &pci)) {
		d->domain = pci.domain;
		d->bus = pci.bus;
		d->slot = pci.device;
	}
	if (!n->api.uuid || NVML_CALL(n, "nvmlDeviceGetUUID", uuid, h, d->uuid, sizeof(d->uuid)))
		*d->uuid = 0;
	if (!n->api.name || NVML_CALL(n, "nvmlDeviceGetName", name, h, d->name, sizeof(d->name)))
		*d->name = 0;
	if (n->api.minor && !NVML_CALL(n, "nvmlDeviceGetMinorNumber", minor, h, &number))
		d->minor = number;
	if (n->api.max_clock &&
	    !NVML_CALL(n, "nvmlDeviceGetMaxClockInfo", max_clock, h, NVML_SM_CLOCK, &number))
		d->max_mhz = number;
	if (n->api.mig && !NVML_CALL(n, "nvmlDeviceGetMigMode", mig, h, &number, &later))
		d->mig = number == NVML_MIG_ON;
}

int nvml_start(struct nvml *n, char why[160])
{
	uint32_t count = 0;
	char text[32];
	int err;

	/* not NVML_CALL's macro arguments: init takes none */
	if (!nvml_begin(n, "nvmlInit"))
		return NVML_LEAVE;
	err = nvml_end(n, n->api.init());
	if (err) {
		snprintf(why, 160, "NVML does not start: %s", text_of(err, text));
		return err;
	}
	if (!n->api.version ||
	    NVML_CALL(n, "nvmlSystemGetDriverVersion", version, n->driver, sizeof(n->driver)))
		*n->driver = 0;
	err = NVML_CALL(n, "nvmlDeviceGetCount", count, &count);
	if (err || !count) {
		snprintf(why, 160, "NVML knows no device%s%s", err ? ": " : "",
			 err ? text_of(err, text) : "");
		return err ? err : NVML_FOUND_NONE;
	}
	count = count < NVML_MAX_DEVICES ? count : NVML_MAX_DEVICES;
	for (uint32_t i = 0; i < count; i++) {
		err = NVML_CALL(n, "nvmlDeviceGetHandleByIndex", handle, i, &n->handles[i]);
		if (err == NVML_LEAVE)
			return err;
		if (err)	/* one that has fallen off the bus: it keeps its number */
			n->handles[i] = NULL;
		else
			read_device(n, i);
	}
	n->n_devices = count;
	return 0;
}

/* ---- again and again ---- */

static struct nvml_process *process_of(struct nvml_look *l, uint32_t pid)
{
	for (uint32_t i = 0; i < l->n_processes; i++)
		if (l->processes[i].pid == pid)
			return &l->processes[i];
	if (l->n_processes == NVML_MAX_PROCESSES || !pid)
		return NULL;
	l->processes[l->n_processes] = (struct nvml_process){ .pid = pid, .sm_pct = -1 };
	return &l->processes[l->n_processes++];
}

static int list_processes(struct nvml *n, void *handle, struct nvml_look *ret)
{
	union {
		struct nvml_process_info v2[MAX_LISTED];
		struct nvml_process_info_v1 v1[MAX_LISTED];
	} infos;
	uint32_t count = MAX_LISTED;
	int err;

	if (!n->api.processes)
		return NVML_NOT_SUPPORTED;
	err = NVML_CALL(n, "nvmlDeviceGetComputeRunningProcesses", processes, handle, &count,
			&infos);
	for (uint32_t i = 0; i < count && i < MAX_LISTED && !err; i++) {
		struct nvml_process *p = process_of(ret, n->old_processes ? infos.v1[i].pid : infos.v2[i].pid);
		uint64_t bytes = n->old_processes ? infos.v1[i].bytes : infos.v2[i].bytes;

		if (p)
			/* NVML_VALUE_NOT_AVAILABLE */
			p->bytes = bytes == UINT64_MAX ? 0 : bytes;
	}
	return err;
}

/*
 * A sample is of one process and the driver's own interval. The first call gets those of seconds
 * ago, so that they only tell from when on samples are new.
 */
static void measure_use(struct nvml *n, uint32_t device, struct nvml_look *ret)
{
	struct nvml_utilization samples[MAX_SAMPLES];
	uint32_t count = MAX_SAMPLES, times[NVML_MAX_PROCESSES] = { 0 };
	uint64_t since_us = n->seen_us[device];
	int err;

	if (!n->api.utilization)
		return;
	err = NVML_CALL(n, "nvmlDeviceGetProcessUtilization", utilization, n->handles[device],
			samples, &count, since_us);
	if (err && err != NVML_FOUND_NONE)
		return;
	count = err ? 0 : count < MAX_SAMPLES ? count : MAX_SAMPLES;
	for (uint32_t i = 0; i < ret->n_processes && n->seen[device]; i++)
		ret->processes[i].sm_pct = 0;
	for (uint32_t i = 0; i < count; i++) {
		const struct nvml_utilization *u = &samples[i];
		struct nvml_process *p;

		if (u->stamp_us > n->seen_us[device])
			n->seen_us[device] = u->stamp_us;
		if (!n->seen[device] || u->stamp_us <= since_us || u->sm_pct > 100)
			continue;
		p = process_of(ret, u->pid);
		if (!p)
			continue;
		p->sm_pct = (p->sm_pct > 0 ? p->sm_pct : 0) + u->sm_pct;
		times[p - ret->processes]++;
	}
	for (uint32_t i = 0; i < ret->n_processes; i++)
		if (times[i])
			ret->processes[i].sm_pct /= (int32_t)times[i];
	n->seen[device] = true;
}

static int read_clock(struct nvml *n, void *handle, struct nvml_look *ret)
{
	uint32_t mhz = 0;
	uint64_t bits = 0;
	int err = n->api.clock ? NVML_CALL(n, "nvmlDeviceGetClockInfo", clock, handle,
					   NVML_SM_CLOCK, &mhz)
			       : NVML_NOT_SUPPORTED;

	if (n->api.why &&
	    NVML_CALL(n, "nvmlDeviceGetCurrentClocksEventReasons", why, handle, &bits))
		bits = 0;
	ret->why = nvml_why(bits);
	ret->mhz = err || bits & NVML_WHY_IDLE ? 0 : mhz;
	return err;
}

static int read_memory(struct nvml *n, void *handle, struct nvml_look *ret)
{
	struct nvml_memory_info m;
	int err = n->api.memory ? NVML_CALL(n, "nvmlDeviceGetMemoryInfo", memory, handle, &m)
				: NVML_NOT_SUPPORTED;

	if (!err) {
		ret->total_bytes = m.total;
		ret->free_bytes = m.free ? m.free : 1;	/* 0 says that it is not known */
	}
	return err;
}

void nvml_look_at(struct nvml *n, uint32_t device, bool deep, struct nvml_look *ret)
{
	void *handle = n->handles[device];
	char why[160], text[32];
	int err, clock, memory;

	*ret = (struct nvml_look){ .device = device, .deep = deep, .at_ns = monotonic_ns() };
	if (!handle)
		return;
	err = list_processes(n, handle, ret);
	if (deep) {
		ret->at_ns = monotonic_ns();
		clock = read_clock(n, handle, ret);
		memory = read_memory(n, handle, ret);
		err = err && clock && memory ? clock : 0;
		measure_use(n, device, ret);
	}
	n->n_silent = err && err != NVML_LEAVE ? n->n_silent + 1 : 0;
	if (n->n_silent < MAX_SILENT)
		return;
	snprintf(why, sizeof(why), "NVML tells nothing of devices any more: %s",
		 text_of(err, text));
	nvml_stop(n, why);
}
