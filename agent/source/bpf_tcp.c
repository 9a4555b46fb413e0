/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that follow what TCP does with written bytes: all optional, each by itself. */
#include "net.skel.h"
#include "source/bpf_priv.h"
#include "source/probes.h"
#include "tcp.skel.h"
#include <errno.h>

/* They write to the same ring and cells as those of the net family,
 * which notes what they follow. */
static int share_maps(const struct net_bpf *net, struct tcp_bpf *tcp)
{
	int err;

	tcp->rodata->wakeup_bytes = net->rodata->wakeup_bytes;
	err = bpf_map__reuse_fd(tcp->maps.events, bpf_map__fd(net->maps.events));
	err = err ? err : bpf_map__reuse_fd(tcp->maps.cells, bpf_map__fd(net->maps.cells));
	err = err ? err : bpf_map__reuse_fd(tcp->maps.ports, bpf_map__fd(net->maps.ports));
	err = err ? err : bpf_map__reuse_fd(tcp->maps.helds, bpf_map__fd(net->maps.helds));
	return err ? err : bpf_map__reuse_fd(tcp->maps.n_helds, bpf_map__fd(net->maps.n_helds));
}

/* Loads the programs of these rows. */
static int try_load(struct src_bpf *s, uint64_t rows)
{
	struct tcp_bpf *tcp = tcp_bpf__open();
	int err;

	if (!tcp)
		return -errno;
	for (size_t i = 0; i < n_probes; i++) {
		if (rows >> i & 1)
			bpf_program__set_autoload(bpf_object__find_program_by_name(tcp->obj,
						  probes[i].prog), true);
	}
	err = share_maps(s->net, tcp);
	err = err ? err : tcp_bpf__load(tcp);
	if (err) {
		tcp_bpf__destroy(tcp);
		return err;
	}
	s->tcp_skel = tcp;
	s->tcp = tcp->obj;
	return 0;
}

/* All programs; if that fails, those that can be loaded one by one. Returns
 * the rows that were loaded. */
static uint64_t load(struct src_bpf *s)
{
	uint64_t rows = 0, good = 0;

	for (size_t i = 0; i < n_probes; i++) {
		if (probes[i].family != PROBE_TCP)
			continue;
		if (s->opts.refuse >> i & 1)
			s->row_errs[i] = -EINVAL;
		else
			rows |= 1ull << i;
	}
	if (!rows || !try_load(s, rows))
		return rows;
	for (size_t i = 0; i < n_probes; i++) {
		if (!(rows >> i & 1))
			continue;
		s->row_errs[i] = try_load(s, 1ull << i);
		bpf_tcp_close(s);
		good |= (uint64_t)!s->row_errs[i] << i;
	}
	return good && !try_load(s, good) ? good : 0;
}

void bpf_tcp_open(struct src_bpf *s)
{
	uint64_t rows = load(s);

	for (size_t i = 0; i < n_probes; i++) {
		if (!(rows >> i & 1))
			continue;
		s->links[i] = bpf_program__attach(bpf_object__find_program_by_name(s->tcp, probes[i].prog));
		if (s->links[i])
			s->on |= 1ull << i;
		else
			s->row_errs[i] = -errno;
	}
}

void bpf_tcp_close(struct src_bpf *s)
{
	tcp_bpf__destroy(s->tcp_skel);
	s->tcp_skel = NULL;
	s->tcp = NULL;
}
