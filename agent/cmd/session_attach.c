/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes a live capture is attached to: those that were asked for, or all
 * engines, also later ones. */
#include "cmd/session_priv.h"

#include "base/plural.h"
#include "base/str.h"
#include "cmd/log.h"
#include "cmd/proxies.h"
#include "cmd/vllm_server.h"
#include "cmd/vllm_wires.h"
#include "engine/recognise.h"
#include "source/discover.h"
#include "source/probes.h"
#include "source/proc.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum {
	LOOK_NS = 2000000000,	/* how often new engines are looked
				 * for, while there may be some ... */
	MAX_LOOK_S = 8,	/* ... and how seldom, if they take long to show what they are ... */
	MAX_START_S = 300,	/* ... which is no longer than this */
	CLOCK_TRIES = 20,
};

static uint64_t realtime_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
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
	h.tiers = s->opts.bpf.tiers | (s->opts.gpu >= TL_GPU_GRAPH ? TL_T2 : 0) | (s->opts.gpu >= TL_GPU_KERNELS ? TL_T3 : 0);
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

/* vLLM's engine process hears and says all that its API servers do on their ZMQ sockets. Where
 * these serve on a unix socket, too, nothing tells it from those but what is said on it. */
static uint32_t mode_of(const struct discovery *d, const struct found *f)
{
	struct vllm_server server;

	if (f->id.engine != TL_ENGINE_VLLM)
		return TL_TARGET_ALL;
	if (!strncmp(f->id.role, "engine-core", 11))
		return TL_TARGET_WIRE;
	return vllm_server_look(d, f->server, &server) && server.options.uds ? TL_TARGET_ALL : TL_TARGET_HTTP;
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

static const char by_probes_source[] = "uprobe zmq_msg_send";	/* tl_engine.step_source */

/* A process on its way to be a target. */
struct joining {
	const struct found *found;
	bool named;		/* by -p: one that cannot be attached to is the end of it */
	bool by_probes;
	int err;
	struct attach_report rep;
	struct tl_engine ev;
};

/* All that takes long, and is not seen yet. */
static int prepare(struct session *s, struct joining *j)
{
	const struct found *f = j->found;
	struct target *t = map__put(s->targets, f->facts.pid, NULL);
	struct tl_engine *ev = &j->ev;
	const char *why = NULL;

	if (!t)
		return -ENOMEM;
	*ev = (struct tl_engine){
		.hdr = { sizeof(*ev), TL_ENGINE, 0, f->facts.pid, 0, 0 },
		.start_ns = f->facts.start_ns, .engine = f->id.engine, .tiers = TL_T0,
	};
	j->rep.pid = f->facts.pid;
	*t = (struct target){ .said = *ev, .asked = s->opts.n_pids > 0, .from_ns = UINT64_MAX };
	for (size_t i = 0; i < f->facts.n_ports && i < 8; i++) {
		ev->ports[ev->n_ports++] = f->facts.ports[i];
		src_bpf__watch_port(s->bpf, f->facts.ports[i]);
	}
	if (s->opts.bpf.tiers & TL_T1 && f->id.engine != TL_ENGINE_VLLM)
		src_bpf__attach_engine(s->bpf, f->facts.pid, f->id.engine, on_probe, &j->rep);
	j->by_probes = s->opts.bpf.tiers & TL_T1 && vllm_wires_probe(s->bpf, f, &why);
	if (j->by_probes)
		log_info("pid %u: its wire by probes on libzmq: %s", f->facts.pid, why);
	else if (why)
		log_warn("pid %u: %s", f->facts.pid, why);
	if (j->rep.steps || j->by_probes)
		ev->tiers |= TL_T1;
	return follow_threads(s, f);
}

/* From now on its sockets and its steps are seen, not one before the other. */
static int begin_target(struct session *s, const struct discovery *d, struct joining *j)
{
	const struct found *f = j->found;
	struct target *t = map__get(s->targets, f->facts.pid);
	uint64_t now = monotonic_ns();
	int err = 0;

	if (j->named || has_wire(&f->id))
		err = src_bpf__add_target_mode(s->bpf, f->facts.pid, j->by_probes ? TL_TARGET_QUIET : mode_of(d, f));
	else
		j->ev.tiers = 0;
	if (!j->by_probes && src_bpf__is_blind(s->bpf))
		j->ev.tiers = 0;
	if (!err)
		t->from_ns = now;
	return err;
}

/* `d`: the engines of this host. */
static int say_target(struct session *s, const struct discovery *d, struct joining *j)
{
	const struct found *f = j->found;
	struct target *t = map__get(s->targets, f->facts.pid);
	struct tl_engine *ev = &j->ev;
	struct vllm_options options;
	int err = s->gpu ? session_gpu__add(s->gpu, f->facts.pid, f->server) : 0;

	if (err)
		return err;
	if (!j->rep.steps && j->rep.missing[0])
		log_warn("pid %u: no engine steps (%s); requests and tokens are seen on the wire only",
			 f->facts.pid, j->rep.missing);
	str_copy(ev->version, sizeof(ev->version), f->id.version);
	str_copy(ev->role, sizeof(ev->role), f->id.role);
	str_copy(ev->step_source, sizeof(ev->step_source), j->rep.steps ? j->rep.source : "none");
	if (f->id.engine == TL_ENGINE_VLLM)
		vllm_step_source(d, f, ev->step_source, sizeof(ev->step_source));
	if (j->by_probes)
		str_copy(ev->step_source, sizeof(ev->step_source), by_probes_source);
	ev->hdr.ts_ns = monotonic_ns();
	s->n_engines++;
	ev->server = f->server;
	recognise_vllm_options(&f->facts, &options);
	ev->hdr.flags |= f->id.engine == TL_ENGINE_VLLM && options.by_priority ? TL_ENGINE_PRIORITY : 0;
	ev->max_step_tokens = recognise_max_step_tokens(&f->facts);
	ev->max_seqs = recognise_max_seqs(&f->facts);
	log_info("attached to pid %u (%s%s%s)", f->facts.pid, engine_kind_name(f->id.engine), *f->id.role ? " " : "",
		 f->id.role);
	t->said = *ev;
	err = pipeline__feed(s->pipe, &ev->hdr);
	if (!err && s->proxies)
		err = proxies__look(s->proxies, f->facts.ports, f->facts.n_ports);
	return err;
}

/* One that is there among others: that it cannot be attached to is no
 * reason to do without these. */
static int forgive(uint32_t pid, int err)
{
	if (!err || err == -ECANCELED || err == -ENOMEM)
		return err;
	if (err != -ESRCH)	/* gone again between look and attach */
		log_warn("cannot attach to pid %u: %s, ignoring", pid, strerror(-err));
	return 0;
}

/* Of a server with several processes, all begin to be seen at one moment, as near as may be, and an
 * engine before what asks it: or requests would be seen that nobody computed. */
static int add_targets(struct session *s, const struct discovery *d, struct joining *all, size_t n)
{
	int err = 0;

	for (size_t i = 0; i < n; i++)
		all[i].err = prepare(s, &all[i]);
	if (n)
		err = say_host(s);
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < n && !err; i++)
			if (!all[i].err && (mode_of(d, all[i].found) == TL_TARGET_WIRE) == !pass)
				all[i].err = begin_target(s, d, &all[i]);
	for (size_t i = 0; i < n && !err; i++) {
		if (!all[i].err)
			all[i].err = say_target(s, d, &all[i]);
		err = all[i].named ? all[i].err : forgive(all[i].found->facts.pid, all[i].err);
	}
	return err;
}

