/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the processes of a server that use CUDA, enters them, and takes what they tell. */
#include "cmd/session_gpu_priv.h"

#include "cmd/log.h"
#include "cmd/session.h"
#include "source/gpu_find.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAX_PROCESSES = 4096, /* of all servers, those without CUDA included */
	MAX_SERVERS = 256,
	MAX_STREAMS = 16384,
	RING_OF_MANY = 4 << 20, /* for each but the first of many processes */
	MAX_LOOK_S = 64, /* how seldom a process is asked whether it uses CUDA by now */
	RETRY_S = 2, MAX_RETRY_S = 64, /* when it is tried again to enter it */
};

struct session_gpu *session_gpu__new(const struct session_gpu_opts *opts)
{
	struct session_gpu *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->opts = *opts;
	s->processes = map__new(sizeof(struct gpu_process), MAX_PROCESSES);
	s->servers = map__new(sizeof(struct gpu_server), MAX_SERVERS);
	s->streams = map__new(sizeof(uint64_t), MAX_STREAMS);
	if (s->processes && s->servers && s->streams)
		return s;
	session_gpu__free(s);
	return NULL;
}

static void ignore(void *ctx, const struct tl_hdr *ev)
{
	(void)ctx, (void)ev;
}

void session_gpu__free(struct session_gpu *s)
{
	struct gpu_process *p;

	if (!s)
		return;
	for (p = s->processes ? map__oldest(s->processes, NULL) : NULL; p;
	     p = map__newer(s->processes, p, NULL)) {
		if (p->gpu)
			gpu__let_go(p->gpu, monotonic_ns());
	}
	for (p = s->processes ? map__oldest(s->processes, NULL) : NULL; p;
	     p = map__newer(s->processes, p, NULL))
		gpu__leave(p->gpu, ignore, NULL);
	session_gpu_close_probes(s);
	session_gpu_close_nvml(s);
	map__free(s->processes);
	map__free(s->servers);
	map__free(s->streams);
	free(s);
}

/* ---- who ---- */

static void begin_server(struct session_gpu *s, struct gpu_server *sv)
{
	struct governor_opts go = { .wanted = s->opts.level, .budget_ppm = s->opts.budget_ppm };

	governor__init(&sv->gov, &go, monotonic_ns());
}

static int add(struct session_gpu *s, uint32_t tgid, uint32_t server)
{
	struct gpu_server *sv = map__get(s->servers, server);
	struct gpu_process *p;
	bool fresh;

	if (!sv) {
		sv = map__put(s->servers, server, NULL);
		if (!sv)
			return map__is_full(s->servers) ? 0 : -ENOMEM;
		begin_server(s, sv);
		s->any_new = true;
	}
	p = map__put(s->processes, tgid, &fresh);
	if (!p)
		return map__is_full(s->processes) ? 0 : -ENOMEM;
	if (fresh)
		*p = (struct gpu_process){ .server = server, .look_ns = 1, .pause_ns = NS_PER_S };
	return 0;
}

int session_gpu__add(struct session_gpu *s, uint32_t tgid, uint32_t server)
{
	uint32_t *pids = NULL;
	int n, err = add(s, tgid, server);

	n = err ? err : gpu_descendants(tgid, &pids);
	for (int i = 0; i < n && !err; i++)
		err = add(s, pids[i], server);
	free(pids);
	return err ? err : n < 0 ? n : 0;
}

/* It runs another program: the library has gone with the one before. */
static void lose(struct session_gpu *s, uint32_t tgid, struct gpu_process *p)
{
	if (!p->gpu)
		return;
	log_info("pid %u runs another program now: the GPU records of the one before end with it", tgid);
	gpu__abandon(p->gpu, session_gpu_pass, s);
	p->gpu = NULL;
	p->leaving = false;
}

