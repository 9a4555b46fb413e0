/* SPDX-License-Identifier: Apache-2.0 */
/* Launches as probes on libcuda see them, joined with those that CUPTI tells. */
#include "base/plural.h"
#include "cmd/session_gpu_priv.h"

#include "cmd/log.h"
#include "cmd/session.h"
#include <errno.h>

/* The programs are loaded for the first process that uses CUDA: most hosts have none. */
static int open_probes(struct session_gpu *s)
{
	const struct cuda_opts co = { .kernel_budget_ppm = s->opts.budget_ppm };
	const char *why = "";
	int err;

	if (s->cuda || s->no_probes)
		return 0;
	s->twins = twins__new();
	if (!s->twins)
		return -ENOMEM;
	err = cuda__open(s->opts.bpf, &co, &s->cuda, &why);
	if (!err)
		return 0;
	s->cuda = NULL;
	s->no_probes = true;
	log_warn("launches are not seen: %s", why);
	snprintf(s->no_probes_why, sizeof(s->no_probes_why), "%s", why);
	return err == -ENOMEM ? err : 0;
}

/* The recording says it, too. */
static void say_none(struct session_gpu *s, uint32_t tgid, const struct gpu_process *p, const char *why)
{
	struct gpu_reason r = { .trouble = TL_GPU_NO_PROBES };

	snprintf(r.why, sizeof(r.why), "%s", why);
	session_gpu_say_level(s, tgid, p, TL_GPU_OFF, TL_GPU_OFF, &r);
}

int session_gpu_probe(struct session_gpu *s, uint32_t tgid, struct gpu_process *p)
{
	char why[160] = "";
	int n = open_probes(s);

	if (n)
		return n;
	if (!s->cuda) {
		if (!p->probes_refused)
			say_none(s, tgid, p, s->no_probes_why);
		p->probes_refused = true;
		return 0;
	}
	n = cuda__add(s->cuda, tgid, why);
	if (n == -ENOMEM)
		return n;
	p->probed = n > 0;
	if (n > 0) {
		log_info("pid %u: %d function%s of libcuda %s probed%s%s", tgid, n, plural_s((uint64_t)n), plural((uint64_t)n, "is", "are"),
			 *why ? "; " : "", why);
		return s->opts.tell_tiers(s->opts.ctx, tgid, TL_T1);
	}
	/* It is tried again when the level changes, and what was said once holds. */
	if (n != -ESRCH && !p->probes_refused) {
		p->probes_refused = true;
		if (!*why)
			snprintf(why, sizeof(why), "its libcuda has no function to probe");
		log_warn("pid %u: launches are not seen: %s", tgid, why);
		say_none(s, tgid, p, why);
	}
	return 0;
}

void session_gpu_unprobe(struct session_gpu *s, uint32_t tgid, struct gpu_process *p)
{
	if (p->probed)
		cuda__del(s->cuda, tgid);
	p->probed = false;
}

void session_gpu_close_probes(struct session_gpu *s)
{
	cuda__close(s->cuda);
	twins__free(s->twins);
	s->cuda = NULL;
	s->twins = NULL;
}

static bool may_be_told_by_cupti(const struct gpu_process *p, const struct tl_gpu_launch *l)
{
	return p && p->gpu && l->n &&
	       (l->call == TL_CALL_KERNEL || l->call == TL_CALL_GRAPH || l->call == TL_CALL_COPY);
}

enum { DEAD_LAUNCHES = 32, SETTLE_NS = 100000000 };

/* Callbacks and records are switched on behind the mark that opens a window. */
static void count_in_window(struct gpu_process *p, const struct tl_gpu_launch *l)
{
	struct gpu_probed_window *w = &p->window;
	bool counts = l->call == TL_CALL_GRAPH || (l->call == TL_CALL_KERNEL && !w->graphs);

	if (w->open_ns && counts && l->hdr.ts_ns > w->open_ns + SETTLE_NS &&
	    (!w->close_ns || l->hdr.ts_ns < w->close_ns))
		w->n_launches += l->n;
}

static void note_mark(struct session_gpu *s, const struct tl_hdr *ev)
{
	struct gpu_process *p = map__get(s->processes, ev->tgid);

	if (!p || !p->gpu)
		return;
	if (ev->flags & TL_CLOCK_OPENS)
		p->window = (struct gpu_probed_window){
			.open_ns = ev->ts_ns,
			.graphs = ev->flags & TL_CLOCK_GRAPHS,
			.before = gpu__counts(p->gpu),
		};
	else if (p->window.open_ns)
		p->window.close_ns = ev->ts_ns;
}

