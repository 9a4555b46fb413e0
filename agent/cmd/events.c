/* SPDX-License-Identifier: Apache-2.0 */
/* tokenlag events: a recording as JSON lines. */
#include "base/str.h"
#include "base/util.h"
#include "cmd/cmd.h"
#include "cmd/log.h"
#include "cmd/replay.h"
#include "parse/event.h"
#include "parse/event_json.h"
#include "sink/find.h"
#include "source/file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_KINDS = 32 };

struct events_opts {
	const char *path, *request;
	uint16_t kinds[MAX_KINDS];
	size_t n_kinds;		/* 0: all */
	uint64_t from_ns, to_ns;	/* since the start of the capture */
	uint64_t req;		/* of `request`; 0: all */
};

static const struct argp_option options[] = {
	{ "kind", 'k', "KIND,...", 0, "These kinds only: names as printed, or numbers", 0 },
	{ "from", 'f', "MS", 0, "Not what came before this time since the capture began", 0 },
	{ "to", 't', "MS", 0, "Not what came at this time or later", 0 },
	{ "request", 'r', "ID", 0, "Events of one request only (by their key req): r17, 17, or the beginning of its response "
	  "id, X-Request-Id or traceparent", 0 },
	{ 0 },
};

static bool add_kind(struct events_opts *o, const char *name)
{
	const struct event_kind *k = event_kind_by_name(name);
	uint64_t number;

	if (k)
		o->kinds[o->n_kinds++] = k->kind;
	else if (!str_parse_u64(name, &number) && number <= UINT16_MAX)
		o->kinds[o->n_kinds++] = (uint16_t)number;
	else
		return false;
	return true;
}

static const char *all_kinds(char *buf, size_t size)
{
	size_t at = 0;

	for (uint32_t i = 0; i <= UINT16_MAX && at < size; i++)
		if (event_kind(i))
			at += snprintf(buf + at, size - at, " %s", event_kind(i)->name);
	return buf;
}

static void parse_kinds(struct events_opts *o, char *list, struct argp_state *state)
{
	char *save, *name, known[2048];

	for (name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		if (o->n_kinds == MAX_KINDS)
			argp_error(state, "more than %d kinds", MAX_KINDS);
		if (!add_kind(o, name))
			argp_failure(state, 2, 0, "unknown kind '%s'; known are%s", name, all_kinds(known, sizeof(known)));
	}
}

