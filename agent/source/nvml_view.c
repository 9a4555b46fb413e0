/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers devices as CUDA does: by bus, by CUDA_VISIBLE_DEVICES, by what a
 * container lets a process open. */
#include "source/nvml_view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "source/nvml_abi.h"
#include "tl_event.h"

enum { MAX_ENVIRON = 1 << 18 };

/* ---- pure ---- */

static uint64_t bus_of(const struct nvml_device *d)
{
	return (uint64_t)d->domain << 32 | d->bus << 8 | d->slot;
}

/* The devices that are there, by bus. */
static uint32_t by_bus(const struct nvml_device *d, uint32_t n, uint64_t reachable,
		       uint8_t ret[NVML_MAX_DEVICES])
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n && i < NVML_MAX_DEVICES; i++) {
		uint32_t at = k;

		if (!(reachable >> i & 1))
			continue;
		for (; at && bus_of(&d[ret[at - 1]]) > bus_of(&d[i]); at--)
			ret[at] = ret[at - 1];
		ret[at] = i;
		k++;
	}
	return k;
}

static bool are_alike(const struct nvml_device *d, const uint8_t *order, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (strcmp(d[order[i]].name, d[order[0]].name) ||
		    d[order[i]].max_mhz != d[order[0]].max_mhz)
			return false;
	return true;
}

/* The only device whose UUID begins so, -1: none, or several. */
static int by_uuid(const struct nvml_device *d, const uint8_t *order, uint32_t n, const char *text,
		   size_t len)
{
	int found = -1;

	for (uint32_t i = 0; i < n; i++) {
		if (strncmp(d[order[i]].uuid, text, len))
			continue;
		if (found >= 0)
			return -1;
		found = order[i];
	}
	return found;
}

static bool has(const struct nvml_view *v, int device)
{
	for (uint32_t i = 0; i < v->n; i++)
		if (v->device[i] == device)
			return true;
	return false;
}

void nvml_view_make(const struct nvml_device *devices, uint32_t n, uint64_t reachable,
		    const char *list, const char *order, struct nvml_view *ret)
{
	uint8_t base[NVML_MAX_DEVICES];
	uint32_t n_base = by_bus(devices, n, reachable, base);
	bool sure = (order && !strcmp(order, "PCI_BUS_ID")) || are_alike(devices, base, n_base);

	*ret = (struct nvml_view){ 0 };
	if (!list) {
		ret->n = n_base;
		memcpy(ret->device, base, n_base);
		ret->guessed = !sure && n_base > 1;
		return;
	}
	/* As CUDA does it, the first entry that makes no sense ends the list. */
	for (const char *at = list; *at;) {
		size_t len = strcspn(at, ",");
		int device = -1;
		char *end;
		long number = strtol(at, &end, 10);

		if (!strncmp(at, "MIG-", 4)) {
			ret->mig = true;
			return;
		}
		if (!strncmp(at, "GPU-", 4)) {
			device = by_uuid(devices, base, n_base, at, len);
		} else if (end > at && number >= 0 && number < (long)n_base) {
			device = base[number];
			ret->guessed |= !sure;
		}
		if (device < 0)
			return;
		if (has(ret, device)) {	/* then it gets none at all */
			*ret = (struct nvml_view){ 0 };
			return;
		}
		ret->device[ret->n++] = device;
		at += len;
		at += *at == ',';
	}
}

int nvml_view_number(const struct nvml_view *v, uint32_t device)
{
	for (uint32_t i = 0; i < v->n; i++)
		if (v->device[i] == device)
			return i;
	return -1;
}

uint32_t nvml_why(uint64_t bits)
{
	uint32_t why = 0;

	if (bits & (NVML_WHY_POWER_CAP | NVML_WHY_POWER_BRAKE))
		why |= TL_GPU_POWER;
	if (bits & (NVML_WHY_HEAT | NVML_WHY_HEAT_HW))
		why |= TL_GPU_THERMAL;
	return why;
}

static bool uses_more(const struct nvml_process *a, const struct nvml_process *b)
{
	return a->sm_pct != b->sm_pct ? a->sm_pct > b->sm_pct : a->bytes > b->bytes;
}

const struct nvml_process *nvml_neighbour(const struct nvml_look *l,
					  bool (*is_own)(void *ctx, uint32_t pid), void *ctx)
{
	const struct nvml_process *most = NULL;

	for (uint32_t i = 0; i < l->n_processes; i++)
		if (!is_own(ctx, l->processes[i].pid) &&
		    (!most || uses_more(&l->processes[i], most)))
			most = &l->processes[i];
	return most;
}

/* ---- of /proc ---- */

/* `text` has room for two zeros more. */
static int read_environ(pid_t pid, char *text)
{
	char path[64];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	n = fread(text, 1, MAX_ENVIRON, f);
	fclose(f);
	text[n] = text[n + 1] = 0;
	return 0;
}

static const char *value_of(const char *text, const char *name)
{
	size_t len = strlen(name);

	for (; *text; text += strlen(text) + 1)
		if (!strncmp(text, name, len) && text[len] == '=')
			return text + len + 1;
	return NULL;
}

/* The devices that have a file where it looks for them: containers get some of them only.
 * None at all tells nothing. */
static uint64_t reachable_by(pid_t pid, const struct nvml_device *devices, uint32_t n)
{
	uint64_t bits = 0, all = n < 64 ? (1ull << n) - 1 : UINT64_MAX;
	char path[64];

	for (uint32_t i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/proc/%d/root/dev/nvidia%d", pid, devices[i].minor);
		if (devices[i].minor >= 0 && !access(path, F_OK))
			bits |= 1ull << i;
	}
	return bits ? bits : all;
}

int nvml_view_of(pid_t pid, const struct nvml_device *devices, uint32_t n, struct nvml_view *ret)
{
	char *text = malloc(MAX_ENVIRON + 2);
	int err = text ? read_environ(pid, text) : -ENOMEM;

	if (!err)
		nvml_view_make(devices, n, reachable_by(pid, devices, n),
			       value_of(text, "CUDA_VISIBLE_DEVICES"),
			       value_of(text, "CUDA_DEVICE_ORDER"), ret);
	free(text);
	return err;
}
