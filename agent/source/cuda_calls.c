/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libcuda that are probed, where their arguments are, and
 * where in a file they begin. */
#include "source/cuda_priv.h"

#include "base/util.h"
#include "source/elfsyms.h"
#include "source/insn_x86_64.h"
#include "tl_event.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CODE_BYTES = 64 };

/* All names that a function may have: with default streams of the thread
 * (_ptsz, _ptds) or without. */
enum forms { PLAIN = 0, PTSZ = 1, PTDS = 2 };

struct cuda_call {
	const char *name;
	uint8_t group, call;		/* enum cuda_group, tl_gpu_call */
	uint8_t forms;
	uint8_t stream, what, bytes;	/* places as in cuda_tally.h */
	uint8_t flags;			/* enum tl_launch_flag */
	bool rare;			/* a server's steps can do without */
};

#define TO TL_LAUNCH_TO
#define FROM TL_LAUNCH_FROM
#define WAITS TL_LAUNCH_WAITS

/* clang-format off */
static const struct cuda_call calls[] = {
	{ "cuGraphLaunch", CUDA_LAUNCHES, TL_CALL_GRAPH, PTSZ, 2, 1, 0, 0, false },
	/* (function, three of grid, three of block, shared memory, stream, ...) */
	{ "cuLaunchKernel", CUDA_KERNELS, TL_CALL_KERNEL, PTSZ, 9, 1, 0, 0, false },
	{ "cuLaunchCooperativeKernel", CUDA_KERNELS, TL_CALL_KERNEL, PTSZ, 9, 1, 0, 0, false },
	{ "cuLaunchKernelEx", CUDA_KERNELS, TL_CALL_KERNEL, PTSZ, CUDA_CONFIG, 2, 0, 0, false },

	{ "cuStreamSynchronize", CUDA_TIMED, TL_CALL_SYNC, PTSZ, 1, 0, 0, 0, false },
	{ "cuEventSynchronize", CUDA_TIMED, TL_CALL_SYNC, PLAIN, 0, 1, 0, 0, false },
	{ "cuCtxSynchronize", CUDA_TIMED, TL_CALL_SYNC, PLAIN, 0, 0, 0, 0, false },
	{ "cuCtxSynchronize_v2", CUDA_TIMED, TL_CALL_SYNC, PLAIN, 0, 1, 0, 0, true },

	/* Towards the host the call waits, if the memory there is pageable. */
	{ "cuMemcpyHtoDAsync_v2", CUDA_LAUNCHES, TL_CALL_COPY, PTSZ, 4, 0, 3, TO, false },
	{ "cuMemcpyDtoDAsync_v2", CUDA_LAUNCHES, TL_CALL_COPY, PTSZ, 4, 0, 3, 0, true },
	{ "cuMemcpyPeerAsync", CUDA_LAUNCHES, TL_CALL_COPY, PTSZ, 6, 0, 5, 0, true },
	{ "cuMemcpy2DAsync_v2", CUDA_LAUNCHES, TL_CALL_COPY, PTSZ, 2, 0, 0, 0, true },
	{ "cuMemcpy3DAsync_v2", CUDA_LAUNCHES, TL_CALL_COPY, PTSZ, 2, 0, 0, 0, true },
	{ "cuMemcpyBatchAsync", CUDA_LAUNCHES, TL_CALL_COPY, PTSZ, 9, 0, 0, 0, true },
	{ "cuMemcpyBatchAsync_v2", CUDA_LAUNCHES, TL_CALL_COPY, PTSZ, 8, 0, 0, 0, true },
	{ "cuMemcpyDtoHAsync_v2", CUDA_TIMED, TL_CALL_COPY, PTSZ, 4, 0, 3, FROM, false },
	{ "cuMemcpyAsync", CUDA_TIMED, TL_CALL_COPY, PTSZ, 4, 0, 3, 0, false },
	{ "cuMemcpyHtoD_v2", CUDA_TIMED, TL_CALL_COPY, PTDS, 0, 0, 3, TO | WAITS, false },
	{ "cuMemcpyDtoH_v2", CUDA_TIMED, TL_CALL_COPY, PTDS, 0, 0, 3, FROM | WAITS, false },
	{ "cuMemcpyDtoD_v2", CUDA_TIMED, TL_CALL_COPY, PTDS, 0, 0, 3, WAITS, true },
	{ "cuMemcpy", CUDA_TIMED, TL_CALL_COPY, PTDS, 0, 0, 3, WAITS, true },
	{ "cuMemcpyPeer", CUDA_TIMED, TL_CALL_COPY, PTDS, 0, 0, 5, WAITS, true },
	{ "cuMemcpy2D_v2", CUDA_TIMED, TL_CALL_COPY, PTDS, 0, 0, 0, WAITS, true },
	{ "cuMemcpy2DUnaligned_v2", CUDA_TIMED, TL_CALL_COPY, PTDS, 0, 0, 0, WAITS, true },
	{ "cuMemcpy3D_v2", CUDA_TIMED, TL_CALL_COPY, PTDS, 0, 0, 0, WAITS, true },

	{ "cuMemAlloc_v2", CUDA_TIMED, TL_CALL_ALLOC, PLAIN, 0, 0, 2, 0, true },
	{ "cuMemAllocManaged", CUDA_TIMED, TL_CALL_ALLOC, PLAIN, 0, 0, 2, 0, true },
	{ "cuMemAllocAsync", CUDA_TIMED, TL_CALL_ALLOC, PTSZ, 3, 0, 2, 0, true },
	{ "cuMemAllocFromPoolAsync", CUDA_TIMED, TL_CALL_ALLOC, PTSZ, 4, 0, 2, 0, true },
	{ "cuMemCreate", CUDA_TIMED, TL_CALL_ALLOC, PLAIN, 0, 0, 2, 0, true },
	{ "cuMemFree_v2", CUDA_TIMED, TL_CALL_ALLOC, PLAIN, 0, 1, 0, TL_LAUNCH_FREE, true },
	{ "cuMemFreeAsync", CUDA_TIMED, TL_CALL_ALLOC, PTSZ, 2, 1, 0, TL_LAUNCH_FREE, true },
	{ "cuMemRelease", CUDA_TIMED, TL_CALL_ALLOC, PLAIN, 0, 1, 0, TL_LAUNCH_FREE, true },

	{ "cuModuleLoad", CUDA_TIMED, TL_CALL_LOAD, PLAIN, 0, 0, 0, 0, true },
	{ "cuModuleLoadData", CUDA_TIMED, TL_CALL_LOAD, PLAIN, 0, 0, 0, 0, true },
	{ "cuModuleLoadDataEx", CUDA_TIMED, TL_CALL_LOAD, PLAIN, 0, 0, 0, 0, true },
	{ "cuModuleLoadFatBinary", CUDA_TIMED, TL_CALL_LOAD, PLAIN, 0, 0, 0, 0, true },
	{ "cuLibraryLoadData", CUDA_TIMED, TL_CALL_LOAD, PLAIN, 0, 0, 0, 0, true },
	{ "cuLibraryLoadFromFile", CUDA_TIMED, TL_CALL_LOAD, PLAIN, 0, 0, 0, 0, true },
};
/* clang-format on */

