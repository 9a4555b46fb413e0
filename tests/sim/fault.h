/* SPDX-License-Identifier: Apache-2.0 */
/* Fault modes of the simulated libraries, by environment, and the clock they share. */
#ifndef TL_SIM_FAULT_H
#define TL_SIM_FAULT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * TL_SIM_FAULT is a list of NAME or NAME=VALUE with commas between.
 *
 *   subscribe_slow[=MS]          the first cuptiSubscribe takes 10 s, or so long
 *   held                         somebody else is subscribed: error 39, TL_SIM_HOLDER is its name
 *   dead_after_empty             after a session without records there are never any, without an error
 *   deaf                         calls succeed, and neither a callback nor a record ever comes
 *   zero_stamps_after=N          start and end are 0 from the n-th record on
 *   flush_deadlock               cuptiActivityFlushAll never returns if no buffer was ever asked for
 *   flush_hang                   ... and never at all
 *   finalize_crash_outside_exit  cuptiFinalize crashes unless called at the exit of a driver call
 *   finalize_hang                cuptiFinalize never returns
 *   memory_growth                device memory shrinks by 32 bytes per record, for good
 *   fork_in_window               while records are wanted, each 1000th launch forks a child that
 *                                launches 3 kernels and leaves
 *   fatal_error=N                CUPTI gives up by itself after N records, and says so (STATE)
 *   corr_wrong                   graph launches of sessions after the first have another's id
 *   whole_buffers                a buffer gets as many records as fit, whatever was asked for
 *   timestamp_corrupt            a second timestamp callback breaks the stamps of 64 records
 *   costly=US                    while each kernel is recorded, each takes so much longer
 *   overhead=US                  each buffer asked for reports so much overhead
 *
 * Symbols are missing in the libraries of build/sim/old; those of build/sim/endbr begin their functions
 * with endbr64.
 */
static inline int sim_fault(const char *name, uint64_t *value)
{
	const char *s = getenv("TL_SIM_FAULT");
	size_t n = strlen(name);

	while (s && *s) {
		size_t len = strcspn(s, ",");

		if (len >= n && !strncmp(s, name, n) && (len == n || s[n] == '=')) {
			if (value && len > n)
				*value = strtoull(s + n + 1, NULL, 0);
			return 1;
		}
		s += len;
		s += *s == ',';
	}
	return 0;
}

static inline uint64_t sim_clock(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline uint64_t sim_now(void)
{
	return sim_clock(CLOCK_MONOTONIC);
}

static inline void sim_sleep_until(uint64_t ns)
{
	struct timespec t = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
		;
}

#endif
