/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a live capture: what it is attached to. */
#ifndef TL_SESSION_PRIV_H
#define TL_SESSION_PRIV_H

#include "base/map.h"
#include "cmd/session.h"
#include "cmd/session_gpu.h"
#include "engine/pipeline.h"
#include "source/discover.h"
#include "source/host.h"

struct target {
	struct tl_engine said;
	uint8_t asked;		/* by -p, it or its server */
	uint8_t named;		/* by -p, itself */
	uint8_t gone;
	uint64_t from_ns;	/* when all of it was attached */
};

struct session {
	struct session_opts opts;
	struct src_bpf *bpf;
	struct host *host;
	struct pipeline *pipe;
	struct proxies *proxies;	/* NULL: not wanted */
	struct session_gpu *gpu;	/* NULL: not wanted */
	struct map *targets;	/* tgid -> struct target */
	struct discover_past *past;	/* NULL until engines are looked for */
	struct emit tap;	/* of what the kernel says */
	struct emit feed;	/* of evidence from the host */
	struct emit seen;	/* of what the pipeline says */
	uint64_t begin_ns, events, detach_ns;
	uint64_t check_ns;	/* when to see if there is anything new to look at ... */
	uint64_t look_ns, look_pause_ns;	/* ... when to look for engines
						 * again, and the pause then */
	uint64_t look_until_ns;	/* by then what was started has shown what it is */
	uint64_t pids;		/* stands for the processes of the host
				 * when they were last looked at */
	struct src_bpf_cost last_cost;	/* at detach */
	uint64_t max_rss_bytes;	/* detach gives most of it back */
	size_t n_asked, n_gone, n_engines;
	bool said_host;
};

/* session_attach.c: attaches to what was asked for, or to all there is; says
 * what is wrong with that. */
int session_attach(struct session *s);
/* From time to time: attaches to engines that were started meanwhile. 0 or -errno. */
int session_look(struct session *s, uint64_t now);
/* A process was started that may be an engine. */
void session_expect_engine(struct session *s, uint64_t now);

#endif
