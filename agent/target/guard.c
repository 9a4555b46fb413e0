/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog's thread: sleeps on a futex until a call begins, then until it is due. While it
 * sleeps so, it need not be told of calls that are due later: there are hundreds in a second. */
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "glibc_old.h"
#include "guard.h"

#define GUARD_FIRED UINT64_MAX
enum {
	STACK_BYTES = 1 << 20,	/* CUPTI sets itself up on our stack */
	LATE_NS = 400000000, MORE_NS = 50000000, MAX_MORE = 8,
};

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Without what others did on our CPU meanwhile. */
uint64_t own_time_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void sleep_ms(uint32_t ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&t, NULL);	/* no signal comes here */
}

/* The target's handlers run on the target's threads only. */
int start_thread(pthread_t *ret, void *(*fn)(void *), void *ctx)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;
	int err;

	err = pthread_attr_init(&attr);
	if (err)
		return -err;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (!ret)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	err = pthread_create(ret ? ret : &thread, &attr, fn, ctx);
	sigprocmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

static void futex_wait(uint32_t *at, uint32_t value, uint64_t ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, ns ? &t : NULL, NULL, 0);
}

static void changed(struct guard *g)
{
	__atomic_fetch_add(&g->turn, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &g->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* A process that was stopped (a signal, a frozen container), or had no CPU, goes on behind the
 * deadlines of all calls, and whoever is first sees it: such a call begins anew. One that hangs
 * does so while we are in time. 0: it hangs. */
static uint64_t more_ns(const struct guard *g, uint64_t late_ns)
{
	uint32_t n = __atomic_load_n(&g->n_more, __ATOMIC_RELAXED);

	if (late_ns > LATE_NS && n < MAX_MORE)
		return __atomic_load_n(&g->timeout_ns, __ATOMIC_RELAXED);
	return n ? 0 : MORE_NS;
}

static void *watch(void *ctx)
{
	struct guard *g = ctx;

	prctl(PR_SET_NAME, "tokenlag-watch");
	while (!__atomic_load_n(&g->stop, __ATOMIC_ACQUIRE)) {
		uint32_t turn = __atomic_load_n(&g->turn, __ATOMIC_ACQUIRE);
		uint64_t due = __atomic_load_n(&g->deadline_ns, __ATOMIC_SEQ_CST);
		uint64_t now = now_ns(), more;

		if (!due || now < due) {
			/* Whoever begins a call sets its deadline, then looks at wakes_ns: one of
			 * us sees what the other wrote. */
			__atomic_store_n(&g->wakes_ns, due ? due : UINT64_MAX, __ATOMIC_SEQ_CST);
			if (__atomic_load_n(&g->deadline_ns, __ATOMIC_SEQ_CST) == due &&
			    !__atomic_load_n(&g->stop, __ATOMIC_ACQUIRE))
				futex_wait(&g->turn, turn, due ? due - now : 0);
			continue;
		}
		more = more_ns(g, now - due);
		if (!__atomic_compare_exchange_n(&g->deadline_ns, &due, more ? now + more : GUARD_FIRED, false,
						 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		__atomic_fetch_add(&g->n_more, 1, __ATOMIC_RELAXED);
		if (!more) {
			g->on_hang(g->call);
			break;
		}
	}
	return NULL;
}

int guard__start(struct guard *g, void (*on_hang)(const char *call))
{
	*g = (struct guard){ .wakes_ns = UINT64_MAX, .on_hang = on_hang };
	return start_thread(&g->thread, watch, g);
}

void guard__stop(struct guard *g)
{
	__atomic_store_n(&g->stop, 1, __ATOMIC_RELEASE);
	changed(g);
	pthread_join(g->thread, NULL);
}

void guard__enter(struct guard *g, const char *call, uint32_t timeout_ms)
{
	uint64_t due = now_ns() + timeout_ms * 1000000ull;

	g->call = call;
	__atomic_store_n(&g->n_more, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&g->timeout_ns, timeout_ms * 1000000ull, __ATOMIC_RELAXED);
	__atomic_store_n(&g->deadline_ns, due, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&g->wakes_ns, __ATOMIC_SEQ_CST) > due)
		changed(g);
}

bool guard__leave(struct guard *g)
{
	return __atomic_exchange_n(&g->deadline_ns, 0, __ATOMIC_ACQ_REL) != GUARD_FIRED;
}
