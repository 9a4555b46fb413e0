/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the BPF programs, attaches them, and keeps the set of targets. */
#include "net.skel.h"
#include "source/bpf_priv.h"
#include "source/probes.h"
#include "../../bpf/sched_thread.h"
#include "../../bpf/target_bits.h"
#include "tl_event.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	DEFAULT_HEAD = 4096, MAX_HEAD = 32 << 10,
	DEFAULT_TAIL = 1024, MAX_TAIL = 16 << 10,
	DEFAULT_RING = 8 << 20, MAX_RING = 1 << 30,
	WHOLE = 60 << 10,	/* of a call on an engine's own wire; an event's size is 16 bits */
	SCRATCH_HEAD = 16 + sizeof(struct tl_raw_net),	/* struct scratch of net_copy.h */
};

static uint32_t clamp(uint32_t v, uint32_t dflt, uint32_t max)
{
	return !v ? dflt : v < max ? v : max;
}

static bool system_wide(const struct probe *p)
{
	return p->family == PROBE_NET &&
	       (p->type == PROBE_TRACEPOINT || p->type == PROBE_BTF_TRACEPOINT);
}

static int set_sizes(struct src_bpf *s)
{
	struct net_bpf *net = s->net;
	uint32_t keep = WHOLE, wakeup = s->opts.ring_bytes / 8;
	struct timespec tick;
	int err;

	net->rodata->head_bytes = s->opts.head_bytes;
	net->rodata->tail_bytes = s->opts.tail_bytes;
	net->rodata->whole_bytes = keep;
	if (!clock_getres(CLOCK_MONOTONIC_COARSE, &tick))	/* it is set once a tick */
		net->rodata->tick_ns = tick.tv_nsec;
	if (net->rodata->wakeup_bytes > wakeup)
		net->rodata->wakeup_bytes = wakeup;
	err = bpf_map__set_max_entries(net->maps.events, s->opts.ring_bytes);
	err = err ? err : bpf_map__set_max_entries(net->maps.cells, s->n_cpus);
	err = err ? err : bpf_map__set_max_entries(net->maps.scratches, s->n_cpus);
	return err ? err
		   : bpf_map__set_value_size(net->maps.scratches, SCRATCH_HEAD + 2 * keep + 8);
}

static int try_load(struct src_bpf *s, uint64_t rows)
{
	int err;

	s->net = net_bpf__open();
	if (!s->net)
		return -errno;
	for (size_t i = 0; i < n_probes; i++) {
		if (rows >> i & 1)
			bpf_program__set_autoload(bpf_object__find_program_by_name(s->net->obj,
						  probes[i].prog), true);
	}
	err = set_sizes(s);
	err = err ? err : net_bpf__load(s->net);
	if (err) {
		net_bpf__destroy(s->net);
		s->net = NULL;
	}
	return err;
}

static bool is_needed(const struct src_bpf *s, size_t row)
{
	return probes[row].required && !s->opts.blind;
}

/* Loads the programs of all system-wide rows; if that fails, of those that
 * can be loaded one by one. */
static int load_net(struct src_bpf *s)
{
	uint64_t rows = 0;
	int err;

	for (size_t i = 0; i < n_probes; i++) {
		if (!system_wide(&probes[i]))
			continue;
		rows |= 1ull << i;
		if (!(s->opts.refuse >> i & 1))
			continue;
		if (is_needed(s, i))
			return -EINVAL;
		s->row_errs[i] = -EINVAL;
		rows &= ~(1ull << i);
	}
	err = try_load(s, rows);
	if (!err || err == -EPERM || err == -ENOMEM)
		return err;
	for (size_t i = 0; i < n_probes; i++) {
		if (!(rows >> i & 1))
			continue;
		s->row_errs[i] = try_load(s, 1ull << i);
		net_bpf__destroy(s->net);
		s->net = NULL;
		if (!s->row_errs[i])
			continue;
		if (is_needed(s, i))
			return s->row_errs[i];
		rows &= ~(1ull << i);
	}
	return try_load(s, rows);
}

static int attach_net(struct src_bpf *s)
{
	for (size_t i = 0; i < n_probes; i++) {
		struct bpf_program *prog;

		if (!system_wide(&probes[i]) || s->row_errs[i])
			continue;
		prog = bpf_object__find_program_by_name(s->net->obj, probes[i].prog);
		s->links[i] = bpf_program__attach(prog);
		if (s->links[i])
			s->on |= 1ull << i;
		else
			s->row_errs[i] = -errno;
		if (s->row_errs[i] && is_needed(s, i))
			return s->row_errs[i];
	}
	return 0;
}

