/* SPDX-License-Identifier: Apache-2.0 */
/* The table of probes: what is attached where, and what is lost without it. */
#ifndef TL_PROBES_H
#define TL_PROBES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The file bpf/NAME.bpf.c of its program; user-space rows: NET. */
enum probe_family { PROBE_NET, PROBE_SCHED, PROBE_TCP };
enum probe_type { PROBE_TRACEPOINT, PROBE_BTF_TRACEPOINT, PROBE_UPROBE, PROBE_URETPROBE, PROBE_TIMER };

/* Rows keep their place: bit i of tl_host.probes means row i. */
struct probe {
	const char *name;	/* as doctor prints it */
	const char *prog;	/* BPF program */
	uint8_t type;		/* enum probe_type */
	uint8_t tier;		/* enum tl_tier */
	uint16_t engine;	/* enum tl_engine_kind for user-space probes, else 0 */
	const char *target;	/* name of the tracepoint, or symbols of a function, by falling
				 * preference and separated by a blank: the first found is probed */
	const char *group;	/* user-space rows of one group are
				 * alternatives or belong together */
	bool required;		/* without it there is no capture at all */
	const char *lost_without; /* one clause: what a report misses */
	uint8_t n_args;		/* user-space probes: arguments that the program reads */
	uint8_t family;		/* enum probe_family: the file of its program */
};
extern const struct probe probes[];
extern const size_t n_probes;

#endif
