/* SPDX-License-Identifier: Apache-2.0 */
/* A live capture, put together from discovery, the BPF source and the pipeline. */
#include "cmd/session.h"

#include "base/map.h"
#include "base/str.h"
#include "cmd/log.h"
#include "cmd/proxies.h"
#include "cmd/refuse.h"
#include "cmd/vllm_server.h"
#include "cmd/vllm_wires.h"
#include "engine/pipeline.h"
#include "engine/recognise.h"
#include "source/discover.h"
#include "source/host.h"
#include "source/probes.h"
#include "source/proc.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum {
	MAX_TARGETS = 4096,
	RESCAN_NS = 2000000000,	/* how often new engines are looked for */
	CLOCK_TRIES = 20,
	MAX_LAST_POLLS = 64,	/* a full ring at the end: targets go on while it is emptied */
};

struct target {
	uint16_t engine;	/* enum tl_engine_kind */
	uint8_t asked;		/* by -p */
	uint8_t gone;
	uint64_t start_ns;
	uint64_t from_ns;	/* when all of it was attached */
};

struct session {
	struct session_opts opts;
	struct src_bpf *bpf;
	struct host *host;
	struct pipeline *pipe;
	struct proxies *proxies;	/* NULL: not wanted */
	struct map *targets;	/* tgid -> struct target */
	struct emit tap;	/* of what the kernel says */
	struct emit feed;	/* of evidence from the host */
	uint64_t begin_ns, scanned_ns, events, detach_ns;
	struct src_bpf_cost last_cost;	/* at detach */
	uint64_t max_rss_bytes;	/* detach gives most of it back */
	size_t n_asked, n_gone, n_engines;
	bool said_host;
};

uint64_t monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static uint64_t realtime_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* The pair of clocks read in the narrowest bracket of a few tries. */
static void clock_pair(struct tl_host *h)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < CLOCK_TRIES; i++) {
		uint64_t a = monotonic_ns(), r = realtime_ns(), b = monotonic_ns();

		if (b - a >= best)
			continue;
		best = b - a;
		h->hdr.ts_ns = a + (b - a) / 2;
		h->realtime_ns = r;
		h->clock_err_ns = (b - a + 1) / 2;
	}
}

/* The first event of a capture; said once there is something to capture. */
static int say_host(struct session *s)
{
	struct tl_host h = { .hdr = { .size = sizeof(h), .kind = TL_HOST } };
	struct utsname u;

	if (s->said_host)
		return 0;
	s->said_host = true;
	clock_pair(&h);
	h.n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	h.tiers = s->opts.bpf.tiers;
	h.probes = src_bpf__probes(s->bpf);
	if (!uname(&u)) {
		str_copy(h.kernel, sizeof(h.kernel), u.release);
		str_copy(h.hostname, sizeof(h.hostname), u.nodename);
	}
	str_copy(h.tool, sizeof(h.tool), TL_VERSION);
	return emit(&s->opts.out, &h.hdr);
}

/* ---- attaching ---- */

struct attach_report {
	uint32_t pid;
	bool steps;		/* their begin and their end */
	char source[48];	/* tl_engine.step_source */
	char missing[160];
};

static const struct probe *probe_by_name(const char *name)
{
	for (size_t i = 0; i < n_probes; i++)
		if (!strcmp(probes[i].name, name))
			return &probes[i];
	return NULL;
}

static void on_probe(void *ctx, const char *probe, int err, const char *reason)
{
	const struct probe *p = probe_by_name(probe);
	struct attach_report *r = ctx;

	if (!err) {
		log_info("pid %u: %s: ok%s%s", r->pid, probe, *reason ? ", " : "", reason);
		if (p && !strcmp(p->prog, "step_return"))
			r->steps = true;
		if (p && !r->source[0])	/* the table has steps first */
			snprintf(r->source, sizeof(r->source), "uprobe %s", p->target);
		return;
	}
	log_info("pid %u: %s: %s", r->pid, probe, reason);
	if (!r->missing[0])
		snprintf(r->missing, sizeof(r->missing), "%s: %s", probe, reason);
}