/* Attached to before it had a port or an engine, or between fork and its own title, when
 * it looked like its parent. */
static int update_target(struct session *s, const struct discovery *d, const struct found *f, struct target *t)
{
	struct tl_engine ev = t->said;
	bool by_probes = ev.engine == TL_ENGINE_VLLM && ev.tiers & TL_T1;
	bool other_role = strcmp(ev.role, f->id.role), now_by_probes = false;
	const char *why = NULL;
	int err = 0;

	for (size_t i = ev.n_ports; i < f->facts.n_ports && i < 8; i++) {
		ev.n_ports = i + 1;
		memcpy(ev.ports, f->facts.ports, ev.n_ports * sizeof(ev.ports[0]));
	}
	str_copy(ev.role, sizeof(ev.role), f->id.role);
	if (ev.engine == TL_ENGINE_VLLM && !by_probes)
		vllm_step_source(d, f, ev.step_source, sizeof(ev.step_source));
	ev.server = f->server;
	if (!memcmp(&ev, &t->said, sizeof(ev)))
		return 0;
	if (other_role && !by_probes && s->opts.bpf.tiers & TL_T1)
		now_by_probes = vllm_wires_probe(s->bpf, f, &why);
	if (now_by_probes) {
		ev.tiers |= TL_T1;
		str_copy(ev.step_source, sizeof(ev.step_source), by_probes_source);
	}
	for (size_t i = 0; i < ev.n_ports; i++)
		src_bpf__watch_port(s->bpf, ev.ports[i]);
	if (other_role && !by_probes && (t->named || has_wire(&f->id)))
		err = src_bpf__add_target_mode(s->bpf, f->facts.pid,
					       now_by_probes ? TL_TARGET_QUIET : mode_of(d, f));
	if (!err && other_role)
		err = follow_threads(s, f);
	if (err)
		return err;
	ev.hdr.ts_ns = monotonic_ns();
	t->said = ev;
	log_info("pid %u: now %s %s with %u port%s, steps: %s", f->facts.pid, engine_kind_name(f->id.engine),
		 f->id.role, ev.n_ports, plural_s(ev.n_ports), ev.step_source);
	err = pipeline__feed(s->pipe, &ev.hdr);
	if (!err && s->proxies)
		err = proxies__look(s->proxies, f->facts.ports, f->facts.n_ports);
	return err;
}

