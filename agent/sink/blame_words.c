/* SPDX-License-Identifier: Apache-2.0 */
/* Culprits, parts and advice in words. */
#include "sink/blame_words.h"
#include "base/plural.h"
#include "base/units.h"
#include "base/util.h"
#include "model/evidence.h"
#include "sink/notes.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NAMED_PARTS = 6, MAX_IDS_NAMED = 3 };

static const char *const advice[N_MECHANISMS] = {
	[MECH_PREFILL] = "smaller chunks of prefill bound each stall, not their sum",
	[MECH_RECOMPUTE] = "a larger KV cache, or fewer sequences at once, ends preemptions",
	[MECH_PREEMPTED] = "a larger KV cache, or fewer sequences at once, ends preemptions",
	[MECH_STEP_WAIT] = "shorter steps bound it: smaller chunks of prefill",
	[MECH_PAUSED] = "see who sends POST /pause or /sleep, and what for; /resume or /wake_up ends "
			"it",
	[MECH_LEFT_OUT] = "look for an option that computes prefill and decode in one step (chunked "
			  "prefill)",
	[MECH_HOST] = "profile the engine's thread: it schedules, prepares input and samples",
	[MECH_GC] = "freeze what is there after the start (gc.freeze()), or collect less often",
	[MECH_GIL] = "move what that thread does into another process",
	[MECH_COMPILE] = "warm every shape up before traffic comes",
	[MECH_GRAMMAR] = "keep compiled grammars, or compile them off the serving loop",
	[MECH_THROTTLED] = "raise the quota (cpu.max), or let fewer threads compute",
	[MECH_RUN_QUEUE] = "give the engine CPUs of its own, or move the other process",
	[MECH_FEW_CPUS] = "give the server more CPUs, or let fewer of its threads run at once "
			  "(OMP_NUM_THREADS, threads of tokenizers)",
	[MECH_PAGE_FAULT] = "lock the model in memory, and see what else needs memory",
	[MECH_STOPPED] = "see who stops it: SIGSTOP, a debugger, a frozen cgroup (docker pause)",
	[MECH_GRAPH_MISS] = "capture graphs for this batch size, or run no more sequences than captured",
	[MECH_PADDING] = "capture a size in between",
	[MECH_COLLECTIVE] = "see what the host of that rank does: pin its threads",
	[MECH_COMMUNICATION] = "the links are the limit: fewer ranks, or faster ones",
	[MECH_NEIGHBOUR] = "move the other process to another device",
	[MECH_CLOCK] = "raise the power limit, or cool it better",
	[MECH_COPY] = "look for copies from pageable memory in every step",
	[MECH_EVENT_LOOP] = "tokenize off the event loop or run more API processes; limit the size of "
			    "prompts at the gateway",
	[MECH_TOKENIZER] = "run more API processes; limit the size of prompts at the gateway",
	[MECH_METRICS] = "scrape less often, or from a process of its own",
	[MECH_DETOKENIZER] = "run more processes that detokenize, or stream several tokens per chunk",
	[MECH_APP_BUFFER] = "turn compression and buffering middleware off for streams",
	[MECH_NAGLE] = "set TCP_NODELAY on the sockets of the server (or the proxy), and do not cork them",
	[MECH_SLOW_CLIENT] = "the client has to read faster: the engine is not slower for it",
	[MECH_PROXY_BUFFER] = "turn the proxy's buffering off for streams (nginx: proxy_buffering off)",
	[MECH_NETWORK] = "look at the path to the client: segments are lost",
	[MECH_BEFORE_HOST] = "look at the gateway: it passed before the first byte came here",
};

const char *mechanism_advice(enum mechanism m)
{
	return m < N_MECHANISMS && advice[m] ? advice[m] : "";
}

/* ---- culprits ---- */