/* vLLM's workers compute: what they say to the engine goes through shared memory. */
static bool has_wire(const struct engine_id *id)
{
	return id->engine != TL_ENGINE_VLLM || strncmp(id->role, "worker", 6);
}

/* vLLM's engine process hears and says all that its API servers do on their ZMQ sockets. */
static uint32_t mode_of(const struct engine_id *id)
{
	if (id->engine != TL_ENGINE_VLLM)
		return TL_TARGET_ALL;
	return strncmp(id->role, "engine-core", 11) ? TL_TARGET_HTTP : TL_TARGET_WIRE;
}

/* The threads of every process of a server are followed, also of those that speak on no socket. */
static int follow_threads(struct session *s, const struct found *f)
{
	const struct host_process p = {
		.tgid = f->facts.pid, .server = f->server, .engine = f->id.engine, .role = f->id.role,
		.title = f->facts.cmdline ? f->facts.cmdline : "",
	};
	int err = host__add(s->host, &p);

	if (err == -E2BIG)
		log_warn("pid %u: too many processes, its threads are not followed", p.tgid);
	return err == -E2BIG ? 0 : err;
}

/* `d`: the engines of this host. */
static int add_target(struct session *s, const struct discovery *d, const struct found *f, bool asked)
{
	struct attach_report rep = { .pid = f->facts.pid };
	struct tl_engine ev = {
		.hdr = { sizeof(ev), TL_ENGINE, 0, f->facts.pid, 0, 0 },
		.start_ns = f->facts.start_ns, .engine = f->id.engine, .tiers = TL_T0,
	};
	struct target *t = map__put(s->targets, f->facts.pid, NULL);
	const char *why = NULL;
	bool by_probes;
	int err;

	if (!t)
		return -ENOMEM;
	*t = (struct target){ f->id.engine, asked, 0, f->facts.start_ns, UINT64_MAX };
	for (size_t i = 0; i < f->facts.n_ports && i < 8; i++) {
		ev.ports[ev.n_ports++] = f->facts.ports[i];
		src_bpf__watch_port(s->bpf, f->facts.ports[i]);
	}
	if (s->opts.bpf.tiers & TL_T1 && f->id.engine != TL_ENGINE_VLLM)
		src_bpf__attach_engine(s->bpf, f->facts.pid, f->id.engine, on_probe, &rep);
	by_probes = s->opts.bpf.tiers & TL_T1 && vllm_wires_probe(s->bpf, f, &why);
	if (by_probes)
		log_info("pid %u: its wire by probes on libzmq: %s", f->facts.pid, why);
	else if (why)
		log_warn("pid %u: %s", f->facts.pid, why);
	if (rep.steps || by_probes)
		ev.tiers |= TL_T1;
	/* Last: from one moment on its sockets and its steps are seen, not one before the other. */
	err = say_host(s);
	if (!err && (asked || has_wire(&f->id)))
		err = src_bpf__add_target_mode(s->bpf, f->facts.pid,
					       by_probes ? TL_TARGET_QUIET : mode_of(&f->id));
	else
		ev.tiers = 0;
	if (!by_probes && src_bpf__is_blind(s->bpf))
		ev.tiers = 0;
	if (err < 0)
		return err;
	err = follow_threads(s, f);
	if (err)
		return err;
	t->from_ns = monotonic_ns();
	if (!rep.steps && rep.missing[0])
		log_warn("pid %u: no engine steps (%s); requests and tokens are seen on the wire only",
			 f->facts.pid, rep.missing);
	str_copy(ev.version, sizeof(ev.version), f->id.version);
	str_copy(ev.role, sizeof(ev.role), f->id.role);
	str_copy(ev.step_source, sizeof(ev.step_source), rep.steps ? rep.source : "none");
	if (f->id.engine == TL_ENGINE_VLLM)
		vllm_step_source(d, f, ev.step_source, sizeof(ev.step_source));
	if (by_probes)
		str_copy(ev.step_source, sizeof(ev.step_source), "uprobe zmq_msg_send");
	ev.hdr.ts_ns = monotonic_ns();
	s->n_engines++;
	ev.server = f->server;
	ev.max_step_tokens = recognise_max_step_tokens(&f->facts);
	ev.max_seqs = recognise_max_seqs(&f->facts);
	log_info("attached to pid %u (%s %s)", f->facts.pid, engine_kind_name(f->id.engine), f->id.role);
	err = pipeline__feed(s->pipe, &ev.hdr);
	if (!err && s->proxies)
		err = proxies__look(s->proxies, f->facts.ports, f->facts.n_ports);
	return err;
}

