/* SPDX-License-Identifier: Apache-2.0 */
/* Seams inside of the reader of NVML: its life and watchdog (nvml.c), and
 * what is asked (nvml_look.c). */
#ifndef TL_SOURCE_NVML_PRIV_H
#define TL_SOURCE_NVML_PRIV_H

#include <pthread.h>

#include "source/now.h"
#include "source/nvml.h"
#include "source/nvml_abi.h"

struct nvml {
	void *lib;
	struct nvml_api api;
	bool simulated, old_processes;	/* old_processes: as nvml_process_info_v1 */
	pthread_t thread;
	/* written by the thread before READY, and never again */
	uint32_t n_devices;
	struct nvml_device devices[NVML_MAX_DEVICES];
	char driver[NVML_VERSION_SIZE];

	pthread_mutex_t lock;	/* for what follows; never held during a call of NVML */
	pthread_cond_t turn;
	enum nvml_state state;
	char why[160];
	bool leave, ended, abandoned;	/* the thread shall end, has ended;
					 * nobody waits for it any more */
	uint64_t watched;
	bool list_all;
	uint64_t fresh;		/* looks that were not taken yet */
	struct nvml_look looks[NVML_MAX_DEVICES];
	struct nvml_cost cost;
	uint64_t call_ns;	/* since when a call is under way, 0: none is */
	const char *call;

	/* the thread's own */
	uint64_t waited_ns;	/* for a CPU, before this round */
	void *handles[NVML_MAX_DEVICES];
	uint64_t seen_us[NVML_MAX_DEVICES];	/* the newest sample of utilization */
	bool seen[NVML_MAX_DEVICES];		/* such samples were asked for before */
	uint32_t n_silent;	/* looks in a row that told nothing */
};

enum { NVML_LEAVE = -1 };	/* as a result: it was not called, for the thread shall end */

/* Around each call of NVML: whether it may be made, and what became of it. */
bool nvml_begin(struct nvml *n, const char *call);
int nvml_end(struct nvml *n, int result);
#define NVML_CALL(n, name, fn, ...) \
	(nvml_begin(n, name) ? nvml_end(n, (n)->api.fn(__VA_ARGS__)) : NVML_LEAVE)

/* On the thread. What cannot be had is missing in *ret. */
int nvml_start(struct nvml *n, char why[160]);	/* 0, or it cannot be used: why */
void nvml_look_at(struct nvml *n, uint32_t device, bool deep, struct nvml_look *ret);
void nvml_stop(struct nvml *n, const char *why);

#endif
