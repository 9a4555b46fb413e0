/* SPDX-License-Identifier: Apache-2.0 */
/* One process whose GPU work is recorded: the agent's end of the ring that
 * libtokenlag.so writes to. */
#ifndef TL_SOURCE_GPU_H
#define TL_SOURCE_GPU_H

#include "tl_event.h"
#include "tl_ring.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct gpu;
enum gpu_way {
	GPU_BY_DOOR,	/* the library was there, and waited */
	GPU_BY_PTRACE,
	GPU_BY_PYTHON,	/* PEP 768: its main thread ran a script of ours;
			 * `why` says what stood against the other way */
};
struct gpu_entry {		/* how it went, what it cost to come in, and why it failed */
	enum gpu_way way;
	uint32_t n_stops;
	uint64_t stopped_ns, longest_ns;	/* as in inject_result */
	char why[256];
	char holder[32];	/* -EBUSY: another agent that is attached already, "" if it is not
				 * known: "tokenlag (pid 123)" */
};
struct gpu_attach_opts {
	const char *library;	/* NULL: the usual places */
	uint32_t ring_bytes;	/* a power of two; 0: 16 MB, which counts as memory of both sides */
	void (*tick)(void *ctx);	/* as in inject_opts: others want
					 * to hear that the agent lives */
	void *ctx;
};
/* Brings the library into the process, unless it was started with it; it does nothing yet. Returns
 * 0 or -errno, with *ret_entry filled in both cases. */
int gpu__attach(pid_t pid, const struct gpu_attach_opts *opts, struct gpu **ret, struct gpu_entry *ret_entry);
void gpu__beat(struct gpu *g);	/* the agent lives, though it has no time for gpu__poll */
/* For a library that comes by itself (CUDA_INJECTION64_PATH): makes a ring of an empty memfd, which
 * it then owns. 0 or -errno, and memfd stays the caller's. */
int gpu__serve(pid_t pid, int memfd, struct gpu **ret);

/* What is wanted from now on. OFF and LAUNCHES ask nothing of the library. Each call opens a new
 * window, of graphs with any number of records. */
void gpu__order(struct gpu *g, enum tl_gpu_level level, uint32_t max_window_ms);
/* Closes the window; the level stays what it is. */
void gpu__pause(struct gpu *g);
/* A lower level from now on, and why: said by a tl_gpu_health at once. */
void gpu__lower(struct gpu *g, enum tl_gpu_level level, const char *why);
/* The same, for TL_GPU_BROKEN: others saw so many launches of which the library told nothing. */
void gpu__break(struct gpu *g, enum tl_gpu_level level, uint64_t n_launches, const char *why);
/* What there is without the library, before it comes and after it has gone: OFF, if nothing else
 * is said. */
void gpu__falls_to(struct gpu *g, enum tl_gpu_level level);

struct gpu_counts {		/* so far, as the library says it */
	uint64_t launches, records, bad, dropped;
	uint64_t own_ns;	/* its time, and CUPTI's */
};
struct gpu_counts gpu__counts(const struct gpu *g);

/* Takes what has arrived, says that the agent lives (call it at least twice a second), and adds a
 * tl_gpu_health for each second and for each change of state. Events live during the call only.
 * Returns how many there were, -ESRCH once the process has gone, -EPROTO if what is in the ring is
 * no events: it is not read any more then. */
typedef void (*gpu_event_fn)(void *ctx, const struct tl_hdr *ev);
int gpu__poll(struct gpu *g, uint64_t now_ns, gpu_event_fn fn, void *ctx);

/* The library begins to leave; gpu__leave waits for it. For several at once. end_ns: when the
 * capture ended, which is to be over soon: whatever the library does, 1.5 s later at the latest,
 * and 0.5 s if nothing more is to come of it. 0: the capture goes on, and 2 s from now will do. */
void gpu__let_go(struct gpu *g, uint64_t end_ns);
bool gpu__is_late(const struct gpu *g, uint64_t now_ns);	/* it should have left by now */
/* In which call of CUPTI the library is while it holds nothing back; "" if it is not known.
 * NULL: it holds something. */
const char *gpu__rest(struct gpu *g, char ret[64]);
/* A writer has not finished: what others wrote since was not taken by the last gpu__poll. */
bool gpu__is_behind(const struct gpu *g);
/* Tells the library to leave, takes what still arrives, and waits for the end for as long as
 * gpu__let_go says. 0, or -ETIMEDOUT, -ESRCH; -EINPROGRESS: it has given all, and is not done
 * with leaving. */
int gpu__wait_left(struct gpu *g, gpu_event_fn fn, void *ctx);
/* The same, and frees; NULL is fine. */
int gpu__leave(struct gpu *g, gpu_event_fn fn, void *ctx);
/* The process has executed another program, and the library went with the one before: takes
 * what is there, and frees. */
void gpu__abandon(struct gpu *g, gpu_event_fn fn, void *ctx);

enum tl_ring_state gpu__state(const struct gpu *g);
/* The library's reason not to give records. */
enum tl_gpu_trouble gpu__trouble(struct gpu *g);
/* The library's own words on it, "" if it has none; lives until the next call. */
const char *gpu__why(struct gpu *g);

#endif