static const char *request_name(const struct model_view *v, uint32_t i, char *buf, size_t size)
{
	if (i < v->n_requests)
		snprintf(buf, size, "r%u", v->requests[i].req);
	else
		snprintf(buf, size, "a request");
	return buf;
}

const char *culprit_brief(const struct model_view *v, const struct culprit *c, char *buf, size_t size)
{
	static const char *const names[N_CULPRIT_TYPES] = {
		[WHO_NOBODY] = "nobody",  [WHO_THREAD] = "tid",	   [WHO_PROCESS] = "pid",
		[WHO_CGROUP] = "cgroup",  [WHO_DEVICE] = "GPU",	   [WHO_RANK] = "rank",
		[WHO_CLIENT] = "client",  [WHO_NETWORK] = "network",
	};
	char seq[24];

	if (c->type == WHO_REQUEST)
		return request_name(v, c->id, buf, size);
	if (c->type == WHO_SEQUENCE && c->id < v->n_seqs)
		snprintf(buf, size, "%s", sequence_name(v, c->id, seq));
	else if (c->type >= N_CULPRIT_TYPES || !names[c->type])
		snprintf(buf, size, "?");
	else if (c->type == WHO_DEVICE || c->type == WHO_RANK)
		snprintf(buf, size, "%s %u", names[c->type], c->id);
	else if (c->name[0])
		snprintf(buf, size, "%.*s", (int)sizeof(c->name), c->name);
	else if (c->type == WHO_THREAD || c->type == WHO_PROCESS)
		snprintf(buf, size, "%s %u", names[c->type], c->id);
	else if (c->type == WHO_CLIENT && c->id)
		snprintf(buf, size, ":%u", c->id);
	else
		snprintf(buf, size, "%s", names[c->type]);
	return buf;
}

/* Is it a process or a thread of what was recorded? */
static bool is_of_server(const struct model_view *v, enum culprit_type type, uint32_t id)
{
	const struct evidence *e = v->evidence;

	for (size_t i = 0; type == WHO_PROCESS && i < v->n_engines; i++)
		if (v->engines[i].e.hdr.tgid == id)
			return true;
	for (size_t i = 0; e && i < e->threads.n; i++) {
		const struct tl_thread *t = &e->threads.v[i];

		if (t->role != TL_ROLE_PROXY && t->server && (type == WHO_THREAD ? t->hdr.tid : t->hdr.tgid) == id)
			return true;
	}
	return false;
}

/* ", of this server": what was recorded; ", not this recording": another tokenlag than the one that recorded. */
static const char *relation(const struct model_view *v, enum culprit_type type, const char *name, const uint32_t *ids,
			    size_t n)
{
	uint32_t recorder = v->self ? v->self->hdr.tgid : 0;

	if (n && is_of_server(v, type, ids[0]))
		return ", of this server";
	if (type != WHO_PROCESS || strcmp(name, "tokenlag") || !recorder)
		return "";
	for (size_t i = 0; i < n && i < MAX_WHO_IDS; i++)
		if (ids[i] == recorder)
			return plural(n, ", this recording", ", this recording and others");
	return n <= MAX_WHO_IDS ? ", not this recording" : "";
}

const char *culprit_text(const struct model_view *v, const struct culprit *c, char *buf, size_t size)
{
	char brief[48];

	culprit_brief(v, c, brief, sizeof(brief));
	switch (c->type) {
	case WHO_NOBODY:
		buf[0] = '\0';
		break;
	case WHO_THREAD:
	case WHO_PROCESS:
		if (c->name[0] && c->id)
			snprintf(buf, size, "%s (%s %u%s)", brief, c->type == WHO_THREAD ? "tid" : "pid", c->id,
				 relation(v, c->type, c->name, &c->id, 1));
		else
			snprintf(buf, size, "%s", brief);
		break;
	case WHO_CGROUP:
		snprintf(buf, size, c->name[0] ? "cgroup %s" : "%s", brief);
		break;
	case WHO_DEVICE:
	case WHO_RANK:
		snprintf(buf, size, c->name[0] ? "%s (%.32s)" : "%s", brief, c->name);
		break;
	case WHO_CLIENT:
		if (c->name[0] && c->id)
			snprintf(buf, size, "client at port %u (%s)", c->id, brief);
		else if (c->id)
			snprintf(buf, size, "client at port %u", c->id);
		else
			snprintf(buf, size, "%s", brief);
		break;
	default:
		snprintf(buf, size, "%s", brief);
	}
	return buf;
}

