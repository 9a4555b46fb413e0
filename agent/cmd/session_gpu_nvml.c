/* SPDX-License-Identifier: Apache-2.0 */
/* Devices as NVML sees them: how fast they may run, who else is on them, how much
 * of their memory is free. */
#include "base/plural.h"
#include "cmd/session_gpu_priv.h"

#include "cmd/log.h"
#include "cmd/session.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PAUSE_S = 64, MAX_LOOKS = 2 * NVML_MAX_DEVICES };

const char *session_gpu_nvml_path(void)
{
	return getenv("TL_NVML");
}

/* The recording says it, too: of all that are known to use CUDA. */
static void say_unseen(struct session_gpu *s, const char *why)
{
	struct gpu_reason r = { .trouble = TL_GPU_NO_STATE };
	struct gpu_process *p;
	uint64_t tgid;

	snprintf(r.why, sizeof(r.why), "%s", why);
	for (p = map__oldest(s->processes, &tgid); p; p = map__newer(s->processes, p, &tgid))
		if (p->uses_cuda)
			session_gpu_say_level(s, tgid, p, TL_GPU_OFF, TL_GPU_OFF, &r);
}

static void give_up(struct session_gpu *s, const char *why)
{
	say_unseen(s, why);
	log_warn("clocks, neighbours and memory of GPUs are not seen%s: %s", s->nvml ? " any more" : "", why);
	session_gpu_close_nvml(s);
	s->no_nvml = true;
	memset(s->free_bytes, 0, sizeof(s->free_bytes));
}

/* 0, or -ENOMEM. */
static int open_nvml(struct session_gpu *s)
{
	const char *path = session_gpu_nvml_path();
	char why[160];
	int err;

	if (path && !*path) {
		s->no_nvml = true;
		return 0;
	}
	err = nvml__open(path, &s->nvml, why);
	if (!err)
		return 0;
	s->nvml = NULL;
	s->no_nvml = true;
	if (err == -ENOENT)	/* most hosts with a simulated device, and few others */
		log_info("clocks, neighbours and memory of GPUs are not seen: %s", why);
	else
		log_warn("clocks, neighbours and memory of GPUs are not seen: %s", *why ? why : strerror(-err));
	if (err != -ENOENT)
		say_unseen(s, *why ? why : strerror(-err));
	return err == -ENOMEM ? err : 0;
}

void session_gpu_close_nvml(struct session_gpu *s)
{
	struct nvml_cost c;

	if (!s->nvml)
		return;
	nvml__cost(s->nvml, &c);
	log_info("NVML: %llu calls took %.1f ms, the longest %.1f ms; %u failed", (unsigned long long)c.n_calls,
		 c.calls_ns / 1e6, c.longest_ns / 1e6, c.n_failed);
	nvml__close(s->nvml);
	s->nvml = NULL;
}

uint32_t session_gpu_n_mig(const struct nvml *n)
{
	const struct nvml_device *devices;
	uint32_t n_mig = 0;

	for (uint32_t i = nvml__devices(n, &devices); i-- > 0;)
		n_mig += devices[i].mig;
	return n_mig;
}

static void say_mig(struct session_gpu *s)
{
	uint32_t n_mig = session_gpu_n_mig(s->nvml);

	if (n_mig && !s->mig_said)
		log_info("%u of the GPUs of this host %s partitioned (MIG): clocks and neighbours there are not seen", n_mig,
			 plural(n_mig, "is", "are"));
	s->mig_said = true;
}

/* ---- which processes are on which devices ---- */

static bool can_be_placed(const struct session_gpu *s, const struct gpu_process *p)
{
	/* a real NVML knows nothing of simulated devices, and the other way round */
	return p->uses_cuda && !p->gone && p->simulated == nvml__is_simulated(s->nvml);
}

static void say_view(uint32_t tgid, const struct nvml_view *v)
{
	if (v->mig)
		log_warn("pid %u: it was given a part of a GPU (MIG): clocks and neighbours are not seen", tgid);
	if (v->guessed)
		log_warn("pid %u: its GPUs differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID: which of them it calls 0 is guessed",
			 tgid);
}

/* How a process calls a device that it is on. *ret_guessed: that is not
 * certain. -1: it cannot be told. */
static int number_of(struct session_gpu *s, uint32_t tgid, struct gpu_process *p, uint32_t device, bool *ret_guessed)
{
	const struct nvml_device *devices;
	uint32_t n = nvml__devices(s->nvml, &devices);
	int number;

	if (!p->viewed) {
		if (nvml_view_of(tgid, devices, n, &p->view))
			p->view = (struct nvml_view){ 0 };
		p->viewed = true;
		say_view(tgid, &p->view);
	}
	number = nvml_view_number(&p->view, device);
	*ret_guessed = p->view.guessed || number < 0;
	/* It was not started with this one: it has set CUDA_VISIBLE_DEVICES itself since. */
	return number >= 0 ? number : p->devices == 1ull << device && !p->view.mig ? 0 : -1;
}

static bool is_on(const struct nvml_look *l, uint32_t pid)
{
	for (uint32_t i = 0; i < l->n_processes; i++)
		if (l->processes[i].pid == pid)
			return true;
	return false;
}

/* ---- states ---- */

struct server_of {
	struct session_gpu *s;
	uint32_t server;
};

static bool is_own(void *ctx, uint32_t pid)
{
	const struct server_of *of = ctx;
	const struct gpu_process *p = map__get(of->s->processes, pid);

	return p && p->server == of->server;
}

