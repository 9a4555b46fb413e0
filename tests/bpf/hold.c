/* SPDX-License-Identifier: Apache-2.0 */
/* Captures itself with everything attached, until it is killed: t_kill looks at what is left. */
#include "source/bpf.h"
#include "tl_event.h"
#include <stdio.h>
#include <unistd.h>

/* A function to put a probe on. */
int llama_process(void *ctx, int type, void *batch);

__attribute__((noipa)) int llama_process(void *ctx, int type, void *batch)
{
	(void)ctx, (void)batch;
	return type;
}

static void say(void *ctx, const char *probe, int err, const char *reason)
{
	(void)ctx, (void)probe, (void)err, (void)reason;
}

int main(void)
{
	const struct src_bpf_opts opts = { .ring_bytes = 64 << 10 };
	struct src_bpf *s;
	const char *why;

	if (src_bpf__open(&opts, &s, &why)) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	if (src_bpf__add_target(s, getpid()) ||
	    src_bpf__attach_engine(s, getpid(), TL_ENGINE_LLAMA, say, NULL) != 2)
		return 2;
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		llama_process(NULL, 1, NULL);
		usleep(1000);
	}
}
