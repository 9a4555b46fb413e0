/* SPDX-License-Identifier: Apache-2.0 */
/* Which engine a process is, told from facts that a caller collected. Pure. */
#ifndef TL_RECOGNISE_H
#define TL_RECOGNISE_H

#include "tl_event.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct proc_facts {
	uint32_t pid, ppid;
	uint64_t start_ns;	/* CLOCK_MONOTONIC (boot time corrected), 0: unknown */
	uint32_t uid;
	bool other_mnt_ns, other_pid_ns;	/* than ours */
	bool deleted_exe;
	bool has_cuda;		/* maps libcuda.so */
	char comm[16];
	char exe[256];		/* as the process sees it */
	char *cmdline;		/* NUL-separated, cmdline_len bytes */
	size_t cmdline_len;
	char **libs;		/* paths of distinct executable mappings */
	size_t n_libs;
	char **symbols;		/* of those asked for by engines (recognise_symbols), the ones found */
	size_t n_symbols;
	uint16_t ports[8];	/* listening TCP ports */
	size_t n_ports;
	bool uses_io_uring;
	char cgroup[128];	/* container hint */
};

struct engine_id {
	uint16_t engine;	/* enum tl_engine_kind */
	char role[32];		/* "server", "api", "engine-core", "worker", "front" */
	char version[48];	/* "" if unknown */
	char why[96];		/* what told: "maps libllama.so", "cmdline has 'vllm serve'" */
};

/* Symbols whose presence in a mapped file tells an engine (llama_process, llama_decode ...). */
extern const char *const recognise_symbols[];
extern const size_t n_recognise_symbols;

/* Returns true and fills *ret when the process is an engine or its front. */
bool recognise(const struct proc_facts *f, struct engine_id *ret);
const char *engine_kind_name(uint16_t engine);	/* "llama.cpp", "ollama", "vllm" ... */

#endif