int session_gpu__note(struct session_gpu *s, const struct tl_raw_proc *e)
{
	struct gpu_process *p =
		map__get(s->processes, e->what == TL_PROC_FORK ? e->parent : e->hdr.tgid);
	/* Most children live shorter, or run another program soon. */
	uint64_t later = e->hdr.ts_ns + NS_PER_S;
	int err = 0;

	if (!p)
		return 0;
	if (e->what == TL_PROC_FORK) {
		err = add(s, e->hdr.tgid, p->server);
		p = map__get(s->processes, e->hdr.tgid);
		if (p && !err)
			p->look_ns = later;
	} else if (e->what == TL_PROC_EXEC && (!p->gpu || e->hdr.ts_ns > p->entered_ns)) {
		lose(s, e->hdr.tgid, p);
		session_gpu_unprobe(s, e->hdr.tgid, p);
		p->uses_cuda = p->refused = p->viewed = p->sought = p->probes_refused = false;
		p->devices = p->retry_ns = 0;
		p->look_ns = later;
		p->pause_ns = NS_PER_S;
	} else if (e->what == TL_PROC_EXIT) {
		p->gone = s->any_gone = true;
	}
	return err;
}

void session_gpu__see(struct session_gpu *s, const struct tl_hdr *ev)
{
	const struct tl_chunk *c = (const void *)ev;
	const struct gpu_process *p;
	struct gpu_server *sv;
	uint64_t key, *last;

	if (ev->kind != TL_CHUNK || !(ev->flags & (TL_CHUNK_TOKEN | TL_CHUNK_EMPTY)))
		return;
	p = map__get(s->processes, ev->tgid);
	sv = p ? map__get(s->servers, p->server) : NULL;
	if (!sv)
		return;
	sv->chunk_ns = ev->ts_ns;
	key = (uint64_t)c->req << 16 | c->choice;
	last = map__get(s->streams, key);
	if (last) {
		governor__gap(&sv->gov, *last, ev->ts_ns);
		map__touch(s->streams, last);
	} else {
		if (map__is_full(s->streams) && map__oldest(s->streams, &key))
			map__del(s->streams, key);
		last = map__put(s->streams, (uint64_t)c->req << 16 | c->choice, NULL);
	}
	if (last)
		*last = ev->ts_ns;
}

/* ---- in and out ---- */

void session_gpu_say_level(struct session_gpu *s, uint32_t tgid, const struct gpu_process *p,
			   enum tl_gpu_level from, enum tl_gpu_level to, const struct gpu_reason *why)
{
	uint64_t now = monotonic_ns();
	struct tl_gpu_health h = {
		.hdr = { sizeof(h), TL_GPU_HEALTH, p->simulated ? TL_GPU_SIMULATED : 0, tgid, 0,
			 now },
		.since_ns = now,
		.level = from,
		.to_level = to,
	};

	if (why) {
		h.trouble = why->trouble;
		h.overhead_ppm = why->ppm;
		memcpy(h.holder, why->holder, sizeof(h.holder));
		h.since_ns = why->since_ns ? why->since_ns : now;
		h.hdr.ts_ns = why->until_ns ? why->until_ns : now;
		snprintf(h.why, sizeof(h.why), "%s", why->why);
	}
	session_gpu_pass(s, &h.hdr);
}

/* Libraries that were brought in before would take silence for our end. */
static void beat_all(void *ctx)
{
	struct session_gpu *s = ctx;
	struct gpu_process *p;

	for (p = map__oldest(s->processes, NULL); p; p = map__newer(s->processes, p, NULL)) {
		if (p->gpu)
			gpu__beat(p->gpu);
	}
}

/* Threads that run, or are stopped, will wait one day; who has no descriptor free will have one.
 * A library that serves somebody is free soon if that was an agent that was killed: one more try
 * tells. */
static bool may_pass(int err, const struct gpu_entry *entry, const struct gpu_process *p)
{
	bool scarce = err == -EMFILE || err == -ENFILE || err == -ENOMEM;

	return scarce || err == -EAGAIN || err == -ETIMEDOUT ||
		(err == -EBUSY && entry->n_stops && !p->retry_ns);
}