static uint64_t parse_ms(const char *arg, struct argp_state *state)
{
	uint64_t ns;
	char text[32];

	if (snprintf(text, sizeof(text), "%sms", arg) >= (int)sizeof(text) ||
	    str_parse_duration(text, &ns))
		argp_error(state, "'%s' is no number of milliseconds", arg);
	return ns;
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct events_opts *o = state->input;

	switch (key) {
	case 'k':
		parse_kinds(o, arg, state);
		return 0;
	case 'f':
		o->from_ns = parse_ms(arg, state);
		return 0;
	case 't':
		o->to_ns = parse_ms(arg, state);
		return 0;
	case 'r':
		o->request = arg;
		return 0;
	case ARGP_KEY_ARG:
		return replay_arg(&o->path, arg, state);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static bool is_of_request(const struct tl_hdr *ev, uint64_t req)
{
	const struct event_kind *k = event_kind(ev->kind);

	for (size_t i = 0; k && i < k->n_fields; i++) {
		const struct event_field *f = &k->fields[i];
		uint32_t v;

		if (strcmp(f->name, "req") != 0 || f->offset + sizeof(v) > ev->size)
			continue;
		memcpy(&v, (const char *)ev + f->offset, sizeof(v));
		return v == req;
	}
	return false;
}

static bool is_wanted(const struct events_opts *o, uint64_t start_ns, const struct tl_hdr *ev)
{
	uint64_t since_ns = ev->ts_ns > start_ns ? ev->ts_ns - start_ns : 0;
	bool kind_ok = o->n_kinds == 0;

	for (size_t i = 0; i < o->n_kinds; i++)
		kind_ok |= o->kinds[i] == ev->kind;
	return kind_ok && since_ns >= o->from_ns && since_ns < o->to_ns &&
	       (!o->req || is_of_request(ev, o->req));
}

static int write_stdout(void *ctx, const char *data, size_t len)
{
	(void)ctx;
	return fwrite(data, 1, len, stdout) == len ? 0 : -errno;
}

static int print_events(struct rec_reader *r, const struct events_opts *o)
{
	uint64_t start_ns = rec_reader__header(r)->mono_ns;
	const struct tl_hdr *ev;
	struct jsonw w;
	int more, err;

	rec_reader__want_all(r);
	jsonw__init(&w, write_stdout, NULL);
	event_json_header(&w, rec_reader__header(r));
	jsonw__newline(&w);
	while ((more = rec_reader__next(r, &ev)) > 0) {
		if (!is_wanted(o, start_ns, ev))
			continue;
		event_json(&w, ev);
		jsonw__newline(&w);
	}
	err = jsonw__finish(&w);
	if (!err && fflush(stdout))
		err = -errno;
	if (err)
		log_error("cannot write the events: %s", strerror(-err));
	else if (more < 0)
		log_error("cannot read '%s': %s", o->path, rec_error_text(more));
	return err ?: more;
}

static int open_file(const char *path, struct src_file **ret)
{
	int err = src_file__open(path, ret);

	if (err)
		log_error("cannot read '%s': %s", path, rec_error_text(err));
	return err;
}

/* Is anything told of this number? Not all are requests to an LLM, and not all of these are in a report. */
static int has_events(const char *path, uint64_t req, bool *ret)
{
	const struct tl_hdr *ev;
	struct src_file *f;
	int err = open_file(path, &f);

	if (err)
		return err;
	*ret = false;
	while (!*ret && rec_reader__next(src_file__reader(f), &ev) > 0)
		*ret = is_of_request(ev, req);
	src_file__close(f);
	return 0;
}

/* The request that a person means. What of the recording could not be read was said if *ret_read. */
static int find_request_number(struct events_opts *o, bool *ret_read)
{
	char trouble[TROUBLE_SIZE];
	struct model_view v;
	struct model *m;
	bool found = false;
	size_t i;
	int err = 0;

	if (find_is_number(o->request, &o->req) && o->req)
		err = has_events(o->path, o->req, &found);
	if (err || found)
		return err;
	err = replay_file(o->path, NULL, &m, trouble);
	if (err)
		return err;
	*ret_read = true;
	model__view(m, &v);
	err = replay_find(&v, o->request, &i);
	if (!err)
		o->req = v.requests[i].req;
	model__free(m);
	return err;
}

int cmd_events(int argc, char **argv)
{
	static const struct argp_child children[] = { { &log_argp, 0, "Messages:", -1 }, { 0 } };
	static const struct argp argp = { options, parse_opt, "[FILE]",
		"Print a recording as JSON lines: its header, then one event per line. "
		"`tokenlag import` reads them back. FILE: trace.tlag if not given.\v"
		"Example: tokenlag events trace.tlag --kind step --from 1000 | head", children, NULL, NULL };
	struct events_opts o = { .to_ns = UINT64_MAX };
	struct src_file *f;
	char trouble[TROUBLE_SIZE];
	bool was_read = false;
	int err;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (!o.path)
		o.path = replay_default();
	if (!o.path)
		return CMD_USAGE;
	if (o.request && find_request_number(&o, &was_read))
		return CMD_FAILED;
	if (open_file(o.path, &f))
		return CMD_FAILED;
	err = print_events(src_file__reader(f), &o);
	if (!err && !was_read && rec_reader__trouble(src_file__reader(f), trouble, sizeof(trouble)))
		log_warn("'%s': %s", o.path, trouble);
	src_file__close(f);
	return err ? CMD_FAILED : CMD_OK;
}
