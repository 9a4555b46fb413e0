/* SPDX-License-Identifier: Apache-2.0 */
/* tokenlag why: the waterfall of one request. */
#include "cmd/cmd.h"
#include "cmd/log.h"
#include "cmd/replay.h"
#include "model/summary.h"
#include "sink/why.h"
#include <argp.h>
#include <errno.h>

struct why_args {
	const char *file, *request;
	bool json;
};

static const struct argp_option options[] = {
	{ "json", 'j', NULL, 0, "Print JSON (doc/report-json.md)", 0 },
	{ "request", 'r', "ID", 0, "The same as REQUEST", 0 },
	{ 0 }
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct why_args *o = state->input;

	switch (key) {
	case 'j':
		o->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (!o->file) {
			o->file = arg;
			return 0;
		}
		/* fall through */
	case 'r':
		if (o->request)
			argp_error(state, "one request at a time: '%s' and '%s'", o->request, arg);
		o->request = arg;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* The request that waited longest for its first token, or took longest if none was streamed. */
static bool worst(const struct model_view *v, size_t *ret)
{
	int64_t best = -1;

	for (int pass = 0; pass < 2 && best < 0; pass++)
		for (size_t i = 0; i < v->n_requests; i++) {
			struct req_metrics rm;
			int64_t x;

			request_metrics(v, &v->requests[i], &rm);
			x = pass ? rm.e2e_ns : rm.ttft_ns;
			if (x > best) {
				best = x;
				*ret = i;
			}
		}
	return best >= 0;
}

static int print(const void *asked, const struct model_view *v, const char *trouble)
{
	const struct why_args *o = asked;
	struct text_opts wo = replay_text_opts();
	size_t i;

	if (!o->json)
		say_trouble(trouble);
	if (o->request) {
		if (replay_find(v, o->request, &i))
			return -ENOENT;
	} else if (!worst(v, &i)) {
		log_error("the recording has no request that was seen from its beginning to its end");
		return -ENOENT;
	}
	if (o->json)
		return why_request_json(v, i, *trouble ? trouble : NULL, stdout);
	return why_request(v, i, &wo, stdout);
}

int cmd_why(int argc, char **argv)
{
	static const struct argp_child children[] = { { &log_argp, 0, "Messages:", -1 }, { 0 } };
	static const struct argp argp = { options, parse, "[FILE [REQUEST]]",
		"Show where the time of one request went: waits, prefill steps, decode steps with who else was "
		"in them, delivery. Without REQUEST: the one with the worst TTFT. FILE: trace.tlag if not "
		"given.\v"
		"REQUEST is r17, 17, or the beginning of a response id, X-Request-Id or traceparent.\n"
		"Example: its waterfall, then what it was made of, for a script\n"
		"  tokenlag why trace.tlag r17 && tokenlag why --json trace.tlag r17 | jq .parts",
		children, NULL, NULL };
	struct why_args o = { 0 };

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	return replay_command(o.file, NULL, print, &o);
}
