/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of records: what is switched on and off in CUPTI, in which order, and when one has to
 * end. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "target.h"

enum {
	DEFAULT_RECORDS = 200000, DEFAULT_WINDOW_MS = 2000, DEFAULT_FLUSH_MS = 100,
	SETTLE_MS = 5, MAX_SETTLE = 20,		/* for buffers to come back when a window closes */
	DRAIN_WAIT_MS = 1000, LOOK_MS = 300,
	DEAD_LAUNCHES = 32, DEAD_NS = 1000000000,	/* so many, so long, no record */
	BAD_RECORDS = 64,			/* ... and a tenth of the last ones */
	PAIR_NS = 2000000,			/* a clock that is set is set between two pairs */
};

/* Calls of CUPTI with a deadline each: the name is said where it fails. */
#define GUARDED(name, call)                                          \
	(guard__enter(&target.guard, name, CALL_TIMEOUT_MS), \
	 target__call(name, call))

static const uint32_t graph_kinds[] = { CUPTI_GRAPH_TRACE, CUPTI_MEMCPY, CUPTI_OVERHEAD };
static const uint32_t kernel_kinds[] = { CUPTI_KERNEL, CUPTI_MEMCPY, CUPTI_MEMSET, CUPTI_OVERHEAD };

static const uint32_t *kinds_of(uint32_t level, size_t *ret_n)
{
	*ret_n = level == TL_ORDER_GRAPH ? sizeof(graph_kinds) / sizeof(graph_kinds[0]) :
					   sizeof(kernel_kinds) / sizeof(kernel_kinds[0]);
	return level == TL_ORDER_GRAPH ? graph_kinds : kernel_kinds;
}

/* ---- to become CUPTI's subscriber ---- */

/* The subscription is a lock that only one tool has: nothing of another one's is touched before we
 * have it. */
static int subscribe(void)
{
	struct cupti *c = &target.cupti;
	char holder[CUPTI_NAME_MIN + 1] = "";
	struct cupti_subscriber_params p = { sizeof(p), "tokenlag", holder, CUPTI_NAME_MIN };
	int ret;

	target__say("waiting for cuptiSubscribe: the first one in a process can take 15 s");
	guard__enter(&target.guard, "cuptiSubscribe", SUBSCRIBE_TIMEOUT_MS);
	if (c->subscribe_v2)
		ret = c->subscribe_v2(&target.subscriber, launches__on_callback, NULL, &p);
	else
		ret = c->subscribe(&target.subscriber, launches__on_callback, NULL);
	if (!guard__leave(&target.guard))
		return -ECANCELED;
	if (!ret) {
		target__say("%s", "");
		return 0;
	}
	target.subscriber = NULL;
	target.ring.shared->error = ret;
	if (ret == CUPTI_BUSY || ret == CUPTI_LIMIT)
		target__say("CUPTI is held by another tool%s%.64s", holder[0] ? ": " : "", holder);
	else
		target__say("cuptiSubscribe failed with %d", ret);
	return -EBUSY;
}

static int attach(void)
{
	struct tl_ring *shared = target.ring.shared;
	char why[sizeof(shared->why)];
	int err;

	if (!target.cupti.lib) {
		err = cupti__find(&target.cupti, why, sizeof(why));
		shared->cupti_version = target.cupti.version;
		if (err) {
			target.cupti.lib = NULL;
			target__say("%s", why);
			return err;
		}
	}
	shared->cupti_version = target.cupti.version;
	err = buffers__open(&target.buffers);
	if (err) {
		target__say("no memory for CUPTI's buffers");
		return err;
	}
	/* Ids of a session before would hide these. */
	memset(target.seen, 0, sizeof(target.seen));
	err = subscribe();
	if (err)
		return err;
	err = GUARDED("cuptiActivityRegisterCallbacks",
		      target.cupti.register_callbacks(records__on_request, records__on_complete));
	if (err)
		return err;
	guard__enter(&target.guard, "cuptiEnableCallback", CALL_TIMEOUT_MS);
	/* 11.8 has no such domain: its refusal is not missed. */
	target.cupti.enable_callback(1, target.subscriber, CUPTI_STATE, CUPTI_FATAL_ERROR);
	return guard__leave(&target.guard) ? 0 : -ECANCELED;
}

/* ---- a window ---- */

static int disable_kinds(uint32_t level)
{
	size_t n;
	const uint32_t *kinds = kinds_of(level, &n);
	int ret, last = 0;

	for (size_t i = 0; i < n; i++) {
		guard__enter(&target.guard, "cuptiActivityDisable", CALL_TIMEOUT_MS);
		ret = target.cupti.disable(kinds[i]);
		if (!guard__leave(&target.guard))
			return -ECANCELED;
		if (ret)
			last = ret;
	}
	return last ? -EIO : 0;
}