/* BUSY only if somebody holds its records. */
static void say_refused(struct session_gpu *s, uint32_t tgid, const struct gpu_process *p,
			const struct gpu_entry *entry)
{
	struct gpu_reason r = { .trouble = *entry->holder ? TL_GPU_BUSY : TL_GPU_FINE };

	memcpy(r.holder, entry->holder, sizeof(r.holder));
	snprintf(r.why, sizeof(r.why), "%.191s", entry->why);
	session_gpu_say_level(s, tgid, p, s->opts.level, p->probed ? TL_GPU_LAUNCHES : TL_GPU_OFF,
			      &r);
}

static void try_later(struct session_gpu *s, uint32_t tgid, struct gpu_process *p,
		      const struct gpu_entry *entry)
{
	bool first = !p->retry_ns;

	p->retry_ns = first ? RETRY_S * NS_PER_S : 2 * p->retry_ns;
	if (p->retry_ns > MAX_RETRY_S * NS_PER_S)
		p->retry_ns = MAX_RETRY_S * NS_PER_S;
	p->look_ns = monotonic_ns() + p->retry_ns;
	(first ? log_warn : log_info)("pid %u: no GPU records yet: %s; tried again in %u s", tgid,
				      entry->why,
				      (uint32_t)(p->retry_ns / NS_PER_S));
	if (first)
		say_refused(s, tgid, p, entry);
}

static void enter(struct session_gpu *s, uint32_t tgid, struct gpu_process *p)
{
	struct gpu_attach_opts opts = { .tick = beat_all, .ctx = s };
	const struct gpu_server *sv = map__get(s->servers, p->server);
	const struct gpu_process *q;
	struct gpu_entry entry;
	int err;

	for (q = map__oldest(s->processes, NULL); q; q = map__newer(s->processes, q, NULL))
		if (q->gpu)
			opts.ring_bytes = RING_OF_MANY;
	p->entered_ns = monotonic_ns();
	err = gpu__attach(tgid, &opts, &p->gpu, &entry);

	p->look_ns = 0;
	if (err == -ESRCH) {
		p->gone = s->any_gone = true;
		return;
	}
	if (err) {
		p->gpu = NULL;
		session_gpu_advise_entry(err, entry.why, sizeof(entry.why));
	}
	if (err && may_pass(err, &entry, p)) {
		try_later(s, tgid, p, &entry);
		return;
	}
	if (err) {
		p->refused = true;
		p->trouble = err == -EBUSY ? TL_GPU_BUSY : TL_GPU_FINE;
		log_warn("pid %u: no GPU records: %s", tgid, entry.why);
		say_refused(s, tgid, p, &entry);
		return;
	}
	if (sv && s->opts.level == TL_GPU_GRAPH && !sv->gov.n_windows && sv->gov.pause_ns)
		log_warn("pid %u: records of graphs begin %.1f s after the attach: gaps between tokens are measured without them first",
			 tgid, sv->gov.pause_ns / 1e9);
	if (p->probed)
		gpu__falls_to(p->gpu, TL_GPU_LAUNCHES);
	p->before = (struct gpu_counts){ 0 };
	p->wait_ns = p->retry_ns = 0;
	p->ordered = false;
	p->window = (struct gpu_probed_window){ 0 };
	if (entry.way == GPU_BY_DOOR)
		log_info("pid %u: the library that it was started with gives GPU records", tgid);
	else if (entry.way == GPU_BY_PYTHON)
		log_info(
			"pid %u: entered for GPU records by a script that its Python ran (PEP 768), which took %.1f ms; "
			"ptrace was refused: %s",
			tgid, entry.stopped_ns / 1e6, entry.why);
	else
		log_info(
			"pid %u: entered for GPU records, a thread of it stood still for %.1f ms at most",
			tgid, entry.stopped_ns / 1e6);
}

static bool wants_records(struct session_gpu *s, const struct gpu_process *p)
{
	struct gpu_server *sv = map__get(s->servers, p->server);

	if (sv && sv->gov.for_good) /* what held for others may not hold for this one */
		begin_server(s, sv);
	return sv && sv->gov.level >= TL_GPU_GRAPH && !p->refused;
}

