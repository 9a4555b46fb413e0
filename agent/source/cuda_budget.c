/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps what probes on single launches of kernels cost a process within its budget. */
#include "source/cuda_priv.h"

#include "base/units.h"
#include "tl_event.h"

/* Where nothing could be measured: a VM's values (doc/design/launches.md). */
enum { USUAL_CHEAP_NS = 700, USUAL_DEAR_NS = 10000 };
enum { CALM_SECONDS = 5 };		/* before launches get an event each again */
static const uint64_t first_pause_ns = 10 * NS_PER_S, max_pause_ns = 160 * NS_PER_S;
static const uint64_t burst_over_ns = 200000000;	/* its thread has stopped without waiting */

uint32_t cuda_hit_ns(const struct cuda *c, bool dear)
{
	uint32_t ns = dear ? c->price.dear_ns : c->price.cheap_ns;

	return ns ? ns : dear ? USUAL_DEAR_NS : USUAL_CHEAP_NS;
}

static uint64_t price_of(const struct cuda *c, const struct cuda_process *p, uint8_t level)
{
	if (level == CUDA_LEVEL_COUNTED && !p->kernels_dear && c->price.counted_ns)
		return c->price.counted_ns;
	return cuda_hit_ns(c, p->kernels_dear);
}

/* The processes whose probes these are: p itself, or all. */
static struct cuda_process *const *members(const struct cuda *c, struct cuda_process *const *p,
					   size_t *ret_n)
{
	*ret_n = *p == c->everyone ? c->processes.n : 1;
	return *p == c->everyone ? c->processes.v : p;
}

static uint64_t total(const struct cuda *c, const struct cuda_process *p)
{
	return __atomic_load_n(&c->tallies[p->slot].kernels, __ATOMIC_RELAXED);
}

static void begin_second(const struct cuda *c, struct cuda_process *p, uint64_t now_ns)
{
	struct cuda_process *const *m;
	size_t n;

	p->since_ns = now_ns;
	m = members(c, &p, &n);
	for (size_t i = 0; i < n; i++)
		m[i]->seen = total(c, m[i]);
}

/* Launches of this second; of several processes, of that which has most: each has its
 * own core to launch from. */
static uint64_t launched(const struct cuda *c, struct cuda_process *p)
{
	struct cuda_process *const *m;
	uint64_t most = 0, one;
	size_t n;

	m = members(c, &p, &n);
	for (size_t i = 0; i < n; i++) {
		one = total(c, m[i]) - m[i]->seen;
		most = one > most ? one : most;
	}
	return most;
}

static void set_level(struct cuda *c, struct cuda_process *p, uint8_t level, uint64_t now_ns)
{
	struct cuda_process *const *m;
	size_t n;

	p->level = level;
	p->n_calm = 0;
	c->counted |= level == CUDA_LEVEL_COUNTED;
	m = members(c, &p, &n);
	for (size_t i = 0; i < n && level != CUDA_LEVEL_OFF; i++)
		__atomic_store_n(&c->tallies[m[i]->slot].mode, level, __ATOMIC_RELAXED);
	begin_second(c, p, now_ns);
}

void cuda_budget_begin(struct cuda *c, struct cuda_process *p, uint64_t now_ns)
{
	uint8_t level = c->opts.no_kernels	? CUDA_LEVEL_OFF
			: c->opts.count_kernels ? CUDA_LEVEL_COUNTED
						: CUDA_LEVEL_EACH;

	p->off_ns = now_ns;
	p->off_untold = c->opts.no_kernels;
	p->pause_ns = first_pause_ns;
	if (!c->everyone || c->everyone == p) {
		set_level(c, p, level, now_ns);
		return;
	}
	set_level(c, p, c->everyone->level, now_ns);
	/* It does not know yet. */
	c->everyone->off_untold |= c->everyone->level == CUDA_LEVEL_OFF;
}

/* dur_ns 0: from now on, nobody knows until when. */
static int say_unseen(const struct cuda *c, struct cuda_process *p, uint64_t dur_ns,
		      const struct emit *out)
{
	struct cuda_process *const *m;
	int err = 0;
	size_t n;

	m = members(c, &p, &n);
	for (size_t i = 0; i < n && !err; i++) {
		struct tl_gpu_launch ev = {
			.hdr = { sizeof(ev), TL_GPU_LAUNCH, TL_LAUNCH_UNSEEN, m[i]->tgid, 0, p->off_ns },
			.dur_ns = dur_ns, .call = TL_CALL_KERNEL,
		};

		err = emit(out, &ev.hdr);
	}
	return err;
}

