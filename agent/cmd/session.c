/* SPDX-License-Identifier: Apache-2.0 */
/* A live capture, put together from discovery, the BPF source and the pipeline. */
#include "cmd/session_priv.h"

#include "cmd/log.h"
#include "cmd/proxies.h"
#include "cmd/refuse.h"
#include "cmd/vllm_wires.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	MAX_TARGETS = 4096,
	MAX_LAST_POLLS = 64,	/* a full ring at the end: targets go on while it is emptied */
};

/* ---- events ---- */

/* Probes in the engine come one by one: what some saw before the last was there has holes, and its
 * requests are none of those on the wire. */
static bool is_too_early(const struct session *s, const struct tl_hdr *ev)
{
	const struct target *t;

	if (ev->kind < TL_RAW_LLAMA_STEP)
		return false;
	t = map__get(s->targets, ev->tgid);
	return t && ev->ts_ns < t->from_ns;
}

static void on_proc(struct session *s, const struct tl_raw_proc *e)
{
	struct target *t = map__get(s->targets, e->what == TL_PROC_FORK ? e->parent : e->hdr.tgid);

	if (!t)
		return;
	if (e->what == TL_PROC_FORK) {
		session_expect_engine(s, e->hdr.ts_ns);
	} else if (e->what == TL_PROC_EXIT && !t->gone) {
		t->gone = 1;
		s->n_gone += t->named;
		log_info("pid %u exited", e->hdr.tgid);
	}
}

static int take(void *ctx, const struct tl_hdr *ev)
{
	struct session *s = ctx;
	int err = 0;

	if (is_too_early(s, ev))
		return 0;

	s->events++;
	if (ev->kind == TL_RAW_PROC) {
		on_proc(s, (const void *)ev);
		err = s->gpu ? session_gpu__note(s->gpu, (const void *)ev) : 0;
	}
	if (err)
		return err;
	if (ev->kind == TL_GPU_LAUNCH && s->gpu)
		return session_gpu__launch(s->gpu, ev);
	if (s->proxies && ev->kind == TL_RAW_TCP && ((const struct tl_raw_tcp *)ev)->what == TL_TCP_CONNECT)
		proxies__note(s->proxies, ev->tgid);
	if (s->opts.raw.fn && ev->kind >= TL_RAW_FIRST)
		err = emit(&s->opts.raw, ev);
	err = err ? err : host__take(s->host, ev, &s->feed);
	if (err)
		return err < 0 ? err : 0;
	return pipeline__feed(s->pipe, ev);
}

static int feed(void *ctx, const struct tl_hdr *ev)
{
	return pipeline__feed(((struct session *)ctx)->pipe, ev);
}

static bool is_target(void *ctx, uint32_t tgid)
{
	return map__get(((struct session *)ctx)->targets, tgid) || tgid == (uint32_t)getpid();
}

static int open_proxies(struct session *s)
{
	const struct proxies_opts po = { s->bpf, s->host, s->pipe, is_target, s };

	if (s->opts.no_proxies)
		return 0;
	s->proxies = proxies__new(&po);
	return s->proxies ? 0 : -ENOMEM;
}

/* What the pipeline says, on its way out. */
static int see(void *ctx, const struct tl_hdr *ev)
{
	struct session *s = ctx;

	if (s->gpu)
		session_gpu__see(s->gpu, ev);
	return emit(&s->opts.out, ev);
}

/* A process that was not found to be part of an engine: a rank, a worker. It serves nothing itself,
 * as far as engines are known; a child of another server is seen like its parent since it was
 * forked, and may be who serves. */
