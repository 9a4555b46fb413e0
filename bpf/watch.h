/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the agent may want to know of a thread besides its waits for a CPU. */
#ifndef TL_WATCH_H
#define TL_WATCH_H

/* Bit n, for n below 8: sleeps of enum tl_wait n. */
enum watch {
	WATCH_RUN = 1 << 8,	/* long runs without a break */
	WATCH_CODE = 1 << 9,	/* samples of its stack in long runs */
};

#endif
