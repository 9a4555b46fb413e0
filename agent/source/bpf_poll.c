/* SPDX-License-Identifier: Apache-2.0 */
/* Takes events out of the kernel's ring buffer, and tells what did not fit into it. */
#include "net.skel.h"
#include "source/bpf_priv.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	MAX_EVENTS_PER_POLL = 65536,	/* so that a flood does not keep
					 * us from signals and timers */
	MAX_WAIT_MS = 100,		/* the kernel does not wake us for a few events */
};

static int on_event(void *ctx, void *data, size_t size)
{
	struct src_bpf *s = ctx;
	const struct tl_hdr *ev = data;
	int err;

	s->n_polled++;
	if (size < sizeof(*ev) || ev->size > size)
		return 0;
	err = emit(s->out, ev);
	if (err)
		return err;
	return s->n_polled >= MAX_EVENTS_PER_POLL ? -ECANCELED : 0;
}

int bpf_ring_open(struct src_bpf *s)
{
	size_t page = sysconf(_SC_PAGESIZE), bytes = s->n_cpus * sizeof(struct cell);
	void *mem;

	s->cells_bytes = (bytes + page - 1) / page * page;
	mem = mmap(NULL, s->cells_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		   bpf_map__fd(s->net->maps.cells), 0);
	if (mem == MAP_FAILED)
		return -errno;
	s->cells = mem;
	s->n_told = calloc(s->n_cpus, sizeof(*s->n_told));
	if (!s->n_told)
		return -ENOMEM;
	s->ring = ring_buffer__new(bpf_map__fd(s->net->maps.events), on_event, s, NULL);
	return s->ring ? 0 : -errno;
}

void bpf_ring_close(struct src_bpf *s)
{
	ring_buffer__free(s->ring);
	if (s->cells)
		munmap(s->cells, s->cells_bytes);
	free(s->n_told);
}

/* One TL_LOST per CPU that lost something since the last call. */
static int tell_lost(struct src_bpf *s)
{
	int err = 0;

	for (int cpu = 0; cpu < s->n_cpus && !err; cpu++) {
		struct cell *cell = &s->cells[cpu];
		uint64_t n = __atomic_load_n(&cell->n_lost, __ATOMIC_ACQUIRE);
		struct tl_lost ev = {
			.hdr = { sizeof(ev), TL_LOST, 0, 0, 0, cell->last_ns },
			.n = n - s->n_told[cpu],
			.since_ns = cell->first_ns,
			.cpu = cpu,
			.where = TL_LOST_RING,
			.what = cell->what,
		};

		if (!ev.n)
			continue;
		s->n_told[cpu] = n;
		__atomic_store_n(&cell->taken, n, __ATOMIC_RELEASE);
		err = emit(s->out, &ev.hdr);
		s->n_polled++;
	}
	return err;
}

static int take(struct src_bpf *s)
{
	int err = ring_buffer__consume(s->ring);

	if (err < 0 && err != -ECANCELED)
		return err;
	return tell_lost(s);
}

int src_bpf__poll(struct src_bpf *s, const struct emit *out, int timeout_ms)
{
	struct epoll_event ev;
	int err, wait_ms;

	s->out = out;
	s->n_polled = 0;
	for (;;) {
		err = take(s);
		if (err)
			return err;
		if (s->n_polled || timeout_ms <= 0)
			return s->n_polled;
		wait_ms = timeout_ms < MAX_WAIT_MS ? timeout_ms : MAX_WAIT_MS;
		if (epoll_wait(ring_buffer__epoll_fd(s->ring), &ev, 1, wait_ms) < 0)
			return errno == EINTR ? 0 : -errno;
		timeout_ms -= wait_ms;
	}
}

int src_bpf__poll_fd(const struct src_bpf *s)
{
	return ring_buffer__epoll_fd(s->ring);
}
