/* SPDX-License-Identifier: Apache-2.0 */
/* tokenlag report: what a recording says, as text or JSON. */
#include "base/str.h"
#include "cmd/cmd.h"
#include "cmd/log.h"
#include "cmd/replay.h"
#include "sink/json.h"
#include "sink/text.h"
#include <argp.h>
#include <errno.h>

struct report_opts {
	const char *file, *request;
	bool json, all, no_steps, no_self;
	uint64_t top;	/* 0: as many as by default */
	struct model_opts model;
};

enum { OPT_NO_STEPS = 256, OPT_NO_SELF, OPT_NO_TASKS };

static const struct argp_option options[] = {
	{ "json", 'j', NULL, 0, "Print JSON (doc/report-json.md)", 0 },
	{ "request", 'r', "ID", 0, "Details of one request: r17, 17, or the beginning of its response id, "
	  "X-Request-Id or traceparent", 0 },
	{ "all", 'a', NULL, 0, "Text: list all requests; JSON: also gaps that are as usual", 0 },
	{ "top", 'n', "N", 0, "Text: list this many of the slowest requests. Default: 12", 0 },
	{ "no-steps", OPT_NO_STEPS, NULL, 0, "JSON: leave out the steps, which are its bulk", 1 },
	{ "no-self", OPT_NO_SELF, NULL, 0, "JSON: leave out the observer's own costs, the only part in which "
	  "a replay differs from what record --json printed", 1 },
	{ "no-task-join", OPT_NO_TASKS, NULL, 0, "Join requests to slots by token counts and times alone, as "
	  "on a server without symbols: shows what that evidence is worth", 1 },
	{ 0 }
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct report_opts *o = state->input;

	switch (key) {
	case 'j':
		o->json = true;
		return 0;
	case 'a':
		o->all = true;
		return 0;
	case 'n':
		if (str_parse_u64(arg, &o->top) || !o->top)
			argp_error(state, "'%s' is no number of requests: 1 or more", arg);
		return 0;
	case 'r':
		o->request = arg;
		return 0;
	case OPT_NO_STEPS:
		o->no_steps = true;
		return 0;
	case OPT_NO_SELF:
		o->no_self = true;
		return 0;
	case OPT_NO_TASKS:
		o->model.no_task_join = true;
		return 0;
	case ARGP_KEY_ARG:
		return replay_arg(&o->file, arg, state);
	}
	return ARGP_ERR_UNKNOWN;
}

static int print(const void *asked, const struct model_view *v, const char *trouble)
{
	const struct report_opts *o = asked;
	struct json_opts jo = { .no_steps = o->no_steps, .no_self = o->no_self, .all_gaps = o->all,
				.trouble = *trouble ? trouble : NULL };
	struct text_opts to = replay_text_opts();
	struct summary s;
	size_t i;
	int err;

	err = summarise(v, &s);
	if (err)
		return err;
	to.max_requests = o->all ? SIZE_MAX : o->top;
	if (!o->json)
		say_trouble(trouble);
	if (!o->request)
		return o->json ? json_report(v, &s, &jo, stdout) : text_report(v, &s, &to, stdout);
	if (replay_find(v, o->request, &i))
		return -ENOENT;
	return text_request(v, i, &to, stdout);
}

int cmd_report(int argc, char **argv)
{
	static const struct argp_child children[] = { { &log_argp, 0, "Messages:", -1 }, { 0 } };
	static const struct argp argp = { options, parse, "[FILE]",
		"Say what a recording holds: the answer first, then coverage, percentiles, requests. "
		"FILE: trace.tlag if not given.\v"
		"Example: the report, then everything about its slowest request\n"
		"  tokenlag report trace.tlag && tokenlag report trace.tlag --request r17",
		children, NULL, NULL };
	struct report_opts o = { 0 };	/* file: NULL until it is given */

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (o.json && o.request) {
		log_error("--request prints text: 'tokenlag why --json' has JSON of one request, and jq takes it out of the "
			  "report's: '.requests[] | select(.id == \"%s\")'", o.request);
		return CMD_USAGE;
	}
	return replay_command(o.file, &o.model, print, &o);
}