const char *who_text(const struct model_view *v, const struct blame_who *w, char *buf, size_t size)
{
	bool is_thread = w->who.type == WHO_THREAD;
	char brief[48], ids[64] = "";
	int at = 0;

	if (w->n_ids <= 1)
		return culprit_text(v, &w->who, buf, size);
	culprit_brief(v, &w->who, brief, sizeof(brief));
	if (w->who.type == WHO_CLIENT) {	/* ports say nothing: each connection has another one */
		snprintf(buf, size, "%s (%u connections)", brief, w->n_ids);
		return buf;
	}
	for (size_t i = 0; w->ids[0] && i < MAX_IDS_NAMED && i < w->n_ids; i++)
		at += snprintf(ids + at, sizeof(ids) - (size_t)at, "%s%u", i ? ", " : "", w->ids[i]);
	if (!at)	/* a part of one gap: who they are stands elsewhere */
		snprintf(buf, size, "%s (%u %s)", brief, w->n_ids, is_thread ? "threads" : "processes");
	else
		snprintf(buf, size, "%s (%u %s, %s%s %s%s)", brief, w->n_ids, is_thread ? "threads" : "processes",
			 w->n_ids > MAX_IDS_NAMED ? "first " : "", is_thread ? "tids" : "pids", ids,
			 relation(v, w->who.type, w->who.name, w->ids, w->n_ids));
	return buf;
}

/* ---- parts ---- */

/* A part, or several with the same reason. */
struct said_part {
	const struct blame_part *p;
	uint64_t ns;
	uint32_t n;
};

/* The parts of a gap, the same ones added up, the longest first. Returns how many. */
static size_t parts_to_say(const struct gap *g, struct said_part *ret, uint64_t *ret_rest_ns)
{
	size_t n = 0;

	*ret_rest_ns = 0;
	for (size_t i = 0; i < g->n_parts; i++) {
		const struct blame_part *p = &g->parts[i];
		size_t at = 0;

		if (p->mechanism >= N_MECHANISMS) {
			*ret_rest_ns += p->ns;
			continue;
		}
		while (at < n && !(ret[at].p->mechanism == p->mechanism && ret[at].p->prov == p->prov &&
				   culprit_same(&ret[at].p->who, &p->who) &&
				   culprit_same(&ret[at].p->root, &p->root)))
			at++;
		if (at == n)
			ret[n++] = (struct said_part){ .p = p };
		ret[at].ns += p->ns;
		ret[at].n += !ret[at].n || ret[at].p->who.id != p->who.id;
		for (; at && ret[at - 1].ns < ret[at].ns; at--) {
			struct said_part longer = ret[at];

			ret[at] = ret[at - 1];
			ret[at - 1] = longer;
		}
	}
	return n;
}

/* "cc1 (pid 7)" to "cc1, pid 7": what stands in brackets itself has none. */
static void without_brackets(char *text)
{
	char *open = strstr(text, " ("), *close = strrchr(text, ')');

	if (!open || !close || close[1])
		return;
	*close = '\0';
	open[0] = ',';
	open[1] = ' ';
}

