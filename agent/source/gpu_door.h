/* SPDX-License-Identifier: Apache-2.0 */
/* The agent comes to a library that was started with its process, and that
 * process is not traced for it. */
#ifndef TL_SOURCE_GPU_DOOR_H
#define TL_SOURCE_GPU_DOOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct tl_ring;

/* Is there such a library? Looks only. */
bool gpu_door_is_there(pid_t pid);

/* Opens its ring, which nobody else has from then on: a descriptor of the caller's. -ENOENT: there
 * is none, or it may not be opened; -EBUSY: another agent has it, or had it and its library has
 * not left within 2 s; -EPROTO: it is no ring that can be trusted. *ret_data_bytes: of the ring.
 * tick: as in inject_opts. */
int gpu_door_open(pid_t pid, uint32_t *ret_data_bytes, void (*tick)(void *ctx), void *ctx);

/* Once the ring is made new: the library begins to serve it. 0, its own -errno, or -ETIMEDOUT. */
int gpu_door_knock(struct tl_ring *ring, void (*tick)(void *ctx), void *ctx);

#endif