/* A sentence for an error of open. */
static const char *why_not(int err)
{
	struct stat st;

	if (stat("/sys/kernel/btf/vmlinux", &st) || !st.st_size)
		return "this kernel does not describe its types (no /sys/kernel/btf/vmlinux): it needs "
		       "CONFIG_DEBUG_INFO_BTF, as every distribution kernel since 5.15 has";
	switch (err) {
	case -EPERM:
	case -EACCES:
		return "not allowed to load BPF programs: run as root, or with CAP_BPF, CAP_PERFMON "
		       "and CAP_SYS_PTRACE";
	case -ENOMEM:
		return "not enough memory for the capture buffers: try a smaller ring";
	case -EAGAIN:	/* libbpf tried five times; a stop counts as a signal, too, and each try begins anew */
		return "signals interrupted the kernel's check of our BPF programs each time: is it stopped and continued "
		       "all the time, as cpulimit does? Run it without";
	case -EINVAL:
		return "this kernel refuses our BPF programs; `tokenlag doctor` says which";
	default:
		return "the BPF programs could not be loaded; `tokenlag doctor` says which";
	}
}

int src_bpf__open(const struct src_bpf_opts *opts, struct src_bpf **ret, const char **why)
{
	struct src_bpf *s = calloc(1, sizeof(*s));
	uint64_t start = monotonic_ns();
	int err = -ENOMEM;

	*why = "out of memory";
	if (!s)
		return err;
	s->stats_fd = -1;
	s->opts = *opts;
	s->opts.head_bytes = clamp(opts->head_bytes, DEFAULT_HEAD, MAX_HEAD);
	s->opts.tail_bytes = clamp(opts->tail_bytes, DEFAULT_TAIL, MAX_TAIL);
	s->opts.ring_bytes = clamp(opts->ring_bytes, DEFAULT_RING, MAX_RING);
	s->links = calloc(n_probes, sizeof(*s->links));
	s->row_errs = calloc(n_probes, sizeof(*s->row_errs));
	if (!s->links || !s->row_errs)
		goto fail;
	libbpf_set_print(NULL);		/* what it would print, `why` says */
	err = s->n_cpus = libbpf_num_possible_cpus();
	if (err < 0)
		goto fail;
	err = load_net(s);
	if (err)
		goto fail;
	err = bpf_ring_open(s);
	if (err)
		goto fail;
	if (opts->kernel_stats)
		s->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	err = attach_net(s);
	if (err)
		goto fail;
	bpf_tcp_open(s);
	s->attach_ns = monotonic_ns() - start;
	*ret = s;
	return 0;
fail:
	*why = why_not(err);
	src_bpf__close(s);
	return err;
}

void src_bpf__close(struct src_bpf *s)
{
	if (!s)
		return;
	for (size_t i = 0; s->links && i < n_probes; i++)
		bpf_link__destroy(s->links[i]);
	free(s->links);
	free(s->row_errs);
	bpf_engines_close(s);
	bpf_tcp_close(s);
	bpf_ring_close(s);
	net_bpf__destroy(s->net);
	if (s->stats_fd >= 0)
		close(s->stats_fd);
	free(s);
}

enum { MAX_TARGETS = 4096 };

static void bits_of_targets(const struct src_bpf *s, uint64_t *bits)
{
	uint32_t tgid, *prev = NULL;

	/* A key that is deleted meanwhile makes the walk begin anew: hence the limit. */
	for (int n = 0; n < 2 * MAX_TARGETS; n++) {
		if (bpf_map__get_next_key(s->net->maps.targets, prev, &tgid, sizeof(tgid)))
			break;
		bits[TARGET_WORD(tgid)] |= TARGET_BIT(tgid);
		prev = &tgid;
	}
}

/* Only here are bits of processes that are gone cleared. A target that forks
 * meanwhile adds its child to the map before it sets its bit, so a second walk puts
 * back what the clearing took away. */
static void update_bits(struct src_bpf *s)
{
	uint64_t bits[N_TARGET_WORDS] = { 0 };

	bits_of_targets(s, bits);
	for (size_t i = 0; i < N_TARGET_WORDS; i++)
		__atomic_fetch_and(&s->net->bss->target_bits[i], bits[i], __ATOMIC_SEQ_CST);
	bits_of_targets(s, bits);
	for (size_t i = 0; i < N_TARGET_WORDS; i++)
		__atomic_fetch_or(&s->net->bss->target_bits[i], bits[i], __ATOMIC_SEQ_CST);
}