/* " (r3, because of r7, inferred)" */
static int whose(const struct model_view *v, const struct said_part *s, char *buf, size_t size)
{
	const struct blame_part *p = s->p;
	const struct blame_who w = { .who = p->who, .n_ids = s->n };
	bool inferred = p->prov == PROV_INFERRED && !mechanism_is_own((enum mechanism)p->mechanism) &&
			p->mechanism < MECH_LOST;
	const char *and = "";
	char who[CULPRIT_TEXT], root[CULPRIT_TEXT];
	int n = 0;

	who_text(v, &w, who, sizeof(who));
	culprit_text(v, &p->root, root, sizeof(root));
	if (p->root.type == WHO_CGROUP && !strcmp(p->root.name, "/"))
		root[0] = '\0'; /* says nothing */
	if (!*who && !*root && !inferred)
		return 0;
	without_brackets(who);
	without_brackets(root);
	n = snprintf(buf, size, " (%s", who);
	if (*who)
		and = ", ";
	if (*root) {
		n += snprintf(buf + n, size - (size_t)n, "%s%s%s", and,
			      p->root.type == WHO_CGROUP ? "of " : "because of ", root);
		and = ", ";
	}
	return n + snprintf(buf + n, size - (size_t)n, "%s)", inferred ? *and ? ", inferred" : "inferred" : "");
}

/* Where nobody knows what it was, where it was is the next best. */
static const char *place_of(const struct gap *g, uint8_t mechanism, uint64_t ns)
{
	uint64_t behind = g->behind_ns[MECH_UNEXPLAINED];

	if (mechanism != MECH_UNEXPLAINED || !g->seq)
		return "";
	if (10 * behind < ns)
		return " before its step ended";
	if (10 * behind < 9 * ns)
		return "";
	return g->side == GAP_CLIENT ? " between its step and the client" : " between its step and the write";
}

static size_t one_part(const struct model_view *v, const struct gap *g, const struct said_part *s,
		       char *buf, size_t size)
{
	char ms[UNITS_LEN];
	uint8_t mechanism = s->p->mechanism;
	size_t at = (size_t)snprintf(buf, size, "%s %s%s", units_ns(ms, s->ns),
				     mechanism_labels[mechanism], place_of(g, mechanism, s->ns));

	return at + (size_t)whose(v, s, buf + at, size - at);
}

/* All parts of a mechanism. */
struct said_mechanism {
	uint64_t ns;
	size_t n, first;	/* parts; the longest of them */
};

/* "35.4 ms wait for a CPU (14.6 ms python, 10.8 ms old, 10.0 ms cc1 and 2 more)" */
static size_t many_parts(const struct model_view *v, const struct said_part *parts, size_t n,
			 const struct said_mechanism *m, char *buf, size_t size)
{
	uint8_t mechanism = parts[m->first].p->mechanism;
	char ms[UNITS_LEN], who[CULPRIT_TEXT];
	size_t named = 0, at = (size_t)snprintf(buf, size, "%s %s (", units_ns(ms, m->ns),
						mechanism_labels[mechanism]);

	for (size_t i = m->first; i < n && named < MAX_IDS_NAMED; i++) {
		if (parts[i].p->mechanism != mechanism)
			continue;
		culprit_brief(v, &parts[i].p->who, who, sizeof(who));
		at += (size_t)snprintf(buf + at, size - at, "%s%s %.40s", named++ ? ", " : "",
				       units_ns(ms, parts[i].ns), who);
	}
	if (m->n > named)
		at += (size_t)snprintf(buf + at, size - at, " and %zu more", m->n - named);
	return at + (size_t)snprintf(buf + at, size - at, ")");
}

/* More parts than can be named: added up by mechanism, each with at least 5 % of the span. Returns
 * the rest. */