static int enable_kinds(uint32_t level)
{
	size_t n;
	const uint32_t *kinds = kinds_of(level, &n);
	int ret;

	for (size_t i = 0; i < n; i++) {
		guard__enter(&target.guard, "cuptiActivityEnable", CALL_TIMEOUT_MS);
		ret = target.cupti.enable(kinds[i]);
		if (!guard__leave(&target.guard))
			return -ECANCELED;
		if (ret && kinds[i] != CUPTI_MEMSET && kinds[i] != CUPTI_OVERHEAD) {
			target.ring.shared->error = ret;
			target__say("CUPTI refused records of kind %u with error %d", kinds[i],
				    ret);
			disable_kinds(level);
			return -EIO;
		}
	}
	return 0;
}

/* Launches, and no record of them for a while. */
static bool is_silent(uint64_t now)
{
	const struct window *w = &target.window;

	return w->n_launches >= DEAD_LAUNCHES && !w->n_device && !w->n_bad &&
	       !__atomic_load_n(&w->n_captures, __ATOMIC_RELAXED) &&
	       now - w->first_launch_ns >= DEAD_NS;
}

static int judge(uint64_t now)
{
	struct window *w = &target.window;
	uint64_t bad, records;

	if (__atomic_load_n(&target.fatal, __ATOMIC_ACQUIRE))
		return -EPIPE;
	launches__count();
	if (w->n_launches && !w->first_launch_ns)
		w->first_launch_ns = now;
	bad = w->n_bad - w->judged_bad;
	records = w->n_records - w->judged_records;
	if (bad >= BAD_RECORDS && bad * 10 >= records) {
		target__say("CUPTI gives impossible times: %llu of the last %llu records",
			    (unsigned long long)bad, (unsigned long long)records);
		return -EBADMSG;
	}
	if (records >= 10 * BAD_RECORDS) {
		w->judged_bad = w->n_bad;
		w->judged_records = w->n_records;
	}
	if (target.cupti.version < CUPTI_12_6 &&
	    __atomic_load_n(&target.any_graphs, __ATOMIC_RELAXED)) {
		target__say(
			"CUDA graphs with a CUPTI older than 12.6 (%u) are not safe to attach to",
			target.cupti.version);
		return -ENOTSUP;
	}
	return 0;
}

/* Before 12.6, records of graphs that were made before we came have crashed targets: see whether
 * there are any, by callbacks alone. */
static int look_for_graphs(void)
{
	int err = 0;

	if (target.cupti.version >= CUPTI_12_6)
		return 0;
	for (int ms = 0; !err && ms < LOOK_MS; ms += 10) {
		sleep_ms(10);
		err = judge(now_ns());
	}
	return err;
}

int window__begin(uint32_t level)
{
	int err;

	if (!target.subscriber) {
		err = attach();
		if (err)
			return err;
	}
	launches__count();	/* of a callback that was late: not this window's */
	target.window = (struct window){ .level = level, .begin_ns = now_ns(),
					 .discarded_bytes = target.buffers.discarded_bytes };
	target.window.flush_ns = target.window.begin_ns;
	ring__prepare(&target.ring);
	clocks__reset(&target.clocks);	/* its clock settles with the first record of a session */
	records__mark(TL_CLOCK_OPENS | (level == TL_ORDER_GRAPH ? TL_CLOCK_GRAPHS : 0));
	__atomic_store_n(&target.level, level, __ATOMIC_RELEASE);
	err = launches__enable(true, level);
	if (err < 0)
		return err;
	err = look_for_graphs();
	if (err)
		return err;
	err = enable_kinds(level);
	if (err)
		return err;
	return records__read_clock(false);
}

/* Never before CUPTI asked for a buffer: it has waited for ever then. */
static int flush(uint32_t flags)
{
	if (!__atomic_load_n(&target.buffers.n_asked, __ATOMIC_RELAXED))
		return 0;
	return GUARDED("cuptiActivityFlushAll", target.cupti.flush_all(flags));
}

static int ask_dropped(void)
{
	size_t n = 0;
	int err;

	if (!target.cupti.n_dropped)
		return 0;
	err = GUARDED("cuptiActivityGetNumDroppedRecords", target.cupti.n_dropped(NULL, 0, &n));
	if (!err)
		ring_count(&target.ring.shared->n_cupti_dropped, n);
	return err == -ECANCELED ? err : 0;
}

