/* SPDX-License-Identifier: Apache-2.0 */
/* What `doctor` asks: which probes would work here, without capturing anything. */
#ifndef TL_PROBE_CHECK_H
#define TL_PROBE_CHECK_H

#include "source/bpf.h"
#include <stdint.h>
#include <sys/types.h>

/*
 * Calls `say` once per row of probes[], in its order, with the row's name, 0 or -errno, and a
 * reason that stands on its own ("libllama.so + 0x4a10, first instruction is a push", "no symbol
 * llama_process in any mapped file: stripped, or another engine"). System-wide rows are loaded and
 * attached for a moment with an empty set of targets; user-space rows are looked up in the files
 * that `pid` maps and their programs are loaded, but no breakpoint is written.
 * pid 0: rows of the system only. engine: enum tl_engine_kind; 0: rows of every engine.
 * Returns the number of rows that would work, or -errno if nothing could be asked.
 */
int probe_check(pid_t pid, uint16_t engine, probe_say say, void *ctx);

#endif
