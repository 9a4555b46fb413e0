/* SPDX-License-Identifier: Apache-2.0 */
/* A watchdog for calls into CUPTI: one that does not return in time is given up, with all of
 * CUPTI. */
#ifndef TL_TARGET_GUARD_H
#define TL_TARGET_GUARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct guard {
	uint64_t deadline_ns;	/* of the call under way; 0: none, GUARD_FIRED: given up */
	uint64_t wakes_ns;	/* when the watchdog looks by itself, UINT64_MAX: never */
	uint32_t turn;		/* futex: something changed */
	uint32_t stop;
	uint32_t n_more;	/* how often this call got more time */
	uint64_t timeout_ns;	/* of this call */
	const char *call;
	void (*on_hang)(const char *call);	/* by the watchdog's thread, its last act */
	pthread_t thread;
};

int guard__start(struct guard *g, void (*on_hang)(const char *call));
void guard__stop(struct guard *g);	/* waits for its thread */

void guard__enter(struct guard *g, const char *call, uint32_t timeout_ms);
bool guard__leave(struct guard *g);	/* false: it was given up meanwhile, so stop at once */

uint64_t now_ns(void);			/* CLOCK_MONOTONIC */
uint64_t own_time_ns(void);		/* of this thread, on a CPU */
void sleep_ms(uint32_t ms);
/* A small one, without signals; ret NULL: it is not waited for. */
int start_thread(pthread_t *ret, void *(*fn)(void *), void *ctx);

#endif