static int look(struct session_gpu *s, uint32_t tgid, struct gpu_process *p, uint64_t now)
{
	int uses = gpu_maps_cuda(tgid), err = 0;
	bool was_probed = p->probed;

	if (uses <= 0) {
		p->gone = uses == -ESRCH;
		s->any_gone |= p->gone;
		p->look_ns = now + p->pause_ns;
		if (p->pause_ns < MAX_LOOK_S * NS_PER_S)
			p->pause_ns *= 2;
		return 0;
	}
	p->look_ns = 0;
	p->uses_cuda = s->uses_cuda = true;
	p->simulated = gpu_is_simulated(tgid);
	if (!p->adopted)
		err = s->opts.adopt(s->opts.ctx, tgid, p->server);
	p->adopted = true;
	if (!err && !p->probed)
		err = session_gpu_probe(s, tgid, p);
	if (!err && p->probed && !was_probed)
		session_gpu_say_level(s, tgid, p, TL_GPU_OFF, TL_GPU_LAUNCHES, NULL);
	if (!err && wants_records(s, p))
		enter(s, tgid, p);
	return err;
}

static const char *why_of(uint32_t tgid, struct gpu *g, char *buf, size_t size)
{
	char holder[32] = "";

	snprintf(buf, size, "%s", gpu__why(g));
	session_gpu_name_holder(tgid, holder, buf, size);
	session_gpu_advise(buf, size);
	return buf;
}

/* The end of one that was told to leave, that cannot, or that has ended. */
static void part(struct session_gpu *s, uint32_t tgid, struct gpu_process *p, int why, uint64_t now)
{
	enum tl_ring_state state = gpu__state(p->gpu);
	char words[256];

	if (why == -ESRCH) {
		p->gone = s->any_gone = true;
		log_warn("pid %u has ended: its GPU records end with it", tgid);
	} else if (why == -EPROTO) {
		log_warn("pid %u: what its library writes are no events: it is not read any more",
			 tgid);
		p->refused = true;
	} else if (state == TL_RING_REFUSED) {
		p->refused = true;
		p->trouble = gpu__trouble(p->gpu);
		log_warn("pid %u: %s %s", tgid, p->leaving ? "when left:" : "no GPU records:",
			 why_of(tgid, p->gpu, words, sizeof(words)));
	} else if (state != TL_RING_LEFT && gpu__rest(p->gpu, words)) {
		log_warn("pid %u: its library is still %s%s: nothing more comes of it, and it leaves by "
			 "itself, without effect on the process; another agent can enter then",
			 tgid, *words ? "in " : "at work", words);
	} else if (state != TL_RING_LEFT) {
		log_warn("pid %u: its library has not left in time: its last records are missing; it leaves "
			 "by itself, without effect on the process, and another agent can enter then", tgid);
	} else if (*gpu__why(p->gpu)) {
		log_info("pid %u: %s", tgid, gpu__why(p->gpu));
	} else if (!p->leaving) {
		log_warn(
			"pid %u: its library has left: this agent stood still for too long; entered again",
			tgid);
		p->look_ns = now;
	}
	gpu__leave(p->gpu, session_gpu_pass, s);
	p->gpu = NULL;
	p->leaving = false;
}

/* For CUPTI, or for the process to use CUDA at all. */
static bool waits(struct gpu_process *p)
{
	static const char no_cuda[] = "CUDA is not in use";
	enum tl_ring_state state = gpu__state(p->gpu);

	return state == TL_RING_STARTING ||
	       (state == TL_RING_IDLE && !strncmp(gpu__why(p->gpu), no_cuda, sizeof(no_cuda) - 1));
}

static void poll_one(struct session_gpu *s, uint32_t tgid, struct gpu_process *p, uint64_t now)
{
	int n = gpu__poll(p->gpu, now, session_gpu_pass, s);
	enum tl_ring_state state = gpu__state(p->gpu);
	char words[256];

	if (n >= 0)
		session_gpu_judge_window(tgid, p);
	if (n < 0 || (!n && (state == TL_RING_REFUSED || state == TL_RING_LEFT)) ||
	    gpu__is_late(p->gpu, now)) {
		part(s, tgid, p, n, now);
	} else if (!waits(p)) {
		p->wait_ns = p->wait_ns == 1;
	} else if (!p->wait_ns) {
		p->wait_ns = now;
	} else if (p->wait_ns > 1 && now - p->wait_ns > NS_PER_S) {
		p->wait_ns = 1;
		log_warn("pid %u: %s", tgid, why_of(tgid, p->gpu, words, sizeof(words)));
	}
}

