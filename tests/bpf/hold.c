/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A capture for scripts to look at.
 *
 *   hold           captures itself with everything attached, until it is killed
 *   hold target    runs engine steps, until it is killed
 *   hold PID       captures that process until it saw three steps of it
 */
#include "source/bpf.h"
#include "tl_event.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_POLLS = 300 };	/* of 100 ms */

/* A function to put a probe on. */
int llama_process(void *ctx, int type, void *batch);

__attribute__((noipa)) int llama_process(void *ctx, int type, void *batch)
{
	(void)ctx, (void)batch;
	return type;
}

static void run_steps(void)
{
	for (;;) {
		llama_process(NULL, 1, NULL);
		usleep(1000);
	}
}

static void say(void *ctx, const char *probe, int err, const char *reason)
{
	(void)ctx, (void)probe, (void)err, (void)reason;
}

static int count_steps(void *ctx, const struct tl_hdr *ev)
{
	*(int *)ctx += ev->kind == TL_RAW_LLAMA_STEP;
	return 0;
}

int main(int argc, char **argv)
{
	const struct src_bpf_opts opts = { .ring_bytes = 64 << 10 };
	const struct emit out = { count_steps, &(int){ 0 } };
	int pid = argc > 1 ? atoi(argv[1]) : getpid();
	struct src_bpf *s;
	const char *why;

	if (argc > 1 && !strcmp(argv[1], "target"))
		run_steps();
	if (src_bpf__open(&opts, &s, &why)) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	if (src_bpf__add_target(s, pid) ||
	    src_bpf__attach_engine(s, pid, TL_ENGINE_LLAMA, say, NULL) != 2) {
		fprintf(stderr, "the two probes could not be attached\n");
		return 2;
	}
	printf("ready\n");
	fflush(stdout);
	if (argc == 1)
		run_steps();
	for (int i = 0; i < MAX_POLLS && *(int *)out.ctx < 3; i++)
		src_bpf__poll(s, &out, 100);
	src_bpf__close(s);
	return *(int *)out.ctx >= 3 ? 0 : 3;
}
