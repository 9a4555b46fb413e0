/* SPDX-License-Identifier: Apache-2.0 */
/* tokenlag record: capture running servers to a file. */
#include "base/plural.h"
#include "base/str.h"
#include "cmd/cmd.h"
#include "cmd/log.h"
#include "cmd/replay.h"
#include "cmd/session.h"
#include "model/model.h"
#include "sink/recording.h"
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { MAX_PIDS = 256, TICK_NS = 1000000000 };

struct record_opts {
	pid_t pids[MAX_PIDS];
	size_t n_pids;
	const char *out;
	uint64_t duration_ns;	/* 0: until a signal */
	uint32_t tiers;
	enum tl_gpu_level gpu;
	uint32_t gpu_budget_ppm;
	uint64_t head_bytes, tail_bytes, ring_bytes;
	bool json, raw, force, no_proxies, gpu_asked;
};

struct recording {
	struct record_opts o;
	struct session *session;
	struct rec_writer *file;
	struct model *model;	/* --json: the report of what was seen live */
	uint64_t begin_ns, tick_ns;
	uint64_t end_ns, requests_open;	/* when it was to end: what is open is closed then */
	int signals;		/* signalfd */
	uint64_t n_lost;	/* events, for whatever reason */
	uint64_t n_others;	/* requests that are no LLM's: a report does not list them */
	bool tty;
};

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0, "Attach to this process (repeatable). Default: every engine found", 0 },
	{ "duration", 'd', "TIME", 0, "Stop after 30s, 5m ... Default: at Ctrl-C, or when the -p processes end", 0 },
	{ "output", 'o', "FILE", 0, "Recording to write; an older one is kept as FILE.old. Default: trace.tlag", 0 },
	{ "force", 'f', NULL, 0, "Overwrite FILE even if it is no recording", 0 },
	{ "json", 'j', NULL, 0, "At the end print the report of what was seen live, as JSON", 0 },
	{ "tier", 't', "N", 0, "Highest tier to use: 0 kernel only, 1 also probes in the engine. Default: 1", 1 },
	{ "gpu", 'g', "LEVEL", 0, "How deep to look into GPU work: off, launches, graph, kernels. Default: launches", 1 },
	{ "gpu-budget", 'G', "PCT", 0, "What that may cost of the server's speed; 100: whatever it costs. Default: 1", 1 },
	{ "head", 'H', "BYTES", 0, "Keep this much of the start of each read and write. Default: 4k", 1 },
	{ "tail", 'T', "BYTES", 0, "Keep this much of its end if it is longer. Default: 1k", 1 },
	{ "ring", 'R', "BYTES", 0, "Size of the kernel's event buffer, a power of two. Default: 8M", 1 },
	{ "no-proxies", 'x', NULL, 0, "Leave out proxies on this host that stand before an engine (nginx, envoy ...)", 1 },
	{ "raw", 'r', NULL, 0, "Also keep the bytes of the wire, to debug parsers: THE FILE THEN HOLDS TEXT OF "
	  "PROMPTS AND ANSWERS", 1 },
	{ 0 }
};

static void parse_size(struct argp_state *state, const char *what, const char *arg, uint64_t *ret)
{
	if (str_parse_size(arg, ret) || !*ret || *ret > 1u << 30)
		argp_error(state, "%s '%s' is no size; write 4096, 4k or 16M", what, arg);
}

static enum tl_gpu_level parse_gpu(struct argp_state *state, const char *arg)
{
	static const char *const levels[] = {
		[TL_GPU_OFF] = "off", [TL_GPU_LAUNCHES] = "launches", [TL_GPU_GRAPH] = "graph",
		[TL_GPU_KERNELS] = "kernels",
	};

	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (!strcmp(arg, levels[i]))
			return i;
	argp_error(state, "--gpu '%s' is not off, launches, graph or kernels", arg);
	return TL_GPU_OFF;
}