static int adopt(void *ctx, uint32_t tgid, uint32_t server)
{
	const struct host_process hp = { .tgid = tgid, .server = server, .role = "worker", .title = "" };
	struct session *s = ctx;
	const struct target *t = map__get(s->targets, server);
	int err = 0;

	if (map__get(s->targets, tgid))
		return 0;
	if (!t || t->said.engine != TL_ENGINE_UNKNOWN || !src_bpf__is_target(s->bpf, tgid))
		err = src_bpf__add_target_mode(s->bpf, tgid, TL_TARGET_QUIET);
	err = err && err != -ESRCH ? err : host__add(s->host, &hp);
	log_info("pid %u: uses CUDA for the server of pid %u", tgid, server);
	return err == -E2BIG ? 0 : err;
}

static int tell_tiers(void *ctx, uint32_t tgid, uint16_t tiers)
{
	struct session *s = ctx;
	struct target *t = map__get(s->targets, tgid);

	if (!t || (t->said.tiers | tiers) == t->said.tiers)
		return 0;
	t->said.tiers |= tiers;
	t->said.hdr.ts_ns = monotonic_ns();
	return pipeline__feed(s->pipe, &t->said.hdr);
}

static int open_gpu(struct session *s)
{
	const struct session_gpu_opts go = {
		.bpf = s->bpf, .out = s->feed, .level = s->opts.gpu, .budget_ppm = s->opts.gpu_budget_ppm,
		.asked = s->opts.gpu_asked,
		.adopt = adopt, .tell_tiers = tell_tiers, .ctx = s,
	};

	if (s->opts.gpu == TL_GPU_OFF)
		return 0;
	s->gpu = session_gpu__new(&go);
	return s->gpu ? 0 : -ENOMEM;
}

int session__open(const struct session_opts *opts, struct session **ret)
{
	struct session *s = calloc(1, sizeof(*s));
	const char *why = "";
	int err = -ENOMEM;

	if (!s)
		return -ENOMEM;
	/* It will hold texts of strangers, for as long as it takes to parse
	 * them: no core file of that. */
	prctl(PR_SET_DUMPABLE, 0);
	s->opts = *opts;
	s->begin_ns = monotonic_ns();
	s->tap = (struct emit){ take, s };
	s->feed = (struct emit){ feed, s };
	s->seen = (struct emit){ see, s };
	s->targets = map__new(sizeof(struct target), MAX_TARGETS);
	s->pipe = pipeline__new(NULL, &s->seen);
	if (!s->targets || !s->pipe)
		goto fail;
	s->opts.bpf.refuse = refused_rows();
	err = vllm_wires_open(&s->opts.bpf, &s->bpf, &why);
	if (err) {
		log_error("cannot capture: %s", why);
		goto fail;
	}
	err = host__open(s->bpf, &s->host);
	err = err ? err : open_proxies(s);
	err = err ? err : open_gpu(s);
	if (err)
		goto fail;
	err = session_attach(s);
	if (!err && s->gpu)	/* what uses CUDA by now is looked into from the begin */
		err = session_gpu__poll(s->gpu, monotonic_ns());
	if (err)
		goto fail;
	*ret = s;
	return 0;
fail:
	session__close(s);
	return err;
}

void session__close(struct session *s)
{
	if (!s)
		return;
	proxies__free(s->proxies);
	session_gpu__free(s->gpu);
	host__close(s->host);
	src_bpf__close(s->bpf);
	pipeline__free(s->pipe);
	map__free(s->targets);
	discover_past__free(s->past);
	free(s);
}

int session__fd(const struct session *s)
{
	return src_bpf__poll_fd(s->bpf);
}

int session__poll(struct session *s, int timeout_ms)
{
	int n = src_bpf__poll(s->bpf, &s->tap, timeout_ms);
	uint64_t sock;

	if (n >= 0)
		n = host__poll(s->host, monotonic_ns(), &s->feed);
	if (n >= 0 && s->gpu)
		n = session_gpu__poll(s->gpu, monotonic_ns());
	if (n < 0)
		return n;
	n = s->proxies ? proxies__poll(s->proxies, monotonic_ns()) : 0;
	if (n < 0)
		log_warn("cannot look for proxies: %s, ignoring", strerror(-n));
	while (pipeline__next_wire(s->pipe, &sock))
		src_bpf__add_tcp_wire(s->bpf, sock);
	n = session_look(s, monotonic_ns());
	if (n < 0)
		log_warn("cannot look for new engines: %s, ignoring", strerror(-n));
	return 0;
}

