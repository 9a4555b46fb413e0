/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles only if what the agent takes for NVML's interface is what NVIDIA's header says; never run. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include "../../agent/source/nvml_abi.h"
#include "abi_fields.h"

#define SIZE(theirs, ours) _Static_assert(sizeof(theirs) == sizeof(struct ours), #theirs)

NUMBER(NVML_SUCCESS, NVML_FINE);
NUMBER(NVML_ERROR_NOT_SUPPORTED, NVML_NOT_SUPPORTED);
NUMBER(NVML_ERROR_NO_PERMISSION, NVML_NO_PERMISSION);
NUMBER(NVML_ERROR_NOT_FOUND, NVML_FOUND_NONE);
NUMBER(NVML_ERROR_INSUFFICIENT_SIZE, NVML_TOO_SMALL);
NUMBER(NVML_ERROR_DRIVER_NOT_LOADED, NVML_NO_DRIVER);
NUMBER(NVML_ERROR_GPU_IS_LOST, NVML_GPU_LOST);
NUMBER(NVML_ERROR_LIB_RM_VERSION_MISMATCH, NVML_MISMATCH);
NUMBER(NVML_CLOCK_SM, NVML_SM_CLOCK);
NUMBER(NVML_DEVICE_MIG_ENABLE, NVML_MIG_ON);
NUMBER(NVML_DEVICE_UUID_BUFFER_SIZE, NVML_UUID_SIZE);
NUMBER(NVML_DEVICE_NAME_V2_BUFFER_SIZE, NVML_NAME_SIZE);
NUMBER(NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE, NVML_VERSION_SIZE);

/* Old names, which newer headers have, too. */
NUMBER(nvmlClocksThrottleReasonGpuIdle, NVML_WHY_IDLE);
NUMBER(nvmlClocksThrottleReasonSwPowerCap, NVML_WHY_POWER_CAP);
NUMBER(nvmlClocksThrottleReasonHwSlowdown, NVML_WHY_SLOWDOWN);
NUMBER(nvmlClocksThrottleReasonSwThermalSlowdown, NVML_WHY_HEAT);
NUMBER(nvmlClocksThrottleReasonHwThermalSlowdown, NVML_WHY_HEAT_HW);
NUMBER(nvmlClocksThrottleReasonHwPowerBrakeSlowdown, NVML_WHY_POWER_BRAKE);

SIZE(nvmlPciInfo_t, nvml_pci_info);
SAME(nvmlPciInfo_t, domain, nvml_pci_info, domain);
SAME(nvmlPciInfo_t, bus, nvml_pci_info, bus);
SAME(nvmlPciInfo_t, device, nvml_pci_info, device);
SAME(nvmlPciInfo_t, busId, nvml_pci_info, id);

SIZE(nvmlMemory_t, nvml_memory_info);
SAME(nvmlMemory_t, total, nvml_memory_info, total);
SAME(nvmlMemory_t, free, nvml_memory_info, free);

SIZE(nvmlProcessInfo_v2_t, nvml_process_info);
SAME(nvmlProcessInfo_v2_t, pid, nvml_process_info, pid);
SAME(nvmlProcessInfo_v2_t, usedGpuMemory, nvml_process_info, bytes);
SAME(nvmlProcessInfo_v2_t, gpuInstanceId, nvml_process_info, gpu_instance);
SIZE(nvmlProcessInfo_t, nvml_process_info);	/* that of _v3 */
SIZE(nvmlProcessInfo_v1_t, nvml_process_info_v1);
SAME(nvmlProcessInfo_v1_t, pid, nvml_process_info_v1, pid);
SAME(nvmlProcessInfo_v1_t, usedGpuMemory, nvml_process_info_v1, bytes);

SIZE(nvmlProcessUtilizationSample_t, nvml_utilization);
SAME(nvmlProcessUtilizationSample_t, pid, nvml_utilization, pid);
SAME(nvmlProcessUtilizationSample_t, timeStamp, nvml_utilization, stamp_us);
SAME(nvmlProcessUtilizationSample_t, smUtil, nvml_utilization, sm_pct);

/* Each function that is asked for has as many arguments, of these sizes. */
static inline void calls(nvmlDevice_t d, unsigned int *n, char *text, unsigned long long *bits, nvmlPciInfo_t *pci,
			 nvmlMemory_t *memory, nvmlProcessInfo_v2_t *p, nvmlProcessUtilizationSample_t *u)
{
	nvmlInit_v2();
	nvmlShutdown();
	nvmlSystemGetDriverVersion(text, NVML_VERSION_SIZE);
	nvmlDeviceGetCount_v2(n);
	nvmlDeviceGetHandleByIndex_v2(0, &d);
	nvmlDeviceGetPciInfo_v3(d, pci);
	nvmlDeviceGetUUID(d, text, NVML_UUID_SIZE);
	nvmlDeviceGetName(d, text, NVML_NAME_SIZE);
	nvmlDeviceGetMinorNumber(d, n);
	nvmlDeviceGetMigMode(d, n, n);
	nvmlDeviceGetClockInfo(d, NVML_CLOCK_SM, n);
	nvmlDeviceGetMaxClockInfo(d, NVML_CLOCK_SM, n);
#ifdef nvmlClocksEventReasonGpuIdle
	nvmlDeviceGetCurrentClocksEventReasons(d, bits);
#endif
	nvmlDeviceGetCurrentClocksThrottleReasons(d, bits);
	nvmlDeviceGetMemoryInfo(d, memory);
	nvmlDeviceGetComputeRunningProcesses_v3(d, n, p);
	nvmlDeviceGetProcessUtilization(d, u, n, 0ull);
}
_Static_assert(sizeof(nvmlReturn_t) == sizeof(int) && sizeof(nvmlDevice_t) == sizeof(void *), "results and handles");
void *const uses = calls;
