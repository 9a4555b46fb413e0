/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NVML's interface that is used, as it has been since driver 418: nothing of
 * NVIDIA's is needed to build. */
#ifndef TL_SOURCE_NVML_ABI_H
#define TL_SOURCE_NVML_ABI_H

#include <stdint.h>

/* tests/sim/nvml_abi.c compares all of this with NVIDIA's headers. */

enum {				/* results */
	NVML_FINE = 0, NVML_NOT_SUPPORTED = 3, NVML_NO_PERMISSION = 4, NVML_FOUND_NONE = 6,
	NVML_TOO_SMALL = 7, NVML_NO_DRIVER = 9, NVML_GPU_LOST = 15, NVML_MISMATCH = 18,
};
enum { NVML_SM_CLOCK = 1, NVML_MIG_ON = 1 };
enum { NVML_UUID_SIZE = 80, NVML_NAME_SIZE = 96, NVML_VERSION_SIZE = 80 };

enum {				/* why a clock is what it is; bits */
	NVML_WHY_IDLE = 0x1, NVML_WHY_POWER_CAP = 0x4,
	NVML_WHY_SLOWDOWN = 0x8,	/* heat or power: the board does not say */
	NVML_WHY_HEAT = 0x20, NVML_WHY_HEAT_HW = 0x40, NVML_WHY_POWER_BRAKE = 0x80,
};

struct nvml_pci_info {		/* nvmlPciInfo_t, of nvmlDeviceGetPciInfo_v3 */
	char legacy_id[16];
	uint32_t domain, bus, device, device_id, subsystem;
	char id[32];
};
struct nvml_memory_info {	/* nvmlMemory_t */
	uint64_t total, free, used;
};
struct nvml_process_info {	/* nvmlProcessInfo_v2_t: _v2 and _v3 of
				 * the call; without a suffix it is ... */
	uint32_t pid;
	uint64_t bytes;
	uint32_t gpu_instance, compute_instance;
};
struct nvml_process_info_v1 {	/* ... nvmlProcessInfo_v1_t */
	uint32_t pid;
	uint64_t bytes;
};
struct nvml_utilization {	/* nvmlProcessUtilizationSample_t */
	uint32_t pid;
	uint64_t stamp_us;
	uint32_t sm_pct, memory_pct, encoder_pct, decoder_pct;
};

struct nvml_api {		/* NULL: this NVML has none of that name */
	int (*init)(void);
	int (*shutdown)(void);
	int (*version)(char *text, uint32_t size);	/* of the driver */
	int (*count)(uint32_t *n);
	int (*handle)(uint32_t index, void **device);
	int (*pci)(void *device, struct nvml_pci_info *info);
	int (*uuid)(void *device, char *text, uint32_t size);
	int (*name)(void *device, char *text, uint32_t size);
	int (*minor)(void *device, uint32_t *minor);
	int (*mig)(void *device, uint32_t *now, uint32_t *later);
	int (*clock)(void *device, uint32_t which, uint32_t *mhz);
	int (*max_clock)(void *device, uint32_t which, uint32_t *mhz);
	int (*why)(void *device, uint64_t *bits);
	int (*memory)(void *device, struct nvml_memory_info *info);
	int (*processes)(void *device, uint32_t *n, void *infos);
	int (*utilization)(void *device, struct nvml_utilization *samples, uint32_t *n,
			   uint64_t since_us);
};

#endif
