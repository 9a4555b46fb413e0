/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the table of offsets of CPython 3.14, and believes none of them. */
#include "source/pep768_layout.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Index of each in 8-byte words. The table is the same for all releases of 3.14. */
enum {
	W_COOKIE = 0, W_VERSION = 1, W_FREE_THREADED = 2,
	W_RUNTIME_BYTES = 3, W_FINALIZING = 4, W_INTERPRETERS_HEAD = 5,
	W_INTERP_BYTES = 6, W_ID = 7, W_NEXT = 8, W_THREADS_MAIN = 10,
	W_THREAD_BYTES = 22, W_INTERP = 25, W_NATIVE_ID = 28,
	W_EVAL_BREAKER = 89, W_SUPPORT = 90, W_MAY_DEBUG = 91, W_PENDING = 92, W_PATH = 93,
	W_PATH_BYTES = 94, N_WORDS = 95,
};
_Static_assert(N_WORDS * 8 == PEP768_TABLE_BYTES, "one length");
enum { MAX_STRUCT = 64 << 20, FINAL = 0xf, NEWEST = 0x030e };

static bool lies_in(uint64_t at, uint64_t bytes, uint64_t align, uint64_t struct_bytes)
{
	return struct_bytes <= MAX_STRUCT && at % align == 0 && bytes <= struct_bytes &&
	       at <= struct_bytes - bytes;
}

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static int check_version(const uint64_t *w, char why[96])
{
	uint32_t version = w[W_VERSION];

	if (memcmp(&w[W_COOKIE], "xdebugpy", 8) || w[W_VERSION] > UINT32_MAX ||
	    version >> 16 < NEWEST)
		return -ENOENT;
	if (version >> 16 > NEWEST) {
		snprintf(why, 96, "its Python %u.%u is newer than those that scripts are given to",
			 version >> 24, version >> 16 & 0xff);
		return -ENOTSUP;
	}
	if ((version >> 4 & 0xf) != FINAL) {
		snprintf(why, 96, "its Python is no final release: no script is given to such");
		return -ENOTSUP;
	}
	if (w[W_FREE_THREADED]) {
		snprintf(why, 96, "its Python is one without a GIL: no script is given to such");
		return -ENOTSUP;
	}
	return 0;
}

int pep768_layout__parse(const void *table, size_t len, uint64_t section_bytes,
			 struct pep768_layout *ret, char why[96])
{
	uint64_t w[N_WORDS], runtime, interp, thread, pending, path, path_bytes;
	int err;

	if (len < sizeof(w))
		return -ENOENT;
	memcpy(w, table, sizeof(w));
	err = check_version(w, why);
	if (err)
		return err;
	runtime = w[W_RUNTIME_BYTES];
	interp = w[W_INTERP_BYTES];
	thread = w[W_THREAD_BYTES];
	path_bytes = w[W_PATH_BYTES];
	if (runtime < sizeof(w) || runtime > section_bytes ||
	    !lies_in(w[W_FINALIZING], 8, 8, runtime) || w[W_FINALIZING] < sizeof(w) ||
	    !lies_in(w[W_INTERPRETERS_HEAD], 8, 8, runtime) || w[W_INTERPRETERS_HEAD] < sizeof(w) ||
	    !lies_in(w[W_ID], 8, 8, interp) || !lies_in(w[W_NEXT], 8, 8, interp) ||
	    !lies_in(w[W_THREADS_MAIN], 8, 8, interp) || !lies_in(w[W_MAY_DEBUG], 4, 4, interp) ||
	    !lies_in(w[W_INTERP], 8, 8, thread) || !lies_in(w[W_NATIVE_ID], 8, 8, thread) ||
	    !lies_in(w[W_EVAL_BREAKER], 8, 8, thread) || path_bytes < PEP768_MIN_PATH ||
	    path_bytes > PEP768_MAX_PATH || !lies_in(w[W_SUPPORT], 4 + path_bytes, 4, thread))
		goto wrong;
	/* They are of a struct within that of the thread, whose size is not said. */
	if (w[W_PENDING] > thread || w[W_PATH] > thread)
		goto wrong;
	pending = w[W_SUPPORT] + w[W_PENDING];
	path = w[W_SUPPORT] + w[W_PATH];
	if (!lies_in(pending, 4, 4, thread) || !lies_in(path, path_bytes, 1, thread) ||
	    overlap(pending, 4, path, path_bytes) ||
	    overlap(w[W_EVAL_BREAKER], 8, path, path_bytes) ||
	    overlap(w[W_EVAL_BREAKER], 8, pending, 4) ||
	    overlap(w[W_INTERP], 8, path, path_bytes) || overlap(w[W_INTERP], 8, pending, 4) ||
	    overlap(w[W_NATIVE_ID], 8, path, path_bytes) || overlap(w[W_NATIVE_ID], 8, pending, 4))
		goto wrong;
	*ret = (struct pep768_layout){
		.finalizing = w[W_FINALIZING], .interpreters_head = w[W_INTERPRETERS_HEAD],
		.id = w[W_ID], .next = w[W_NEXT], .threads_main = w[W_THREADS_MAIN],
		.may_debug = w[W_MAY_DEBUG], .interp = w[W_INTERP], .native_id = w[W_NATIVE_ID],
		.eval_breaker = w[W_EVAL_BREAKER], .pending = pending, .path = path,
		.path_bytes = path_bytes,
	};
	return 0;
wrong:
	snprintf(why, 96, "what its Python says of its own structs cannot be true");
	return -EPROTO;
}