static bool drop_process(void *ctx, uint64_t tgid, void *value)
{
	struct gpu_process *p = value;

	if (!p->gone || p->gpu)
		return false;
	session_gpu_unprobe(ctx, tgid, p);
	return true;
}

static bool drop_server(void *ctx, uint64_t server, void *value)
{
	struct session_gpu *s = ctx;
	struct gpu_process *p;

	(void)value;
	for (p = map__oldest(s->processes, NULL); p; p = map__newer(s->processes, p, NULL)) {
		if (p->server == server)
			return false;
	}
	return true;
}

/* Once for each new server, when all its processes were looked at. */
static void say_no_cuda(struct session_gpu *s)
{
	struct gpu_server *sv;
	struct gpu_process *p;
	uint64_t server;

	for (sv = map__oldest(s->servers, &server); sv; sv = map__newer(s->servers, sv, &server)) {
		bool uses = sv->looked;
		uint32_t n = 0;

		sv->looked = true;
		for (p = map__oldest(s->processes, NULL); p && !uses;
		     p = map__newer(s->processes, p, NULL)) {
			if (p->server != server)
				continue;
			n++;
			uses = p->uses_cuda;
		}
		if (uses || !n)
			continue;
		(s->opts.asked ? log_warn : log_info)(
			"no libcuda in pid %u%s: nothing to probe; watching for it", (uint32_t)server,
			n > 1 ? " nor in its children" : "");
	}
	s->any_new = false;
}

int session_gpu__poll(struct session_gpu *s, uint64_t now)
{
	struct gpu_process *p;
	uint64_t tgid;
	int err = 0;

	if (s->any_gone) {
		map__sweep(s->processes, drop_process, s);
		map__sweep(s->servers, drop_server, s);
		s->any_gone = false;
	}
	for (p = map__oldest(s->processes, &tgid); p && !err;
	     p = map__newer(s->processes, p, &tgid)) {
		if (!p->gpu && p->look_ns && now >= p->look_ns) {
			err = look(s, tgid, p, now);
			now = monotonic_ns();	/* to enter one takes a while */
		}
		if (p->gpu)
			poll_one(s, tgid, p, now);
	}
	if (s->any_new)
		say_no_cuda(s);
	err = err ? err : session_gpu_poll_probes(s, now);
	err = err ? err : session_gpu_poll_nvml(s, now);
	err = err ? err : session_gpu_govern(s, now);
	return err ? err : s->err;
}

int session_gpu__end(struct session_gpu *s, uint64_t end_ns)
{
	struct gpu_process *p;
	uint64_t tgid;
	int err, nvml_err;

	/* First of all: libraries leave while we do the rest, and no step waits for longer than
	 * is left of the time. */
	for (p = map__oldest(s->processes, NULL); p; p = map__newer(s->processes, p, NULL)) {
		if (p->gpu)
			gpu__let_go(p->gpu, end_ns);
	}
	nvml_err = session_gpu_poll_nvml(s, end_ns);
	session_gpu_end_govern(s, end_ns);
	s->end_ns = end_ns;
	session_gpu_close_nvml(s);
	s->no_nvml = true;
	for (p = map__oldest(s->processes, NULL); p; p = map__newer(s->processes, p, NULL))
		p->leaving = true;
	for (p = map__oldest(s->processes, &tgid); p; p = map__newer(s->processes, p, &tgid)) {
		if (!p->gpu)
			continue;
		err = gpu__wait_left(p->gpu, session_gpu_pass, s);
		session_gpu_judge_window(tgid, p);
		part(s, tgid, p, err, monotonic_ns());
	}
	if (!s->uses_cuda && s->opts.asked)
		log_warn(
			"no process that was recorded uses CUDA: the recording holds nothing of GPUs");
	err = session_gpu_end_probes(s);
	return err ? err : nvml_err ? nvml_err : s->err;
}