int window__tick(void)
{
	const struct tl_ring *shared = target.ring.shared;
	struct window *w = &target.window;
	uint64_t now = now_ns(), flush_ms = shared->flush_ms ? shared->flush_ms : DEFAULT_FLUSH_MS;
	uint64_t max_ms = shared->max_window_ms ? shared->max_window_ms : DEFAULT_WINDOW_MS;
	uint64_t max_records = shared->max_records ? shared->max_records : DEFAULT_RECORDS;
	int err = 0;

	if (now - target.last_pair_ns >= PAIR_NS)
		err = records__read_clock(true);
	if (!err && now - w->flush_ns >= flush_ms * 1000000) {
		w->flush_ns = now;
		err = flush(0);
		if (!err)
			err = ask_dropped();
	}
	if (!err)
		err = records__drain();
	if (!err)
		err = judge(now);
	if (err)
		return err;
	/* A flush that is not forced may bring nothing while a device always has work that is not
	 * done: the end of the window will tell. */
	return w->n_records >= max_records || now - w->begin_ns >= max_ms * 1000000 || is_silent(now);
}

/* Off first, then what is left: whole buffers by themselves, at last those with work that is not
 * done. */
static int collect_rest(void)
{
	int err = flush(0);

	for (int i = 0; !err && i < MAX_SETTLE; i++) {
		err = records__drain();
		if (err || !__atomic_load_n(&target.buffers.n_out, __ATOMIC_RELAXED))
			return err;
		sleep_ms(SETTLE_MS);
		err = flush(0);
	}
	target.window.closing = true;
	if (!err)
		err = flush(CUPTI_FORCED);
	if (!err) {
		sleep_ms(SETTLE_MS);
		err = records__drain();
	}
	return err;
}

/* Threads that were inside a callback when it was switched off. */
static void wait_drained(void)
{
	for (int i = 0; i < DRAIN_WAIT_MS && !launches__drained(); i++)
		sleep_ms(1);
}

int window__end(void)
{
	uint32_t level = target.window.level;
	int err, off_err;

	if (!level)
		return 0;
	records__mark(TL_CLOCK_CLOSES);
	err = disable_kinds(level);
	__atomic_store_n(&target.level, 0, __ATOMIC_RELEASE);
	off_err = launches__enable(false, level);
	if (off_err == -ECANCELED || err == -ECANCELED)
		return -ECANCELED;
	wait_drained();
	launches__count();
	err = collect_rest();
	if (!err)
		err = ask_dropped();
	if (!err && target.window.n_launches >= DEAD_LAUNCHES)
		err = judge(now_ns());
	/* Silence is not idleness: some CUPTIs collect nothing after an empty
	 * session, and report success. */
	if (!err && is_silent(target.window.first_launch_ns + DEAD_NS)) {
		target__say("collection is dead: %llu launches gave no record",
			    (unsigned long long)target.window.n_launches);
		err = -ENODATA;
	}
	target.window.level = 0;
	return err;
}

/* ---- to leave ---- */

static int detach_in_exit(void)
{
	bool simulated;
	int err = GUARDED(
		"cuptiEnableCallback",
		target.cupti.enable_callback(1, target.subscriber, CUPTI_DRIVER, CUPTI_TOUCH));

	if (err)
		return err;
	__atomic_store_n(&target.detach_thread, (uint64_t)pthread_self(), __ATOMIC_RELEASE);
	guard__enter(&target.guard, "cuptiFinalize", CALL_TIMEOUT_MS);
	cupti__touch_cuda(&simulated);
	if (!guard__leave(&target.guard))
		return -ECANCELED;
	/* Still set: the callback did not come. */
	return __atomic_exchange_n(&target.detach_thread, 0, __ATOMIC_ACQ_REL) ? -EAGAIN : 0;
}

int window__let_go(void)
{
	int err = -EAGAIN;

	if (!target.subscriber)
		return 0;
	if (target.cupti.finalize && target.cupti.version >= CUPTI_12_6) {
		target__say("waiting for cuptiFinalize");
		err = detach_in_exit();
		if (err == -ECANCELED)
			return err;
	}
	if (err) {
		guard__enter(&target.guard, "cuptiUnsubscribe", CALL_TIMEOUT_MS);
		target.cupti.unsubscribe(target.subscriber);
		if (!guard__leave(&target.guard))
			return -ECANCELED;
	}
	target.subscriber = NULL;
	__atomic_store_n(&target.off, 1, __ATOMIC_SEQ_CST);
	wait_drained();
	return err ? 1 : 0;
}
