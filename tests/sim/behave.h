/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases of behave.c have in common: a small client of CUPTI, and a program that launches. */
#ifndef TL_SIM_BEHAVE_H
#define TL_SIM_BEHAVE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "cupti.h"

#define CHECK(what)                                                                              \
	do {                                                                                     \
		if (!(what)) {                                                                   \
			printf("# %s:%d: not so: %s\n", __FILE__, __LINE__, #what);              \
			exit(1);                                                                 \
		}                                                                                \
	} while (0)

/* Calls a function of either library; all of these give an int. */
#define CALL(name, types, ...) ((int (*) types)behave_sym(#name))(__VA_ARGS__)

void *behave_sym(const char *name);

struct behave_got {		/* so far */
	uint32_t n[K_MAX], n_zero, n_unended, n_backwards, n_buffers, n_requests, n_calls, n_state;
	uint32_t last_corr, call_corr, refuse;
	uint64_t first_start, last_end;
	pthread_t requester;
	int finalize;
	FILE *keep;		/* raw buffers, each behind its length */
};
extern struct behave_got got;
extern void *behave_cupti;	/* the library */
extern void *stream, *handle;
extern uint64_t dur_ns;		/* of the kernels that launch() makes */

int subscribe(void);
void enable(uint32_t kind);
void flush(int forced);
void start_cuda(void);
void on(uint32_t kind);		/* start, subscribe, enable */
void listen_to_launches(void);
void launch(void);
void launches(int n);
void finish(void);		/* waits for all launches */
void *make_graph(void);		/* of five kernels */
void launch_graph(void *exec);
void cupti_callback(void *ctx, uint32_t domain, uint32_t cbid, const void *data);

struct behave_case {
	const char *name;
	void (*run)(void);
};
extern const struct behave_case cases[];	/* the last has no name */

#endif