/* The other processes of the server that this one belongs to. */
static int add_rest_of_server(struct session *s, const struct discovery *d, uint32_t server)
{
	int err = 0;

	for (size_t i = 0; i < d->n && !err; i++) {
		if (d->found[i].server != server || map__get(s->targets, d->found[i].facts.pid))
			continue;
		err = add_target(s, d, &d->found[i], false);
		if (err == -ESRCH)
			err = 0;
	}
	return err;
}

/* After their processes became targets: what is connected later, the capture sees for itself. */
static void mark_wires(struct session *s, const struct discovery *d)
{
	int n = vllm_wires_mark(s->bpf, d);

	if (n < 0)
		log_warn("out of memory: long messages of engines over TCP are cut");
	else if (n)
		log_info("%d TCP connections between engines and their front ends", n);
}

/* Finds out about a process that was asked for by its pid. Says what is wrong with it. */
static int look_at(pid_t pid, struct found *ret)
{
	int err = discover_one(pid, ret);

	if (err == -ESRCH) {
		pid_t process = proc_of_thread(pid);

		if (process && process != pid)
			log_error("%d is a thread of process %d: attach with -p %d", pid, process, process);
		else
			log_error("no process %d; 'tokenlag list' shows the engines of this host", pid);
	} else if (err) {
		log_error("cannot read process %d: %s; run as root", pid, strerror(-err));
	}
	return err;
}

/* Before the first of them is attached to and the recording begun: are all there? */
static int check_pids(const struct session *s)
{
	for (size_t i = 0; i < s->opts.n_pids; i++) {
		struct found f;
		int err = look_at(s->opts.pids[i], &f);

		if (err)
			return err;
		proc_facts__free(&f.facts);
	}
	return 0;
}

static int add_pid(struct session *s, pid_t pid)
{
	struct target *t = map__get(s->targets, pid);
	struct discovery d = { 0 };
	struct found f;
	int err;

	if (t) {	/* named twice, or of a server that was */
		s->n_asked += !t->asked;
		t->asked = true;
		return 0;
	}
	err = look_at(pid, &f);
	if (err)
		return err;
	if (f.id.engine == TL_ENGINE_UNKNOWN)
		log_warn("pid %d (%s) is no engine that tokenlag knows: only HTTP on its sockets is seen",
			 pid, f.facts.comm);
	else
		err = discover(&d);
	if (!err)
		err = add_target(s, &d, &f, true);
	proc_facts__free(&f.facts);
	if (!err)
		err = add_rest_of_server(s, &d, f.server);
	if (!err)
		mark_wires(s, &d);
	discovery__free(&d);
	if (!err)
		s->n_asked++;
	else if (err != -ECANCELED)	/* that was said already */
		log_error("cannot attach to pid %d: %s", pid, strerror(-err));
	return err;
}

/* Attaches to every engine that is not attached yet. Returns how many exist, or -errno. */
static int add_found(struct session *s)
{
	struct discovery d;
	int err = discover(&d), n;
	bool any = false;

	if (err)
		return err;
	for (size_t i = 0; i < d.n && !err; i++) {
		const struct target *t = map__get(s->targets, d.found[i].facts.pid);

		if (t && t->start_ns == d.found[i].facts.start_ns)
			continue;
		err = add_target(s, &d, &d.found[i], false);
		any = true;
		if (err == -ESRCH)	/* gone again between look and attach */
			err = 0;
	}
	if (any && !err)
		mark_wires(s, &d);
	n = d.n;
	if (!n)
		log_info("looked at %zu processes, %zu of them unreadable", d.n_processes, d.n_refused);
	discovery__free(&d);
	s->scanned_ns = monotonic_ns();
	return err ? err : n;
}