static uint32_t parse_budget(struct argp_state *state, const char *arg)
{
	char *end;
	double pct = strtod(arg, &end);

	if (end == arg || *end || !(pct >= 0.01 && pct <= 100))
		argp_error(state, "--gpu-budget '%s' is no percentage from 0.01 to 100", arg);
	return pct * 10000;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct record_opts *o = state->input;
	uint64_t n;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = NULL;
		return 0;
	case 'p':
		if (str_parse_u64(arg, &n) || !n || n > INT32_MAX)
			argp_error(state, "'%s' is no process id", arg);
		if (o->n_pids == MAX_PIDS)
			argp_error(state, "more than %d processes", MAX_PIDS);
		o->pids[o->n_pids++] = n;
		return 0;
	case 'd':
		if (str_parse_duration(arg, &o->duration_ns) || !o->duration_ns)
			argp_error(state, "'%s' is no duration; write 30s, 500ms or 5m", arg);
		return 0;
	case 'o':
		if (!strcmp(arg, "-"))
			argp_error(state, "a recording cannot go to a pipe; name a file, then: tokenlag events FILE");
		o->out = arg;
		return 0;
	case 'f':
		o->force = true;
		return 0;
	case 'j':
		o->json = true;
		return 0;
	case 't':
		if (str_parse_u64(arg, &n) || n > 1)
			argp_error(state, "tier '%s' is not 0 or 1", arg);
		o->tiers = n ? TL_T0 | TL_T1 : TL_T0;
		return 0;
	case 'g':
		o->gpu = parse_gpu(state, arg);
		o->gpu_asked = true;
		return 0;
	case 'G':
		o->gpu_budget_ppm = parse_budget(state, arg);
		return 0;
	case 'H':
		parse_size(state, "head", arg, &o->head_bytes);
		return 0;
	case 'T':
		parse_size(state, "tail", arg, &o->tail_bytes);
		return 0;
	case 'R':
		parse_size(state, "ring", arg, &o->ring_bytes);
		if (o->ring_bytes & (o->ring_bytes - 1) || o->ring_bytes < 4096)
			argp_error(state, "ring '%s' is no power of two of at least 4k", arg);
		return 0;
	case 'x':
		o->no_proxies = true;
		return 0;
	case 'r':
		o->raw = true;
		return 0;
	case ARGP_KEY_END:
		if (o->gpu_asked && o->gpu && !(o->tiers & TL_T1))
			argp_error(state, "--tier 0 allows no --gpu: it needs probes in processes");
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected '%s'; did you mean -p %s or -o %s?", arg, arg, arg);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* ---- events ---- */

static int say_cannot_write(const struct recording *r, int err)
{
	log_error("cannot write '%s': %s", r->o.out, rec_writer_error_text(err));
	return -ECANCELED;	/* said already */
}

/* The file is made when the first event comes: a capture that cannot begin leaves none. */
static int open_file(struct recording *r, const struct tl_host *h)
{
	struct tl_file_hdr hdr = {
		.flags = r->o.raw ? TL_FILE_RAW : 0, .tiers = h->tiers, .probes = h->probes,
		.mono_ns = h->hdr.ts_ns, .realtime_ns = h->realtime_ns, .clock_err_ns = h->clock_err_ns,
	};
	int err;

	memcpy(hdr.hostname, h->hostname, sizeof(hdr.hostname));
	memcpy(hdr.kernel, h->kernel, sizeof(hdr.kernel));
	memcpy(hdr.tool, h->tool, sizeof(hdr.tool));
	err = rec_writer__open(r->o.out, &hdr, &(struct rec_writer_opts){ .force = r->o.force, .keep_old = true }, &r->file);
	return err ? say_cannot_write(r, err) : 0;
}

static int on_event(void *ctx, const struct tl_hdr *ev)
{
	struct recording *r = ctx;
	int err = 0;

	if (!r->file)
		err = ev->kind == TL_HOST ? open_file(r, (const void *)ev) : -EPROTO;
	if (!err)
		err = rec_writer__write(r->file, ev);
	if (ev->kind == TL_LOST)
		r->n_lost += ((const struct tl_lost *)ev)->n;
	r->n_others += ev->kind == TL_REQ_BEGIN && !(ev->flags & TL_F_JOINED) && (ev->flags & 0xff) == TL_API_OTHER;
	if (r->model && model__feed(r->model, ev) == -ENOMEM)
		log_warn("out of memory for the live report; the recording goes on");
	return err;
}

static int on_raw(void *ctx, const struct tl_hdr *ev)
{
	return rec_writer__write(((struct recording *)ctx)->file, ev);
}

/* ---- progress ---- */

static void print_progress(const struct recording *r, bool last)
{
	struct session_status s;
	char others[40] = "";
	double secs, per_token;
	uint64_t requests;

	session__status(r->session, &s);
	if (last)
		s.wire.requests_now = r->requests_open;
	requests = s.wire.requests > r->n_others ? s.wire.requests - r->n_others : 0;
	secs = ((last ? r->end_ns : monotonic_ns()) - r->begin_ns) / 1e9;
	per_token = s.wire.tokens ? (double)(s.bpf.run_ns - s.bpf.threads_ns) / s.wire.tokens / 1e3 : 0;
	if (r->n_others)
		snprintf(others, sizeof(others), " and %" PRIu64 " other%s", r->n_others, plural_s(r->n_others));
	fprintf(stderr, "%s%.0f s: %" PRIu64 " request%s%s (%" PRIu64 " %s), %" PRIu64 " chunk%s with tokens, %"
		PRIu64 " step%s, lost %" PRIu64 "; agent %.1f %% of a core, %.1f us BPF per token, %.1f MB%s",
		r->tty && !last ? "\r\033[K" : "tokenlag: ", secs,
		requests, plural_s(requests), others, s.wire.requests_now, last ? "not ended" : "now", s.wire.tokens, plural_s(s.wire.tokens), s.steps,
		plural_s(s.steps), r->n_lost, s.elapsed_ns ? s.agent_cpu_ns * 100.0 / s.elapsed_ns : 0,
		per_token, s.rss_bytes / 1e6, r->tty && !last ? "" : "\n");
}

/* Once a second: costs into the recording, the recording to the disk, progress to the screen. */
static int tick(struct recording *r)
{
	int err = session__say_self(r->session);

	if (!err)
		err = rec_writer__flush(r->file);
	if (r->tty && log_get_level() > LOG_QUIET)
		print_progress(r, false);
	return err;
}

/* ---- life cycle ---- */

static int block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static uint32_t run(struct recording *r, int *ret_err)
{
	struct pollfd fds[2] = {
		{ .fd = session__fd(r->session), .events = POLLIN },
		{ .fd = r->signals, .events = POLLIN },
	};

	for (;;) {
		uint64_t now;

		/* The kernel is asked at least ten times a second, woken or not. */
		poll(fds, 2, 100);
		*ret_err = session__poll(r->session, 0);
		if (*ret_err)
			return TL_STOP_ERROR;
		if (fds[1].revents)
			return TL_STOP_SIGNAL;
		now = monotonic_ns();
		if (r->o.duration_ns && now - r->begin_ns >= r->o.duration_ns)
			return TL_STOP_DONE;
		if (session__targets_gone(r->session))
			return TL_STOP_TARGET_EXIT;
		if (now - r->tick_ns < TICK_NS)
			continue;
		r->tick_ns = now;
		*ret_err = tick(r);
		if (*ret_err)
			return TL_STOP_ERROR;
	}
}

static int print_json(struct recording *r)
{
	int err = model__finish(r->model);

	return err ? err : replay_print_json(r->model, stdout);
}

static int record(struct recording *r)
{
	struct session_opts so = {
		.pids = r->o.pids, .n_pids = r->o.n_pids, .no_proxies = r->o.no_proxies, .gpu = r->o.tiers & TL_T1 ? r->o.gpu : TL_GPU_OFF,
		.gpu_budget_ppm = r->o.gpu_budget_ppm, .gpu_asked = r->o.gpu_asked,
		.bpf = { .head_bytes = r->o.head_bytes, .tail_bytes = r->o.tail_bytes,
			 .ring_bytes = r->o.ring_bytes, .tiers = r->o.tiers },
		.out = { on_event, r }, .raw = { r->o.raw ? on_raw : NULL, r },
	};
	struct session_status last;
	uint64_t attach_ns = monotonic_ns();
	uint32_t why;
	int err, end_err;

	err = rec_writer_check(r->o.out, r->o.force);	/* before anything is attached */
	if (err)
		return say_cannot_write(r, err);
	if (r->o.raw)
		log_warn("--raw: '%s' will hold text of prompts and answers", r->o.out);
	/* for a person who waits; what is refused is one sentence */
	if (!isatty(STDERR_FILENO) || log_get_level() == LOG_QUIET)
		;
	else if (r->o.n_pids)
		fprintf(stderr, "tokenlag: attaching to %zu process%s ...\n", r->o.n_pids, plural(r->o.n_pids, "", "es"));
	else
		fputs("tokenlag: looking for engines and attaching to them ...\n", stderr);
	err = session__open(&so, &r->session);
	if (err)
		return err;
	r->begin_ns = r->tick_ns = monotonic_ns();
	if (log_get_level() > LOG_QUIET) {
		struct session_status s;

		session__status(r->session, &s);
		fprintf(stderr, "tokenlag: recording %zu engine process%s%s to '%s', attached in %.1f s; %s\n", s.n_engines,
			plural(s.n_engines, "", "es"), s.n_proxies ? " and what stands before them" : "", r->o.out,
			(monotonic_ns() - attach_ns) / 1e9, r->o.duration_ns ? "Ctrl-C stops early" : "Ctrl-C stops");
	}
	why = run(r, &err);
	session__status(r->session, &last);
	r->end_ns = monotonic_ns();
	r->requests_open = last.wire.requests_now;
	end_err = session__stop(r->session, why);
	if (r->tty && log_get_level() > LOG_QUIET)
		fputs("\r\033[K", stderr);
	if (!err)
		err = end_err;
	end_err = rec_writer__close(r->file, !err);
	r->file = NULL;
	if (!err)
		err = end_err;
	if (err == -ENOSPC)
		log_error("the disk is full: '%s' holds what was captured until then and can be read", r->o.out);
	else if (err)
		log_error("recording to '%s' stopped: %s", r->o.out, strerror(-err));
	if (why == TL_STOP_TARGET_EXIT)
		log_warn("the process being recorded has exited; recording ended with it");
	session__status(r->session, &last);
	if (last.wire.tls_conns)
		log_warn("%" PRIu64 " connection%s encrypted (TLS): what %s carried was not read", last.wire.tls_conns,
			 plural(last.wire.tls_conns, " is", "s are"), plural(last.wire.tls_conns, "it", "they"));
	if (log_get_level() > LOG_QUIET) {
		print_progress(r, true);
		fprintf(stderr, "tokenlag: wrote '%s'; next: tokenlag report %s\n", r->o.out, r->o.out);
	}
	if (r->model) {
		end_err = print_json(r);
		if (end_err)
			log_error("cannot print the report: %s", strerror(-end_err));
		err = err ? err : end_err;
	}
	return err;
}

int cmd_record(int argc, char **argv)
{
	static const struct argp_child children[] = { { &log_argp, 0, "Messages:", -1 }, { 0 } };
	static const struct argp argp = { options, parse, NULL,
		"Capture running LLM servers to a recording. Nothing in them is changed or restarted (--gpu graph "
		"and kernels bring a library into them); the recording holds ids, times and counts, never text.\v"
		"Example: 30 seconds of the server with pid 4242, then the answer\n"
		"  tokenlag record -p 4242 -d 30 -o trace.tlag && tokenlag report trace.tlag",
		children, NULL, NULL };
	struct recording r = { .o = { .out = "trace.tlag", .tiers = TL_T0 | TL_T1, .gpu = TL_GPU_LAUNCHES },
			       .signals = -1 };
	int err;

	argp_parse(&argp, argc, argv, 0, NULL, &r.o);
	r.tty = isatty(STDERR_FILENO);
	r.signals = block_signals();
	if (r.signals < 0) {
		log_error("cannot wait for signals: %s", strerror(errno));
		return CMD_FAILED;
	}
	if (r.o.json) {
		r.model = model__new(NULL);
		if (!r.model) {
			log_error("out of memory");
			return CMD_FAILED;
		}
	}
	err = record(&r);
	session__close(r.session);
	model__free(r.model);
	close(r.signals);
	return err ? CMD_FAILED : CMD_OK;
}