int src_bpf__add_target(struct src_bpf *s, uint32_t tgid)
{
	return src_bpf__add_target_mode(s, tgid, TL_TARGET_ALL);
}

int src_bpf__add_target_mode(struct src_bpf *s, uint32_t tgid, uint32_t mode)
{
	int err = bpf_map__update_elem(s->net->maps.targets, &tgid, sizeof(tgid), &mode,
				       sizeof(mode), BPF_ANY);

	if (!err)
		update_bits(s);
	return err;
}

bool src_bpf__is_target(struct src_bpf *s, uint32_t tgid)
{
	uint32_t mode;

	return !bpf_map__lookup_elem(s->net->maps.targets, &tgid, sizeof(tgid), &mode, sizeof(mode),
				     0);
}

void src_bpf__del_target(struct src_bpf *s, uint32_t tgid)
{
	bpf_map__delete_elem(s->net->maps.targets, &tgid, sizeof(tgid), 0);
	update_bits(s);
	bpf_engines_detach(s, tgid);
}

int src_bpf__add_tcp_wire(struct src_bpf *s, uint64_t inode)
{
	uint8_t one = 1;
	int err = bpf_map__update_elem(s->net->maps.tcp_wires, &inode, sizeof(inode), &one,
				       sizeof(one), BPF_ANY);

	if (!err)
		__atomic_store_n(&s->net->bss->has_tcp_wires, 1, __ATOMIC_RELEASE);
	return err;
}

int src_bpf__watch_port(struct src_bpf *s, uint16_t port)
{
	uint8_t one = 1;

	return bpf_map__update_elem(s->net->maps.ports, &port, sizeof(port), &one, sizeof(one),
				    BPF_ANY);
}

void bpf_add_cost(struct bpf_object *obj, struct src_bpf_cost *ret)
{
	struct bpf_program *prog;

	bpf_object__for_each_program(prog, obj) {
		struct bpf_prog_info info = { 0 };
		__u32 len = sizeof(info);

		if (bpf_program__fd(prog) < 0 ||
		    bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &len))
			continue;
		ret->run_ns += info.run_time_ns;
		ret->runs += info.run_cnt;
	}
}

/* What the programs that watch threads count of themselves. */
static void add_tallies(const struct src_bpf *s, struct src_bpf_cost *ret)
{
	struct bpf_map *map = bpf_object__find_map_by_name(s->sched, "tallies");

	for (uint32_t cpu = 0; map && cpu < (uint32_t)s->n_cpus; cpu++) {
		struct tally t;

		if (bpf_map__lookup_elem(map, &cpu, sizeof(cpu), &t, sizeof(t), 0))
			return;
		ret->run_ns += t.run_ns;
		ret->threads_ns += t.run_ns;
		ret->runs += t.runs;
	}
}

void src_bpf__cost(const struct src_bpf *s, struct src_bpf_cost *ret)
{
	struct src_bpf_cost c = { .attach_ns = s->attach_ns };

	for (int cpu = 0; cpu < s->n_cpus; cpu++) {
		c.lost += s->cells[cpu].n_lost;
		c.run_ns += s->cells[cpu].run_ns;
		c.runs += s->cells[cpu].runs;
		c.hits += s->cells[cpu].hits;
	}
	if (s->sched)
		add_tallies(s, &c);
	if (s->stats_fd >= 0) {
		struct src_bpf_cost threads = { 0 };

		c.run_ns = c.runs = 0;
		bpf_add_cost(s->net->obj, &c);
		bpf_engines_add_cost(s, &c);
		if (s->tcp)
			bpf_add_cost(s->tcp, &c);
		if (s->cuda)
			bpf_add_cost(s->cuda, &c);
		if (s->sched)
			bpf_add_cost(s->sched, &threads);
		c.run_ns += threads.run_ns;
		c.runs += threads.runs;
		c.threads_ns = threads.run_ns;
	}
	*ret = c;
}

bool src_bpf__is_blind(const struct src_bpf *s)
{
	for (size_t i = 0; i < n_probes; i++)
		if (probes[i].required && system_wide(&probes[i]) && !(s->on >> i & 1))
			return true;
	return false;
}

uint64_t src_bpf__probes(const struct src_bpf *s)
{
	return s->on;
}
