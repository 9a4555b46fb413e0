/* SPDX-License-Identifier: Apache-2.0 */
/* The library's entry points and its thread, which follows the agent's orders until it is told to
 * leave. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "door.h"
#include "target.h"

#define EXPORT __attribute__((visibility("default")))
int InitializeInjection(void);
int tokenlag_start(int memfd);

enum { IDLE_TICK_MS = 10, ACTIVE_TICK_MS = 2, HEARTBEAT_NS = 1500000000,
       ASK_CUDA_NS = 100000000 };

struct target target;

/* ---- what the agent is told ---- */

void target__say(const char *format, ...)
{
	char why[sizeof(target.ring.shared->why)] = "";
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	memcpy(target.ring.shared->why, why, sizeof(why));
}

static void set_state(enum tl_ring_state state)
{
	__atomic_store_n(&target.ring.shared->state, state, __ATOMIC_RELEASE);
}

int target__call(const char *name, int result)
{
	if (!guard__leave(&target.guard))
		return -ECANCELED;
	if (!result)
		return 0;
	target.ring.shared->error = result;
	target__say("%s failed with %d", name, result);
	return -EIO;
}

/* Never again in this process. */
static void die(const char *why)
{
	__atomic_store_n(&target.off, 1, __ATOMIC_SEQ_CST);
	snprintf(target.dead_why, sizeof(target.dead_why), "%s", why);
	target__say("%s", target.dead_why);
	set_state(TL_RING_REFUSED);
	__atomic_store_n(&target.dead, 1, __ATOMIC_RELEASE);
}

static void on_hang(const char *call)
{
	char why[sizeof(target.dead_why)];

	snprintf(why, sizeof(why), "%s did not return: CUPTI is left alone from now on", call);
	die(why);
}

/* ---- the thread ---- */

static bool agent_lives(const struct tl_ring *shared, uint64_t started_ns)
{
	uint64_t beat = __atomic_load_n(&shared->heartbeat_ns, __ATOMIC_ACQUIRE), now = now_ns();

	if (beat < started_ns)
		beat = started_ns;
	return beat > now || now - beat < HEARTBEAT_NS;
}

/* Asking takes the loader's lock: not at each tick. */
static bool cuda_ready(struct tl_ring *shared)
{
	bool simulated = false, ready;

	if (now_ns() - target.asked_cuda_ns < ASK_CUDA_NS)
		return false;
	target.asked_cuda_ns = now_ns();
	ready = cupti__touch_cuda(&simulated) == 0;
	shared->simulated = simulated;
	if (!ready && !shared->why[0])
		target__say("CUDA is not in use in this process yet");
	return ready;
}

/* Begins what is ordered; waits if the target does not use CUDA yet. */
static int begin(uint32_t order)
{
	int err;

	if (!target.subscriber) {
		if (!cuda_ready(target.ring.shared))
			return 0;
		set_state(TL_RING_STARTING);
	}
	target__say("%s", "");
	err = window__begin(order);
	if (err)
		return err;
	if (target.cupti.several)
		target__say("the target has mapped more than one CUPTI: using %.80s",
			    target.cupti.path);
	else if (target.cupti.own)
		target__say("the target had not mapped a CUPTI: using %.80s", target.cupti.path);
	set_state(TL_RING_ACTIVE);
	return 0;
}

static int end(void)
{
	int err = window__end();

	if (!err)
		set_state(TL_RING_IDLE);
	return err;
}

/* Orders of one number are one order: a window that is full opens again when the agent says
 * something new. */
static int follow(void)
{
	struct tl_ring *shared = target.ring.shared;
	uint64_t started_ns = now_ns();
	uint32_t done = TL_ORDER_IDLE;
	int err = 0;

	while (!err) {
		uint32_t order = __atomic_load_n(&shared->order, __ATOMIC_ACQUIRE),
			 what = order & 0xff;

		if (what == TL_ORDER_LEAVE || !agent_lives(shared, started_ns))
			break;
		if (order != done && target.window.level) {
			err = end();
		} else if (order != done) {
			if (what == TL_ORDER_GRAPH || what == TL_ORDER_KERNELS)
				err = begin(what);
			if (!err && (target.window.level || what == TL_ORDER_IDLE))
				done = order;
		} else if (target.window.level) {
			err = window__tick();
			if (err > 0) {
				err = end();
				if (!err)
					target__say("window full: %llu records in %llu ms",
						    (unsigned long long)target.window.n_records,
						    (unsigned long long)(now_ns() -
									 target.window.begin_ns) /
							    1000000);
			}
		}
		if (!err)
			sleep_ms(target.window.level ? ACTIVE_TICK_MS : IDLE_TICK_MS);
	}
	return err;
}

/* Lets go of CUPTI, whatever happened. The first reason stays. Returns the state that it is in then
 * (enum tl_ring_state), 0 if that was said already. */
static uint32_t leave(int err)
{
	char why[sizeof(target.ring.shared->why)];
	int ended = 0, left;

	if (err != -EPIPE) {
		memcpy(why, target.ring.shared->why, sizeof(why));
		ended = window__end();
		if (!err && ended)
			memcpy(why, target.ring.shared->why, sizeof(why));
		if (ended == -EPIPE)
			err = ended;
	}
	if (err == -EPIPE) {		/* CUPTI has finalized itself */
		die("CUPTI met a fatal error and switched itself off");
		return 0;
	}
	if (ended == -ECANCELED)
		return 0;
	if (!err && !ended)		/* nothing more comes, however long the rest takes */
		set_state(TL_RING_LEAVING);
	left = window__let_go();
	if (left == -ECANCELED)
		return 0;
	if (err || ended)
		target__say("%.127s", why);
	else if (left > 0)
		target__say("left without cuptiFinalize: %s", target.cupti.version < CUPTI_12_6 ?
			    "older than 12.6" : "it did not call back");
	else
		target__say("%s", "");
	return err ? TL_RING_REFUSED : TL_RING_LEFT;
}

