/* SPDX-License-Identifier: Apache-2.0 */
/* Proxies on this host: found by their connections to engines, and captured with them. */
#ifndef TL_CMD_PROXIES_H
#define TL_CMD_PROXIES_H

#include "engine/pipeline.h"
#include "source/bpf.h"
#include "source/host.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proxies;

/* `is_target`: is it captured as an engine already? */
struct proxies_opts {
	struct src_bpf *bpf;
	struct host *host;
	struct pipeline *pipe;
	bool (*is_target)(void *ctx, uint32_t tgid);
	void *ctx;
};
struct proxies *proxies__new(const struct proxies_opts *opts);	/* NULL: out of memory */
void proxies__free(struct proxies *p);	/* NULL is fine */

/* An engine serves these ports: who uses it now? 0 or -errno. */
int proxies__look(struct proxies *p, const uint16_t *ports, size_t n_ports);
/* This process begins to connect to an engine: looked at by the next poll. */
void proxies__note(struct proxies *p, uint32_t tgid);
int proxies__poll(struct proxies *p, uint64_t now_ns);
size_t proxies__n(const struct proxies *p);

#endif
