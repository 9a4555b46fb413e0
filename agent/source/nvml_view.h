/* SPDX-License-Identifier: Apache-2.0 */
/* NVML's devices as a process numbers them, and what a look at one of them means for it. */
#ifndef TL_SOURCE_NVML_VIEW_H
#define TL_SOURCE_NVML_VIEW_H

#include <stddef.h>
#include <sys/types.h>

#include "source/nvml.h"

struct nvml_view {		/* of one process */
	uint32_t n;
	uint8_t device[NVML_MAX_DEVICES];	/* its number -> NVML's index */
	bool guessed;		/* these numbers are: devices differ,
				 * and CUDA puts the fastest first */
	bool mig;		/* it was given parts of a device: nothing is said of them */
};

/* list: CUDA_VISIBLE_DEVICES, NULL: not set; order: CUDA_DEVICE_ORDER; reachable: bits of the
 * devices that it can open. Pure. */
void nvml_view_make(const struct nvml_device *devices, uint32_t n, uint64_t reachable,
		    const char *list, const char *order, struct nvml_view *ret);
/* The same, from /proc: what it was started with; a change by itself is not
 * seen there. 0 or -errno. */
int nvml_view_of(pid_t pid, const struct nvml_device *devices, uint32_t n, struct nvml_view *ret);
/* How it calls this device, -1: it does not see it. */
int nvml_view_number(const struct nvml_view *v, uint32_t device);

/* NVML's bits as enum tl_gpu_why. */
uint32_t nvml_why(uint64_t bits);

enum { NVML_NEIGHBOUR_PCT = 5 };	/* one that uses less is none */
/* Of the processes that are not own: the one that uses the device most; unused ones by
 * their memory. NULL: none. */
const struct nvml_process *nvml_neighbour(const struct nvml_look *l,
					  bool (*is_own)(void *ctx, uint32_t pid), void *ctx);

#endif