/* The library cannot know: to it, a CUPTI that tells nothing is a process that does nothing. */
void session_gpu_judge_window(uint32_t tgid, struct gpu_process *p)
{
	struct gpu_counts now = gpu__counts(p->gpu), *was = &p->window.before;
	struct gpu_probed_window w = p->window;
	char why[160];

	if (!w.close_ns || gpu__state(p->gpu) == TL_RING_ACTIVE)
		return;
	p->window = (struct gpu_probed_window){ 0 };
	if (w.n_launches < DEAD_LAUNCHES || w.close_ns - w.open_ns < NS_PER_S ||
	    now.launches != was->launches ||
	    now.records != was->records || now.bad != was->bad || now.dropped != was->dropped)
		return;
	snprintf(why, sizeof(why),
		 "collection is dead: probes saw %llu launches, and CUPTI told of none and gave no record",
		 (unsigned long long)w.n_launches);
	p->refused = true;
	p->trouble = TL_GPU_BROKEN;
	gpu__break(p->gpu, p->probed ? TL_GPU_LAUNCHES : TL_GPU_OFF, w.n_launches, why);
	session_gpu_advise(why, sizeof(why));
	log_warn("pid %u: no GPU records: %s", tgid, why);
	if (!p->leaving)
		gpu__let_go(p->gpu, 0);
	p->leaving = true;
}

int session_gpu__launch(struct session_gpu *s, const struct tl_hdr *ev)
{
	const struct tl_gpu_launch *l = (const void *)ev;
	struct gpu_process *p = map__get(s->processes, ev->tgid);
	struct gpu_server *sv = p ? map__get(s->servers, p->server) : NULL;

	if (s->end_ns && ev->ts_ns > s->end_ns)
		return 0;
	if (p)
		count_in_window(p, l);
	if (sv && ev->ts_ns > sv->launch_ns)
		sv->launch_ns = ev->ts_ns;
	if (may_be_told_by_cupti(p, l) && !twins__saw(s->twins, l))
		return 0;
	return emit(&s->opts.out, ev);
}

void session_gpu_pass(void *ctx, const struct tl_hdr *ev)
{
	struct session_gpu *s = ctx;
	struct tl_gpu_health h;

	if (ev->kind == TL_CLOCK && ev->flags & (TL_CLOCK_OPENS | TL_CLOCK_CLOSES))
		note_mark(s, ev);
	if (s->end_ns && ev->ts_ns > s->end_ns && ev->kind != TL_GPU_HEALTH)
		return;
	if (ev->kind == TL_GPU_LAUNCH && s->twins)
		twins__told(s->twins, (const void *)ev); /* no memory: it is said twice */
	if (ev->kind == TL_GPU_HEALTH) {
		h = *(const struct tl_gpu_health *)ev;
		h.wanted = s->opts.level;
		/* Counts of what was launched before. */
		if (s->end_ns && h.hdr.ts_ns > s->end_ns) {
			h.hdr.ts_ns = s->end_ns;
			h.since_ns = h.since_ns < s->end_ns ? h.since_ns : s->end_ns;
		}
		if (h.trouble == TL_GPU_BUSY)
			session_gpu_name_holder(ev->tgid, h.holder, h.why, sizeof(h.why));
		session_gpu_advise(h.why, sizeof(h.why));
		ev = &h.hdr;
	}
	if (!s->err)
		s->err = emit(&s->opts.out, ev);
}

static int on_counted(void *ctx, const struct tl_hdr *ev)
{
	return session_gpu__launch(ctx, ev);
}

int session_gpu_poll_probes(struct session_gpu *s, uint64_t now)
{
	const struct emit counted = { on_counted, s };
	const struct gpu_process *p;
	bool all_read = true;
	int err;

	if (!s->cuda)
		return 0;
	for (p = map__oldest(s->processes, NULL); p; p = map__newer(s->processes, p, NULL))
		all_read &= !p->gpu || !gpu__is_behind(p->gpu);
	err = cuda__poll(s->cuda, now, &counted);
	return err ? err : twins__say(s->twins, now, all_read, &s->opts.out);
}

int session_gpu_end_probes(struct session_gpu *s)
{
	int err = session_gpu_poll_probes(s, monotonic_ns());

	err = err || !s->twins ? err : twins__end(s->twins, &s->opts.out);
	session_gpu_close_probes(s);
	return err;
}

uint64_t session_gpu_probes_ns(struct session_gpu *s)
{
	struct cuda_cost c;
	uint64_t ns;

	if (!s->cuda)
		return 0;
	cuda__cost(s->cuda, &c);
	ns = c.paid_ns - s->cost.paid_ns;
	s->cost = c;
	return ns;
}
