/* SPDX-License-Identifier: Apache-2.0 */
/* What the pieces of the BPF source share among themselves. */
#ifndef TL_SOURCE_BPF_PRIV_H
#define TL_SOURCE_BPF_PRIV_H

#include "source/bpf.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/types.h>
#include "../../bpf/lost.h"

struct net_bpf;
struct llama_bpf;

struct src_bpf {
	struct src_bpf_opts opts;
	struct net_bpf *net;
	struct llama_bpf *llama;	/* NULL until an engine needs it */
	struct bpf_link **links;	/* of the system-wide rows, by row; NULL where off */
	struct ring_buffer *ring;
	struct lost_cell *lost;		/* mmap of the map `lost`, one per CPU */
	struct lost_cell *lost_told;	/* .n: as of the last TL_LOST */
	size_t lost_bytes;
	int n_cpus;
	int stats_fd;			/* keeps bpf_stats on; -1: could not */
	uint64_t attach_ns;
	uint64_t on;			/* bit i: row i is attached */
	const struct emit *out;		/* during a poll */
	uint32_t n_polled;
};

uint64_t bpf_now_ns(void);

/* bpf_poll.c */
int bpf_ring_open(struct src_bpf *s);
void bpf_ring_close(struct src_bpf *s);

#endif