bool session__targets_gone(const struct session *s)
{
	return s->n_asked && s->n_gone >= s->n_asked;
}

static uint64_t cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NS_PER_S +
	       (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000ull;
}

static uint64_t rss_bytes(void)
{
	long size, rss = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (!f)
		return 0;
	if (fscanf(f, "%ld %ld", &size, &rss) != 2)
		rss = 0;
	fclose(f);
	return (uint64_t)rss * sysconf(_SC_PAGESIZE);
}

static void note_memory(struct session *s)
{
	uint64_t now = rss_bytes();

	s->max_rss_bytes = now > s->max_rss_bytes ? now : s->max_rss_bytes;
}

void session__status(const struct session *s, struct session_status *ret)
{
	*ret = (struct session_status){
		.steps = pipeline__n_steps(s->pipe), .bad_events = pipeline__n_bad(s->pipe),
		.events = s->events, .elapsed_ns = monotonic_ns() - s->begin_ns,
		.agent_cpu_ns = cpu_ns(), .rss_bytes = s->max_rss_bytes, .detach_ns = s->detach_ns,
		.n_engines = s->n_engines, .n_proxies = s->proxies ? proxies__n(s->proxies) : 0, .bpf = s->last_cost,
	};
	wire__stats(pipeline__wire(s->pipe), &ret->wire);
	if (s->bpf)
		src_bpf__cost(s->bpf, &ret->bpf);
}

int session__say_self(struct session *s)
{
	struct session_status st;

	note_memory(s);
	session__status(s, &st);
	struct tl_self ev = {
		.hdr = { .size = sizeof(ev), .kind = TL_SELF, .tgid = (uint32_t)getpid(), .ts_ns = monotonic_ns() },
		.agent_cpu_ns = st.agent_cpu_ns, .bpf_ns = st.bpf.run_ns, .bpf_runs = st.bpf.runs,
		.events = st.events, .attach_ns = st.bpf.attach_ns, .detach_ns = st.detach_ns,
		.rss_bytes = st.rss_bytes, .bpf_threads_ns = st.bpf.threads_ns,
	};
	return emit(&s->opts.out, &ev.hdr);
}

int session__stop(struct session *s, uint32_t why)
{
	struct tl_capture_end end = { .hdr = { .size = sizeof(end), .kind = TL_CAPTURE_END },
				      .why = why };
	uint64_t t;
	int err, host_err, gpu_err, n;

	/* What the kernel still holds belongs to the capture. */
	for (int i = 0; i < MAX_LAST_POLLS; i++) {
		n = src_bpf__poll(s->bpf, &s->tap, 0);
		if (n <= 0)
			break;
	}
	/* What happens while we leave is not seen, so it is no part of it: the server
	 * has not stood still then. */
	t = monotonic_ns();
	src_bpf__cost(s->bpf, &s->last_cost);
	note_memory(s);
	host_err = host__end(s->host, t, &s->feed);
	gpu_err = s->gpu ? session_gpu__end(s->gpu, t) : 0;
	host__close(s->host);
	s->host = NULL;
	src_bpf__close(s->bpf);
	s->bpf = NULL;
	s->detach_ns = monotonic_ns() - t;
	err = pipeline__end(s->pipe, t);
	if (!err)
		err = session__say_self(s);
	end.hdr.ts_ns = t;
	if (!err)
		err = emit(&s->opts.out, &end.hdr);
	err = err ? err : host_err ? host_err : gpu_err;
	return err ? err : n < 0 ? n : 0;
}
