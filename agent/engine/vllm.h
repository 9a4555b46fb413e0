/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM: what its API servers and engine processes say to each other over ZMQ, as steps, sequences
 * and links to requests. Pure. */
#ifndef TL_ENGINE_VLLM_H
#define TL_ENGINE_VLLM_H

#include "base/emit.h"
#include <stdbool.h>
#include <stdint.h>

struct vllm;

/* One for all vLLM servers of a capture. NULL: out of memory. */
struct vllm *vllm__new(const struct emit *out);
void vllm__free(struct vllm *v);	/* NULL is fine */

/* A process of vLLM is observed: its role says whether its sockets carry the engine's wire. What an
 * engine said itself of its limits is put into *e where it has nothing. */
int vllm__add_process(struct vllm *v, struct tl_engine *e);
/* Is this process one whose sockets vllm__feed wants? */
bool vllm__wants(const struct vllm *v, uint32_t tgid);

/* Takes TL_RAW_NET or TL_RAW_ZMQ, TL_RAW_SOCK and TL_RAW_PROC of such processes. Returns 0, or
 * -errno from `out` or -ENOMEM. */
int vllm__feed(struct vllm *v, const struct tl_hdr *ev);
/* Events were lost before they came here: what is under way on the
 * sockets is not known any more. */
int vllm__lost(struct vllm *v);
/* A request of process tgid goes by this id (struct wire_opts). */
int vllm__on_id(struct vllm *v, uint64_t now_ns, uint32_t tgid, uint32_t req, const char *id,
		bool answered);
/* It has ended: its id may be another's. */
void vllm__on_end(struct vllm *v, uint32_t req);
/* A TCP socket, by inode, on which vLLM's messages were found: to be captured
 * whole. Each is told once. */
bool vllm__next_wire(struct vllm *v, uint64_t *ret_sock);
int vllm__end(struct vllm *v);	/* says the steps that are still held */

struct vllm_counts {
	uint64_t messages, steps, bad_messages, skipped_bytes;
	uint64_t unknown_rows;	/* outputs of requests whose ADD was not seen */
	uint64_t inferred_steps;	/* with a member whose tokens are not certain */
	uint64_t refused;	/* sequences over the limit: not followed */
};
void vllm__counts(const struct vllm *v, struct vllm_counts *ret);

#endif