static int take_off(struct cuda *c, struct cuda_process *p, uint64_t now_ns, const struct emit *out)
{
	cuda_kernels_detach(p);
	set_level(c, p, CUDA_LEVEL_OFF, now_ns);
	p->off_ns = now_ns;
	p->retry_ns = p->kernels_dear ? UINT64_MAX : now_ns + p->pause_ns;
	p->pause_ns = p->pause_ns < max_pause_ns ? 2 * p->pause_ns : max_pause_ns;
	return say_unseen(c, p, 0, out);
}

static int look_again(struct cuda *c, struct cuda_process *p, uint64_t now_ns,
		      const struct emit *out)
{
	if (cuda_kernels_attach(c, p) <= 0) {
		p->retry_ns = now_ns + p->pause_ns;
		return 0;
	}
	set_level(c, p, CUDA_LEVEL_COUNTED, now_ns);
	return say_unseen(c, p, now_ns - p->off_ns, out);
}

static int judge(struct cuda *c, struct cuda_process *p, uint64_t now_ns, const struct emit *out)
{
	uint64_t n = launched(c, p);
	uint64_t elapsed = now_ns - p->since_ns, room_ns = c->opts.kernel_budget_ppm * 1000ull;
	uint64_t each = n * price_of(c, p, CUDA_LEVEL_EACH),
		 counted = n * price_of(c, p, CUDA_LEVEL_COUNTED);

	if (elapsed > NS_PER_S)	/* nobody called for a while */
		room_ns = room_ns * (elapsed / 1000) / (NS_PER_S / 1000);
	if (counted > room_ns)
		return take_off(c, p, now_ns, out);
	if (p->level == CUDA_LEVEL_EACH && each > room_ns)
		set_level(c, p, CUDA_LEVEL_COUNTED, now_ns);
	if (elapsed < NS_PER_S)
		return 0;
	p->n_calm = each < room_ns / 2 ? p->n_calm + 1 : 0;
	p->pause_ns = first_pause_ns;
	begin_second(c, p, now_ns);
	if (p->level == CUDA_LEVEL_COUNTED && !c->opts.count_kernels && p->n_calm >= CALM_SECONDS)
		set_level(c, p, CUDA_LEVEL_EACH, now_ns);
	if (p->n_calm > CALM_SECONDS)
		p->n_calm = CALM_SECONDS;
	return 0;
}

int cuda_budget_poll(struct cuda *c, struct cuda_process *p, uint64_t now_ns,
		     const struct emit *out)
{
	if (p->level != CUDA_LEVEL_OFF)
		return judge(c, p, now_ns, out);
	if (p->off_untold) {
		p->off_untold = false;
		return say_unseen(c, p, 0, out);
	}
	return !c->opts.no_kernels && now_ns >= p->retry_ns ? look_again(c, p, now_ns, out) : 0;
}

/* The programs say a burst once its thread waits or launches anew. Not so after its last. */
int cuda_bursts_say(struct cuda *c, uint64_t now_ns, const struct emit *out)
{
	int err = 0;

	if (!c->counted)
		return 0;
	for (size_t i = 0; i < CUDA_MAX_BURSTS && !err; i++) {
		struct cuda_burst *b = &c->bursts[i], now;
		struct tl_gpu_launch ev;

		if (!__atomic_load_n(&b->n, __ATOMIC_ACQUIRE) || !b->id ||
		    b->last_ns + burst_over_ns > now_ns)
			continue;
		now = *b;
		now.n = __atomic_exchange_n(&b->n, 0, __ATOMIC_ACQ_REL);
		if (!now.n)
			continue;
		ev = (struct tl_gpu_launch){
			.hdr = { sizeof(ev), TL_GPU_LAUNCH, now.many ? TL_LAUNCH_MANY : 0, now.id >> 32,
				 (uint32_t)now.id, now.first_ns },
			.dur_ns = now.last_ns - now.first_ns, .stream = now.stream,
			.what = now.what, .n = now.n, .call = TL_CALL_KERNEL,
		};
		err = emit(out, &ev.hdr);
	}
	return err;
}
