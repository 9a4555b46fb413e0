/* SPDX-License-Identifier: Apache-2.0 */
/* What NVIDIA's management library says of devices: clocks, memory, and
 * whose processes are on them. */
#ifndef TL_SOURCE_NVML_H
#define TL_SOURCE_NVML_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Twice a second, by a thread of its own: with a driver that is not well each call may take
 * seconds, or never return. One that has not returned within 2 s (the first one: 20 s), or two that
 * took more than 0.2 s, and NVML is left alone.
 */
enum { NVML_MAX_DEVICES = 64, NVML_MAX_PROCESSES = 128 };

struct nvml_device {		/* what does not change */
	char uuid[80], name[96];
	uint32_t domain, bus, slot;	/* PCI */
	int32_t minor;		/* of /dev/nvidiaN, -1: not known */
	uint32_t max_mhz;	/* of its processors, 0: not known */
	bool mig;		/* partitioned: nothing is said of it */
};
struct nvml_process {
	uint32_t pid;		/* as our pid namespace numbers it */
	uint64_t bytes;		/* of device memory */
	int32_t sm_pct;		/* of the time since the look before in
				 * which it had work there, -1: not known */
};
struct nvml_look {		/* at one device */
	uint32_t device;
	uint64_t since_ns, at_ns;	/* the look before, and this one */
	uint32_t mhz;		/* 0: not known, or it has nothing to do */
	uint32_t why;		/* enum tl_gpu_why, without neighbours */
	uint64_t free_bytes, total_bytes;	/* 0: not known */
	bool deep;		/* more than its processes was looked at */
	uint32_t n_processes;
	struct nvml_process processes[NVML_MAX_PROCESSES];
};

struct nvml;
/* Loads the library and starts. path: NULL: as the loader finds it. 0, -ENOENT: there is none,
 * -ENOSYS: functions are missing, -ENOMEM, -EAGAIN: no thread; `why` is a sentence. */
int nvml__open(const char *path, struct nvml **ret, char why[160]);
/* Returns within half a second. NULL is fine. */
void nvml__close(struct nvml *n);

enum nvml_state { NVML_STARTING = 0, NVML_READY = 1, NVML_STOPPED = 2 };
/* Also the watchdog: to be called at least once a second. STOPPED is for good, `why` says the
 * reason; what comes with READY is as long as it stays so. */
enum nvml_state nvml__state(struct nvml *n, uint64_t now_ns, char why[160]);
bool nvml__is_simulated(const struct nvml *n);	/* tests/sim */
/* READY. Returns how many; *ret lives until nvml__close. */
uint32_t nvml__devices(const struct nvml *n, const struct nvml_device **ret);
const char *nvml__driver(const struct nvml *n);	/* its version, "" if not known */

/* READY: which devices to look at from now on (bits of their index), and whether to list the
 * processes of all of them once more. */
void nvml__watch(struct nvml *n, uint64_t devices, bool list_all);
/* Takes a look that has not been taken yet; one that a newer one of its
 * device has replaced is gone. */
bool nvml__take(struct nvml *n, struct nvml_look *ret);

struct nvml_cost {
	uint64_t n_calls, calls_ns, longest_ns;	/* their time is not all time of a CPU */
	uint32_t n_slow, n_failed;
};
void nvml__cost(struct nvml *n, struct nvml_cost *ret);

#endif