static void read_name(uint32_t pid, char ret[16])
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(ret, 16, f))
		ret[strcspn(ret, "\n")] = 0;
	fclose(f);
}

static void add_neighbour(struct session_gpu *s, uint32_t server, const struct nvml_look *l, struct tl_gpu_state *e)
{
	struct server_of of = { s, server };
	const struct nvml_process *by = nvml_neighbour(l, is_own, &of);

	if (!by)
		return;
	e->by_tgid = by->pid;
	read_name(by->pid, e->by_name);
	if (by->sm_pct < NVML_NEIGHBOUR_PCT)	/* what is there and does nothing
						 * keeps nobody waiting */
		return;
	e->by_pct = by->sm_pct;
	e->why |= TL_GPU_NEIGHBOUR;
}

/* Between two looks the clock has changed once, in the middle for all that is known. A neighbour's
 * share is of all that time. */
static void say_both(struct session_gpu *s, const struct tl_gpu_state *before, struct tl_gpu_state *e)
{
	const uint32_t slow = TL_GPU_POWER | TL_GPU_THERMAL;
	struct tl_gpu_state first = *e;

	if (before->hdr.ts_ns == e->since_ns && before->device == e->device &&
	    (before->clock_mhz != e->clock_mhz || (before->why ^ e->why) & slow)) {
		first.clock_mhz = before->clock_mhz;
		first.why = (before->why & slow) | (e->why & ~slow);
		first.hdr.ts_ns = e->since_ns = e->since_ns + (e->hdr.ts_ns - e->since_ns) / 2;
		session_gpu_pass(s, &first.hdr);
	}
	session_gpu_pass(s, &e->hdr);
}

static void say_state(struct session_gpu *s, uint32_t tgid, struct gpu_process *p, const struct nvml_look *l)
{
	const struct nvml_device *devices;
	struct tl_gpu_state e = {
		.hdr = { sizeof(e), TL_GPU_STATE, p->simulated ? TL_GPU_SIMULATED : 0, tgid, 0, l->at_ns },
		.since_ns = l->since_ns, .clock_mhz = l->mhz, .why = l->why,
	};
	bool guessed;
	int number = number_of(s, tgid, p, l->device, &guessed);

	if (number < 0 || l->since_ns == l->at_ns)
		return;
	nvml__devices(s->nvml, &devices);
	e.device = number;
	e.max_mhz = devices[l->device].max_mhz;
	e.hdr.flags |= guessed ? TL_F_GUESS : 0;
	add_neighbour(s, p->server, l, &e);
	say_both(s, &p->state, &e);
	p->state = e;
}

static void take_look(struct session_gpu *s, const struct nvml_look *l)
{
	uint64_t bit = 1ull << l->device;
	struct gpu_process *p;
	uint64_t tgid;

	s->free_bytes[l->device] = l->free_bytes;
	for (p = map__oldest(s->processes, &tgid); p; p = map__newer(s->processes, p, &tgid)) {
		p->devices &= ~bit;
		if (!can_be_placed(s, p) || !is_on(l, tgid))
			continue;
		p->devices |= bit;
		if (l->deep)
			say_state(s, tgid, p, l);
	}
}

uint64_t session_gpu_free_bytes(const struct session_gpu *s, const struct gpu_process *p)
{
	uint64_t least = 0;

	for (uint64_t bits = p->devices; bits; bits &= bits - 1) {
		uint64_t bytes = s->free_bytes[__builtin_ctzll(bits)];

		if (bytes && (!least || bytes < least))
			least = bytes;
	}
	return least;
}

/* ---- the round ---- */

/* Is one of them on no device, as far as is known? Then it is looked for, ever less often. */
static bool seeks(struct session_gpu *s, uint64_t now, uint64_t *ret_watched)
{
	bool any = false, fresh = false;
	struct gpu_process *p;

	*ret_watched = 0;
	for (p = map__oldest(s->processes, NULL); p; p = map__newer(s->processes, p, NULL)) {
		if (!can_be_placed(s, p))
			continue;
		*ret_watched |= p->devices;
		any |= !p->devices;
		fresh |= !p->devices && !p->sought;
		p->sought = true;
	}
	if (fresh)
		s->seek_pause_ns = 0;
	else if (!any || now < s->seek_ns)
		return false;
	s->seek_pause_ns = !s->seek_pause_ns ? NS_PER_S : s->seek_pause_ns < MAX_PAUSE_S * NS_PER_S ?
			   2 * s->seek_pause_ns : s->seek_pause_ns;
	s->seek_ns = now + s->seek_pause_ns;
	return true;
}

int session_gpu_poll_nvml(struct session_gpu *s, uint64_t now)
{
	enum nvml_state state;
	struct nvml_look look;
	uint64_t watched;
	char why[160];
	bool list_all;
	int err;

	if (s->no_nvml || !s->uses_cuda)
		return 0;
	if (!s->nvml) {
		err = open_nvml(s);
		if (err || !s->nvml)
			return err;
	}
	state = nvml__state(s->nvml, now, why);
	if (state == NVML_STOPPED)
		give_up(s, why);
	if (state != NVML_READY)
		return 0;
	say_mig(s);
	for (int i = 0; i < MAX_LOOKS && nvml__take(s->nvml, &look); i++)
		take_look(s, &look);
	list_all = seeks(s, now, &watched);
	nvml__watch(s->nvml, watched, list_all);
	return s->err;
}
