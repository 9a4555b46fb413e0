/* SPDX-License-Identifier: Apache-2.0 */
/* Where an interpreter keeps what is written to have it run a script, as it says itself. Pure. */
#ifndef TL_SOURCE_PEP768_LAYOUT_H
#define TL_SOURCE_PEP768_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum {
	PEP768_TABLE_BYTES = 95 * 8,	/* at the begin of section .PyRuntime of CPython 3.14 */
	PEP768_MIN_PATH = 128, PEP768_MAX_PATH = 4096,
};

/* Offsets, in bytes; all lie within the struct they belong to. */
struct pep768_layout {
	/* Of the runtime, which is the section. */
	uint32_t finalizing, interpreters_head;
	uint32_t id, next, threads_main, may_debug;		/* of an interpreter */
	uint32_t interp, native_id, eval_breaker, pending, path;	/* of a thread */
	uint32_t path_bytes;
};

/* -ENOENT: it is no Python that knows of scripts; -ENOTSUP: it is one that we do not give any, and
 * `why` says which; -EPROTO: what it says of itself cannot be true. `why` continues a sentence. */
int pep768_layout__parse(const void *table, size_t len, uint64_t section_bytes,
			 struct pep768_layout *ret, char why[96]);

#endif
