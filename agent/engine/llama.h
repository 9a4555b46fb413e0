/* SPDX-License-Identifier: Apache-2.0 */
/* llama.cpp: what its probes saw, as steps, sequences and links to requests. Pure. */
#ifndef TL_ENGINE_LLAMA_H
#define TL_ENGINE_LLAMA_H

#include "base/emit.h"
#include "engine/wire.h"

struct llama;

/* One per process. `w` answers which request a thread read last. NULL: out of memory. */
struct llama *llama__new(const struct wire *w, const struct emit *out);
void llama__free(struct llama *l);	/* NULL is fine */

/* Takes TL_RAW_LLAMA_*; others are ignored. Returns 0, or -errno from `out` or -ENOMEM. */
int llama__feed(struct llama *l, const struct tl_hdr *ev);

#endif
