/* SPDX-License-Identifier: Apache-2.0 */
/* Processes in another time namespace: what their CLOCK_MONOTONIC shows. */
#ifndef TL_SOURCE_GPU_CLOCK_H
#define TL_SOURCE_GPU_CLOCK_H

#include <stdint.h>
#include <sys/types.h>

/* By how much the clock of this process is ahead of ours; 0 as a rule. */
int64_t gpu_clock_offset_ns(pid_t pid);
/* The offset in /proc/PID/timens_offsets, 0: none is there. For tests, too. */
int64_t gpu_clock_parse(const char *offsets);

#endif