static bool is_wanted(const struct session *s, const struct found *named, const struct found *f)
{
	const struct target *server = map__get(s->targets, f->server);

	if (named)
		return f->server == named->server;
	return !s->opts.n_pids || (server && server->asked);
}

/* Whoever is wanted and no target yet becomes one; of the others what is new is said. `named`: by
 * -p, and of its server all are wanted; NULL: of all that were asked for. */
static int add_all(struct session *s, const struct discovery *d, const struct found *named)
{
	struct joining *all = calloc(d->n + 1, sizeof(*all));
	size_t n = 0;
	int err = 0;

	if (!all)
		return -ENOMEM;
	if (named)
		all[n++] = (struct joining){ .found = named, .named = true };
	for (size_t i = 0; i < d->n && !err; i++) {
		const struct found *f = &d->found[i];
		struct target *t = map__get(s->targets, f->facts.pid);

		if (!is_wanted(s, named, f) || (named && f->facts.pid == named->facts.pid))
			continue;
		if ((!t || t->said.start_ns != f->facts.start_ns) && proc_is_32bit(f->facts.pid)) {
			log_info("pid %u runs a 32-bit program, ignoring", f->facts.pid);
			continue;
		}
		if (!t || t->said.start_ns != f->facts.start_ns) {
			all[n++] = (struct joining){ .found = f };
			continue;
		}
		t->asked |= s->opts.n_pids > 0;
		err = forgive(f->facts.pid, update_target(s, d, f, t));
	}
	if (!err)
		err = add_targets(s, d, all, n);
	free(all);
	return err;
}