/* Whoever reads the last state may start the next time at once: nothing of this
 * one is touched behind that. */
static void say_last(uint32_t state)
{
	struct ring ring = target.ring;

	if (!launches__drained()) {	/* a callback may still write: the next start unmaps it */
		if (state)
			set_state(state);
		__atomic_store_n(&target.phase, PHASE_FREE, __ATOMIC_RELEASE);
		return;
	}
	target.ring = (struct ring){ 0 };
	__atomic_store_n(&target.phase, PHASE_FREE, __ATOMIC_RELEASE);
	if (state)
		__atomic_store_n(&ring.shared->state, state, __ATOMIC_RELEASE);
	ring__unmap(&ring);
}

static void *run(void *ctx)
{
	uint32_t state = TL_RING_REFUSED;
	int err;

	(void)ctx;
	prctl(PR_SET_NAME, "tokenlag");
	err = guard__start(&target.guard, on_hang);
	if (err) {
		target__say("no thread for a watchdog");
	} else {
		set_state(TL_RING_IDLE);
		err = follow();
		state = err != -ECANCELED ? leave(err) : 0;
		guard__stop(&target.guard);
	}
	__atomic_store_n(&target.off, 1, __ATOMIC_SEQ_CST);
	if (!target.subscriber) {	/* what came back when CUPTI let go: nobody waits for it */
		size_t valid;
		uint8_t *buf;

		while ((buf = buffers__next(&target.buffers, &valid)))
			buffers__free(&target.buffers, buf);
		buffers__close(&target.buffers);
	}
	say_last(state);
	return NULL;
}

/* ---- entry points ---- */

/* A child has our memory, and none of our threads. It may be attached to by itself unless CUPTI is
 * in a state that belongs to its parent. */
static void in_child(void)
{
	target.off = 1;
	if (target.subscriber) {
		target.dead = 1;
		snprintf(target.dead_why, sizeof(target.dead_why),
			 "forked while CUPTI was in use by its parent");
	}
	memset(target.shards, 0, sizeof(target.shards));
	target.n_calls = target.n_work = 0;
	target.phase = PHASE_FREE;
}

/* Says to a new ring why there will be nothing in it; the old one may still be in use. */
static int refuse(int memfd)
{
	struct ring r = { 0 };
	int err = ring__map(&r, memfd);

	if (err)
		return err;
	memcpy(r.shared->why, target.dead_why, sizeof(r.shared->why));
	__atomic_store_n(&r.shared->state, TL_RING_REFUSED, __ATOMIC_RELEASE);
	ring__unmap(&r);
	return 0;
}

static void reset(void)
{
	names__reset(&target.names);
	clocks__reset(&target.clocks);
	target.window = (struct window){ 0 };
	target.subscriber = NULL;
	target.detach_thread = 0;
	target.fatal = target.level = target.any_graphs = target.n_spans = 0;
	target.told_clock_ns = target.last_pair_ns = target.asked_cuda_ns = 0;
	target.pid = getpid();
	target.off = 0;
	target__say("%s", "");
	set_state(TL_RING_STARTING);
}

static int start(int memfd)
{
	static uint32_t fork_handler;
	int err;

	ring__unmap(&target.ring);	/* of a time when a callback did not end */
	err = ring__map(&target.ring, memfd);
	if (err)
		return err;
	if (!__atomic_exchange_n(&fork_handler, 1, __ATOMIC_RELAXED))
		pthread_atfork(NULL, NULL, in_child);
	reset();
	err = start_thread(NULL, run, NULL);
	if (err)
		ring__unmap(&target.ring);
	return err;
}

/* memfd stays the caller's, and may be closed behind this. Returns 0, also if the ring says that
 * the library refuses; -EBUSY while a ring is served; another -errno if memfd is no such ring, or
 * there is no thread. */
EXPORT int tokenlag_start(int memfd)
{
	uint32_t phase = PHASE_FREE;
	int err, saved = errno;

	if (__atomic_load_n(&target.dead, __ATOMIC_ACQUIRE)) {
		err = refuse(memfd);
	} else if (!__atomic_compare_exchange_n(&target.phase, &phase, PHASE_TAKEN, false,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
		err = -EBUSY;
	} else {
		err = start(memfd);
		if (err)
			__atomic_store_n(&target.phase, PHASE_FREE, __ATOMIC_RELEASE);
	}
	errno = saved;
	return err;
}

/* What libcuda calls when CUDA_INJECTION64_PATH names this library. Whatever happens, CUDA goes
 * on. */
EXPORT int InitializeInjection(void)
{
	const char *number = getenv("TOKENLAG_RING_FD"), *path = getenv("TOKENLAG_RING");
	char *end_of_number;
	int fd = -1;

	if (getenv("TL_OFF"))
		return 1;
	if (number && *number) {
		fd = strtol(number, &end_of_number, 10);
		if (*end_of_number)
			fd = -1;
		if (fd >= 0)
			tokenlag_start(fd);
	} else if (path) {
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0) {
			tokenlag_start(fd);
			close(fd);
		}
	} else {
		door__open(tokenlag_start);
	}
	return 1;
}