static int add_targets(struct session *s)
{
	int n = check_pids(s);

	if (n)
		return n;
	for (size_t i = 0; i < s->opts.n_pids; i++) {
		n = add_pid(s, s->opts.pids[i]);
		if (n)
			return n;
	}
	if (s->opts.n_pids)
		return 0;
	n = add_found(s);
	if (!n) {
		log_error("no LLM engine found on this host; 'tokenlag list' says what it looks for, -p PID "
			  "attaches to any HTTP server");
		return -ENOENT;
	}
	if (n < 0 && n != -ECANCELED)
		log_error("cannot attach: %s", strerror(-n));
	return n < 0 ? n : 0;
}

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

static int take(void *ctx, const struct tl_hdr *ev)
{
	struct session *s = ctx;
	int err = 0;

	if (is_too_early(s, ev))
		return 0;

	s->events++;
	if (ev->kind == TL_RAW_PROC && ((const struct tl_raw_proc *)ev)->what == TL_PROC_EXIT) {
		struct target *t = map__get(s->targets, ev->tgid);

		if (t && !t->gone) {
			t->gone = 1;
			s->n_gone += t->asked;
			log_info("pid %u exited", ev->tgid);
		}
	}
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

int session__open(const struct session_opts *opts, struct session **ret)
{
	struct session *s = calloc(1, sizeof(*s));
	const char *why = "";
	int err = -ENOMEM;

	if (!s)
		return -ENOMEM;
	/* It will hold texts of strangers, for as long as it takes to parse them: no core file of that. */
	prctl(PR_SET_DUMPABLE, 0);
	s->opts = *opts;
	s->begin_ns = monotonic_ns();
	s->tap = (struct emit){ take, s };
	s->feed = (struct emit){ feed, s };
	s->targets = map__new(sizeof(struct target), MAX_TARGETS);
	s->pipe = pipeline__new(NULL, &s->opts.out);
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
	if (err)
		goto fail;
	err = add_targets(s);
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
	host__close(s->host);
	src_bpf__close(s->bpf);
	pipeline__free(s->pipe);
	map__free(s->targets);
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
	if (n < 0)
		return n;
	n = s->proxies ? proxies__poll(s->proxies, monotonic_ns()) : 0;
	if (n < 0)
		log_warn("cannot look for proxies: %s, ignoring", strerror(-n));
	while (pipeline__next_wire(s->pipe, &sock))
		src_bpf__add_tcp_wire(s->bpf, sock);
	if (!s->opts.n_pids && monotonic_ns() - s->scanned_ns > RESCAN_NS) {
		n = add_found(s);
		if (n < 0)
			log_warn("cannot look for new engines: %s, ignoring", strerror(-n));
	}
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
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000ull +
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
		.hdr = { .size = sizeof(ev), .kind = TL_SELF, .ts_ns = monotonic_ns() },
		.agent_cpu_ns = st.agent_cpu_ns, .bpf_ns = st.bpf.run_ns, .bpf_runs = st.bpf.runs,
		.events = st.events, .attach_ns = st.bpf.attach_ns, .detach_ns = st.detach_ns,
		.rss_bytes = st.rss_bytes,
	};
	return emit(&s->opts.out, &ev.hdr);
}

int session__stop(struct session *s, uint32_t why)
{
	struct tl_capture_end end = { .hdr = { .size = sizeof(end), .kind = TL_CAPTURE_END },
				      .why = why };
	uint64_t t;
	int err, host_err, n;

	/* What the kernel still holds belongs to the capture. */
	for (int i = 0; i < MAX_LAST_POLLS; i++) {
		n = src_bpf__poll(s->bpf, &s->tap, 0);
		if (n <= 0)
			break;
	}
	src_bpf__cost(s->bpf, &s->last_cost);
	note_memory(s);
	host_err = host__end(s->host, monotonic_ns(), &s->feed);
	t = monotonic_ns();
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
	err = err ? err : host_err;
	return err ? err : n < 0 ? n : 0;
}