/* *ret is to be freed also if it fails. */
static int discover_servers(struct session *s, struct discovery *ret)
{
	int err;

	if (!s->past)
		s->past = discover_past__new();
	err = s->past ? discover_again(s->past, monotonic_ns(), ret) : -ENOMEM;

	return err ? err : vllm_wires_join(ret);
}

/* After their processes became targets: what is connected later, the capture sees for itself. */
static void mark_wires(struct session *s, const struct discovery *d)
{
	int n = vllm_wires_mark(s->bpf, d);

	if (n < 0)
		log_warn("out of memory: long messages of engines over TCP are cut");
	else if (n)
		log_info("%d TCP connection%s between engines and their front ends", n, plural_s(n));
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
		if (proc_is_32bit(s->opts.pids[i])) {
			log_error("process %d runs a 32-bit program: only 64-bit ones can be recorded", s->opts.pids[i]);
			return -EOPNOTSUPP;
		}
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
		s->n_asked += !t->named;
		t->named = true;
		return 0;
	}
	err = look_at(pid, &f);
	if (err)
		return err;
	if (f.id.engine == TL_ENGINE_UNKNOWN)
		log_warn("pid %d (%s) is no engine that tokenlag knows: HTTP on its sockets is seen, and "
			 "its GPU work if it does any; steps are what that work shows of them",
			 pid, f.facts.comm);
	else
		err = discover_servers(s, &d);
	if (discovery__server_of(&d, pid))
		f.server = discovery__server_of(&d, pid);
	if (!err)
		err = add_all(s, &d, &f);
	proc_facts__free(&f.facts);
	t = map__get(s->targets, pid);
	if (t)
		t->named = true;
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
	struct discovery d = { 0 };
	int err = discover_servers(s, &d), n;
	size_t n_before = s->n_engines;

	if (err) {
		discovery__free(&d);
		return err;
	}
	err = add_all(s, &d, NULL);
	if (s->n_engines > n_before && !err)
		mark_wires(s, &d);
	n = d.n;
	if (!n)
		log_info("looked at %zu process%s, %zu of them unreadable", d.n_processes, plural(d.n_processes, "", "es"), d.n_refused);
	discovery__free(&d);
	return err ? err : n;
}

/* With -p: what the servers that were asked for have started since. */
static int add_started(struct session *s)
{
	struct discovery d = { 0 };
	int err = discover_servers(s, &d);
	size_t n_before = s->n_engines;

	if (err) {
		discovery__free(&d);
		return err;
	}
	err = add_all(s, &d, NULL);
	if (s->n_engines > n_before && !err)
		mark_wires(s, &d);
	discovery__free(&d);
	return err;
}

/* Looks every two seconds, then less and less often. */
void session_expect_engine(struct session *s, uint64_t now)
{
	if (now > s->look_until_ns) {
		s->look_pause_ns = LOOK_NS;
		s->look_ns = now;
	}
	s->look_until_ns = now + MAX_START_S * NS_PER_S;
}

static int add_pid_to(void *ctx, pid_t pid)
{
	uint64_t *sum = ctx;

	*sum += (uint64_t)pid * 0x9e3779b97f4a7c15;	/* whatever their order */
	return 0;
}

/* Looking into all processes takes tens of ms: only if there are others than before. */
int session_look(struct session *s, uint64_t now)
{
	uint64_t pids = 0;
	int n;

	if (now < s->check_ns)
		return 0;
	s->check_ns = now + LOOK_NS;
	if (!s->opts.n_pids && !proc_each(add_pid_to, &pids) && pids != s->pids) {
		s->pids = pids;
		s->look_until_ns = 0;
		session_expect_engine(s, now);
	}
	if (now > s->look_until_ns || now < s->look_ns)
		return 0;
	s->look_ns = now + s->look_pause_ns;
	if (s->look_pause_ns < MAX_LOOK_S * NS_PER_S)
		s->look_pause_ns *= 2;
	n = s->opts.n_pids ? add_started(s) : add_found(s);
	return n < 0 ? n : 0;
}

int session_attach(struct session *s)
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
