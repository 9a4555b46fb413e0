/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes use CUDA, and which descend from a server. */
#ifndef TL_SOURCE_GPU_FIND_H
#define TL_SOURCE_GPU_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Has it libcuda mapped? 1 or 0, or -errno (-ESRCH: it has gone). */
int gpu_maps_cuda(pid_t pid);

/* Is that libcuda one of tests/sim? */
bool gpu_is_simulated(pid_t pid);

/* Has its libcuda the functions that launches are made by? */
bool gpu_can_probe(pid_t pid);

/* The CUPTI that it has mapped: its file's name, "" if there is none. 0 or -errno. */
int gpu_mapped_cupti(pid_t pid, char *ret, size_t size);

/* Children of this process, their children, and so on, in *ret, which is to be
 * freed. How many, or -errno. */
int gpu_descendants(pid_t pid, uint32_t **ret);

#endif
