/* SPDX-License-Identifier: Apache-2.0 */
/* What the pieces of the BPF source share among themselves. */
#ifndef TL_SOURCE_BPF_PRIV_H
#define TL_SOURCE_BPF_PRIV_H

#include "source/bpf.h"
#include "source/bpf_uprobe.h"
#include "source/now.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/types.h>
#include "../../bpf/cells.h"

struct net_bpf;
struct llama_bpf;
struct zmq_bpf;
struct tcp_bpf;

/* The user-space probes of one process. */
struct bpf_engine {
	uint32_t tgid;
	struct bpf_uprobe *probes;
	size_t n_probes;
};

struct src_bpf {
	struct src_bpf_opts opts;
	struct net_bpf *net;
	struct llama_bpf *llama;	/* NULL until an engine needs it */
	struct zmq_bpf *zmq;		/* the same */
	struct tcp_bpf *tcp_skel;	/* NULL: the kernel takes none of it */
	struct bpf_object *tcp;		/* of it */
	struct bpf_object *sched;	/* owned by struct host; NULL: none */
	struct bpf_object *cuda;	/* owned by struct cuda; NULL: none */
	bool multi;			/* its programs are for multi-uprobe links */
	struct bpf_link **links;	/* of the system-wide rows, by row; NULL where off */
	int *row_errs;			/* why a system-wide row is off */
	struct bpf_engine *engines;
	size_t n_engines;
	struct ring_buffer *ring;
	struct cell *cells;		/* mmap of the map of that name, one per CPU */
	size_t cells_bytes;
	uint64_t *n_told;		/* per CPU: n_lost as of the last TL_LOST */
	int n_cpus;
	int stats_fd;			/* keeps bpf_stats on; -1: could not */
	uint64_t attach_ns;
	uint64_t on;			/* bit i: row i is attached */
	const struct emit *out;		/* during a poll */
	uint32_t n_polled;
};

/* As the kernel counted it. */
void bpf_add_cost(struct bpf_object *obj, struct src_bpf_cost *ret);

/* bpf_engine.c */
/* Loads the programs for this enum tl_engine_kind (0: for all), if that is not done yet. */
int bpf_engine_load(struct src_bpf *s, uint16_t engine);
/* As bpf_add_cost(). */
void bpf_engines_add_cost(const struct src_bpf *s, struct src_bpf_cost *ret);
void bpf_engines_detach(struct src_bpf *s, uint32_t tgid);	/* 0: all */
void bpf_engines_close(struct src_bpf *s);

/* bpf_tcp.c */
void bpf_tcp_open(struct src_bpf *s);	/* what fails stands in row_errs */
void bpf_tcp_close(struct src_bpf *s);

/* bpf_poll.c */
int bpf_ring_open(struct src_bpf *s);
void bpf_ring_close(struct src_bpf *s);

#endif
