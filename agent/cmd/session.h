/* SPDX-License-Identifier: Apache-2.0 */
/* A live capture: finds engines, attaches, and turns what the kernel says into semantic events. */
#ifndef TL_SESSION_H
#define TL_SESSION_H

#include "base/emit.h"
#include "engine/wire.h"
#include "source/bpf.h"
#include "source/now.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct session_opts {
	const pid_t *pids;	/* processes asked for; none: every engine that is found */
	size_t n_pids;
	bool no_proxies;	/* do not follow what stands before engines on this host */
	enum tl_gpu_level gpu;	/* how deep to look into GPU work, at most ... */
	uint32_t gpu_budget_ppm; /* ... and what that may cost of a
				  * server's speed; 0: the default */
	bool gpu_asked;		/* somebody asked for that: to find nothing is worth a word */
	struct src_bpf_opts bpf;
	struct emit out;	/* semantic events */
	struct emit raw;	/* also raw ones, for --raw; fn NULL: not wanted */
};

struct session;

/* Attaches and says TL_HOST and one TL_ENGINE per engine to opts->out. On failure it has logged one
 * sentence and returns -errno: -ENOENT when there is no engine to attach to. */
int session__open(const struct session_opts *opts, struct session **ret);
void session__close(struct session *s);	/* NULL is fine */

/* Takes what waits, at most for timeout_ms. Also looks for engines that started meanwhile when no
 * pid was asked for. Returns 0 or -errno from `out`. */
int session__poll(struct session *s, int timeout_ms);
int session__fd(const struct session *s);	/* readable when events wait */

/* Detaches, ends what is open, says TL_SELF and TL_CAPTURE_END. `why`: enum tl_stop. */
int session__stop(struct session *s, uint32_t why);

bool session__targets_gone(const struct session *s);	/* every process asked for has exited */

struct session_status {
	struct wire_stats wire;
	struct src_bpf_cost bpf;
	uint64_t steps, bad_events, events;
	uint64_t elapsed_ns, agent_cpu_ns, detach_ns;
	uint64_t rss_bytes;	/* the most so far */
	size_t n_engines, n_proxies;
};
void session__status(const struct session *s, struct session_status *ret);
/* Says TL_SELF with the costs so far. */
int session__say_self(struct session *s);

#endif