static uint64_t cookie_of(const struct cuda_call *c, uint16_t slot)
{
	return (uint64_t)c->call << CUDA_CALL_SHIFT | (uint64_t)c->stream << CUDA_STREAM_SHIFT |
	       (uint64_t)c->what << CUDA_WHAT_SHIFT | (uint64_t)c->bytes << CUDA_BYTES_SHIFT |
	       (uint64_t)c->flags << CUDA_FLAGS_SHIFT | (uint64_t)slot << CUDA_SLOT_SHIFT;
}

uint64_t cuda_trial_cookie(void)
{
	const struct cuda_call launch = { .call = TL_CALL_KERNEL, .stream = 9, .what = 1 };

	return cookie_of(&launch, CUDA_TRIAL_SLOT) | 1ull << CUDA_TRIAL_SHIFT;
}

/* How many registers with arguments have to be as the caller left them. */
static unsigned n_registers(const struct cuda_call *c)
{
	const uint8_t places[] = { c->stream, c->what, c->bytes };
	unsigned n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		unsigned at = places[i] == CUDA_CONFIG ? 1 : places[i];

		n = at <= 6 && at > n ? at : n;
	}
	return n;
}

/* Several names may be one function. */
static bool has_place(const struct cuda_places *p, uint64_t offset)
{
	for (int g = 0; g < N_CUDA_GROUPS; g++) {
		for (size_t i = 0; i < p->n[g]; i++) {
			if (p->at[g][i].offset == offset)
				return true;
		}
	}
	return false;
}

static void add_place(const struct elfsyms *e, const struct cuda_call *c, const char *name,
		      uint16_t slot, struct cuda_places *p)
{
	struct probe_place place;
	uint8_t code[CODE_BYTES];
	uint64_t offset;
	Elf64_Sym sym;
	ssize_t len;

	if (p->n[c->group] == CUDA_MAX_PLACES || elfsyms_find(e, name, &sym) ||
	    ELF64_ST_TYPE(sym.st_info) != STT_FUNC || elfsyms_code_offset(e, sym.st_value, &offset))
		return;
	/* Also brings the page in: ext4 warns when the kernel has to read it for the breakpoint. */
	len = pread(e->fd, code, sizeof(code), offset);
	if (len < 0)
		return;
	insn_x86_64_place(code, len, n_registers(c), &place);
	if (has_place(p, offset + place.offset))
		return;
	p->at[c->group][p->n[c->group]++] = (struct bpf_uprobe_place){
		offset + place.offset, cookie_of(c, slot) | (uint64_t)!place.cheap << CUDA_DEAR_SHIFT };
	if (place.cheap)
		return;
	p->n_dear[c->group]++;
	if (!p->dear_insn) {
		snprintf(p->dear, sizeof(p->dear), "%s", name);
		p->dear_insn = place.insn;
	}
}

int cuda_places_find(int fd, uint16_t slot, bool few, struct cuda_places *ret)
{
	struct elfsyms e;
	char name[48];
	size_t n = 0;
	int err = elfsyms_open(fd, &e);

	if (err)
		return err;
	*ret = (struct cuda_places){ 0 };
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		const struct cuda_call *c = &calls[i];

		if (few && c->rare)
			continue;
		add_place(&e, c, c->name, slot, ret);
		if (c->forms == PLAIN)
			continue;
		snprintf(name, sizeof(name), "%s%s", c->name, c->forms == PTSZ ? "_ptsz" : "_ptds");
		add_place(&e, c, name, slot, ret);
	}
	for (int g = 0; g < N_CUDA_GROUPS; g++)
		n += ret->n[g];
	return n ? 0 : -ENOENT;
}

bool cuda_is_library(const char *path)
{
	const char *slash = strrchr(path, '/');

	return !strncmp(slash ? slash + 1 : path, "libcuda.so", strlen("libcuda.so"));
}
