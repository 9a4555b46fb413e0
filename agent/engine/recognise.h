/* SPDX-License-Identifier: Apache-2.0 */
/* Which engine a process is, told from facts that a caller collected. Pure. */
#ifndef TL_RECOGNISE_H
#define TL_RECOGNISE_H

#include "tl_event.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RECOGNISE_MAX_SYMBOLS = 16 };

struct proc_facts {
	uint32_t pid, ppid;
	uint32_t pid_inside;	/* in its own pid namespace; == pid when that is ours */
	uint64_t start_ns;	/* CLOCK_MONOTONIC (boot time corrected), 0: unknown */
	uint32_t uid;
	bool other_mnt_ns, other_pid_ns;	/* than ours */
	bool deleted_exe;
	bool kernel_thread;
	bool has_cuda;		/* maps libcuda.so */
	uint64_t gpus;		/* bit i: has /dev/nvidia<i> open */
	char comm[16];
	char exe[256];		/* as the process sees it */
	char *cmdline;		/* NUL-separated, cmdline_len bytes, and a NUL behind them */
	size_t cmdline_len;
	char **libs;		/* paths of distinct executable mappings */
	size_t n_libs;
	const char *symbols[RECOGNISE_MAX_SYMBOLS];	/* those of recognise_symbols found */
	size_t n_symbols;
	const char *symbols_in;	/* the entry of libs that has the first of them; NULL: none */
	uint32_t llama_build;	/* LLAMA_BUILD_NUMBER of the file that defines it, 0: unknown */
	bool exe_symtab;	/* the executable has a symbol table: it was not stripped */
	char **packages;	/* "name version" of the Python packages beside mapped libraries, if
				 * in recognise_packages or the one that symbols_in lies in: tells a
				 * version, not an engine */
	size_t n_packages;
	uint16_t ports[8];	/* listening TCP ports */
	size_t n_ports;
	bool ports_unknown;	/* its sockets could not be read */
	bool uses_io_uring;
	char cgroup[128];	/* container hint */
};

struct engine_id {
	uint16_t engine;	/* enum tl_engine_kind */
	char role[32];		/* "server", "api", "engine-core", "worker", "front" ... */
	char version[48];	/* "" if unknown */
	char why[96];		/* what told: "maps libllama.so", "command 'vllm serve'" */
};

/* Symbols whose presence in a mapped file tells an engine (llama_process, llama_decode ...). */
extern const char *const recognise_symbols[];
extern const size_t n_recognise_symbols;	/* <= RECOGNISE_MAX_SYMBOLS */
/* Python distributions whose version is an engine's version. */
extern const char *const recognise_packages[];
extern const size_t n_recognise_packages;

/* Returns true and fills *ret when the process is an engine, a part or a front of one, or embeds
 * one. Role "library": nothing it serves is seen (no listening socket). */
bool recognise(const struct proc_facts *f, struct engine_id *ret);
const char *engine_kind_name(uint16_t engine);	/* "llama.cpp", "ollama", "vllm" ... */

/* enum tl_tier bits that the process itself allows; what the kernel and the user allow is apart. */
uint32_t recognise_tiers(const struct proc_facts *f, const struct engine_id *id);
/* May part of its socket traffic go through an io_uring, where system calls do not show it? uvloop
 * opens one for files only. */
bool recognise_hides_traffic(const struct proc_facts *f);
/* Most tokens in one step, as the command line says it (vLLM:
 * --max-num-batched-tokens); 0: not said. */
uint32_t recognise_max_step_tokens(const struct proc_facts *f);
/* Most sequences in one step (vLLM: --max-num-seqs); 0: not said. */
uint32_t recognise_max_seqs(const struct proc_facts *f);
/* What the command line of a vLLM server's first process says. */
struct vllm_options {
	bool no_stats;		/* its engines say nothing of their schedulers */
	bool headless;		/* engines only: their API server is on another host */
	bool uds;		/* it speaks HTTP on a unix socket ... */
	bool tls;		/* ... or encrypted */
	bool by_priority;	/* not in order of arrival */
	bool config_file;	/* there are options that are not seen here */
	uint32_t api_servers;	/* processes, 0: not said */
	uint32_t engines, engines_here;	/* of data parallelism: in all, and
					 * on this host. 0: not said */
};
void recognise_vllm_options(const struct proc_facts *f, struct vllm_options *ret);
/* Is it one of the functions of which a call computes one step? */
bool recognise_is_step(const char *symbol);
/* Does a child process of this engine belong to the server that is its parent? */
bool recognise_same_server(uint16_t child, uint16_t parent);
/* Names the container or service of a cgroup path: "docker 0123456789ab", "ollama.service". ""
 * when the path names none. */
void recognise_container(const char *cgroup, char *ret, size_t size);

#endif
