/* SPDX-License-Identifier: Apache-2.0 */
/* What a probe costs on this machine: functions of this very process are probed
 * for a moment, and called. */
#include "source/cuda_priv.h"

#include "source/bpf_priv.h"
#include "source/proc.h"

#include <unistd.h>

/* So few calls that their discarded events find room in any ring. */
enum { BLOCKS = 6, CALLS = 32 };

/* One begins with an instruction that the kernel emulates, the other with one
 * that it has to single-step. */
__asm__(".text\n.type cuda_price_push, @function\ncuda_price_push:\n"
	"	push %rbp\n	pop %rbp\n	ret\n.size cuda_price_push, 3\n"
	".type cuda_price_sub, @function\ncuda_price_sub:\n"
	"	sub $8, %rsp\n	add $8, %rsp\n	ret\n.size cuda_price_sub, 9\n");
void cuda_price_push(const void *args);
void cuda_price_sub(const void *args);

/* Others run here, too: the best block is the one that they left alone. */
static uint32_t time_calls(void (*fn)(const void *args))
{
	static const char args[64];	/* what the program reads of its arguments */
	uint64_t best = UINT64_MAX;

	for (int b = 0; b < BLOCKS; b++) {
		uint64_t begin = monotonic_ns(), ns;

		for (int i = 0; i < CALLS; i++)
			fn(args);
		ns = (monotonic_ns() - begin) / CALLS;
		best = ns < best ? ns : best;
	}
	return best;
}

struct finder {
	uint64_t addr;
	struct proc_map map;
};

static int on_map(void *ctx, const struct proc_map *map)
{
	struct finder *f = ctx;

	if (f->addr < map->start || f->addr >= map->end)
		return 0;
	f->map = *map;
	return 1;
}

static uint32_t price_of(struct bpf_program *prog, bool multi, uint64_t cookie,
			 void (*fn)(const void *args))
{
	struct finder f = { .addr = (uintptr_t)fn };
	struct bpf_uprobe_place place = { .cookie = cookie };
	uint32_t bare, probed = 0;
	struct bpf_uprobe probe;
	char path[512];
	size_t n;
	int fd;

	if (proc_each_exec_map(getpid(), on_map, &f) != 1)
		return 0;
	fd = proc_open_map(getpid(), &f.map, path, sizeof(path));
	if (fd < 0)
		return 0;
	place.offset = f.addr - f.map.start + f.map.offset;
	bare = time_calls(fn);
	if (bpf_uprobe_attach_all(prog, multi, getpid(), fd, &place, 1, false, &probe, &n) == 1) {
		probed = time_calls(fn);
		bpf_uprobe_detach(&probe, n);
	}
	close(fd);
	return probed > bare ? probed - bare : 0;
}

void cuda_price_measure(struct bpf_program *prog, bool multi, uint64_t cookie,
			volatile uint32_t *mode, struct cuda_price *ret)
{
	*mode = CUDA_COUNTED;
	ret->counted_ns = price_of(prog, multi, cookie, cuda_price_push);
	*mode = CUDA_EACH;
	ret->cheap_ns = price_of(prog, multi, cookie, cuda_price_push);
	ret->dear_ns = price_of(prog, multi, cookie, cuda_price_sub);
}