static uint64_t by_mechanism(const struct model_view *v, const struct gap *g,
			     const struct said_part *parts, size_t n, char *buf, size_t size,
			     size_t *at)
{
	struct said_mechanism sums[N_MECHANISMS] = { 0 };
	uint64_t rest = 0;

	for (size_t i = 0; i < n; i++) {
		struct said_mechanism *m = &sums[parts[i].p->mechanism];

		m->first = m->n++ ? m->first : i;
		m->ns += parts[i].ns;
	}
	for (;;) {
		struct said_mechanism *m = &sums[0];

		for (int k = 1; k < N_MECHANISMS; k++)
			m = sums[k].ns > m->ns ? &sums[k] : m;
		if (!m->ns)
			return rest;
		if ((*at && 20 * m->ns < g->t1_ns - g->t0_ns) ||
		    *at + 2 * CULPRIT_TEXT + 100 > size) {
			rest += m->ns;
		} else {
			*at += (size_t)snprintf(buf + *at, size - *at, "%s", *at ? ", " : "");
			*at += m->n == 1 ? one_part(v, g, &parts[m->first], buf + *at, size - *at)
					 : many_parts(v, parts, n, m, buf + *at, size - *at);
		}
		m->ns = 0;
	}
}

const char *gap_text(const struct model_view *v, const struct gap *g, char *buf, size_t size)
{
	struct said_part parts[MAX_PARTS];
	uint64_t rest;
	size_t n = parts_to_say(g, parts, &rest), at = 0;
	char ms[UNITS_LEN];

	buf[0] = '\0';
	if (n > MAX_NAMED_PARTS + 1)
		rest += by_mechanism(v, g, parts, n, buf, size, &at);
	for (size_t i = 0; i < n && n <= MAX_NAMED_PARTS + 1; i++) {
		if (at + 2 * CULPRIT_TEXT + 100 > size) {
			rest += parts[i].ns;
			continue;
		}
		at += (size_t)snprintf(buf + at, size - at, "%s", at ? ", " : "");
		at += one_part(v, g, &parts[i], buf + at, size - at);
	}
	if (rest)
		snprintf(buf + at, size - at, ", %s in smaller parts", units_ns(ms, rest));
	return buf;
}

const char *mechanisms_text(uint64_t bits, char *buf, size_t size)
{
	size_t at = 0;

	buf[0] = '\0';
	for (int m = 0; m < N_MECHANISMS && at < size; m++)
		if (bits & 1ull << m)
			at += (size_t)snprintf(buf + at, size - at, "%s%s", at ? "; " : "",
					       mechanism_labels[m]);
	return buf;
}

const char *not_watched_text(uint64_t known, char *buf, size_t size)
{
	static const struct {
		enum mechanism first, last;
		const char *name;
	} groups[] = {
		{ MECH_HOST, MECH_GRAMMAR, "what the engine's threads did (GC, GIL, compiling, grammars)" },
		{ MECH_THROTTLED, MECH_STOPPED, "the machine (CPU quota, run queue, disk, stops)" },
		{ MECH_GRAPH_MISS, MECH_COPY, "devices (graphs, ranks, neighbours, clocks, copies)" },
		{ MECH_EVENT_LOOP, MECH_APP_BUFFER, "the front end (event loop, detokenizer)" },
		{ MECH_NAGLE, MECH_BEFORE_HOST, "what is behind its sockets (Nagle, client, proxy, network)" },
	};
	char text[400];
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(groups) && at < size; i++) {
		uint64_t all = (2ull << groups[i].last) - (1ull << groups[i].first);
		uint64_t not = all & ~known;

		if (not)
			at += (size_t)snprintf(buf + at, size - at, "%s%s", at ? "; " : "",
					       not == all ? groups[i].name
							  : mechanisms_text(not, text, sizeof(text)));
	}
	return buf;
}

const char *open_ttfts_text(const struct blame_sum *s, const char *before, char buf[OPEN_TEXT])
{
	char ms[UNITS_LEN];

	buf[0] = '\0';
	if (s->n_open_ttfts)
		snprintf(buf, OPEN_TEXT, "%s%s of %u still waiting", before,
			 units_ns(ms, s->open_ttfts_ns), s->n_open_ttfts);
	return buf;
}
