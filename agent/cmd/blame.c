/* SPDX-License-Identifier: Apache-2.0 */
/* tokenlag blame: who slowed whom, and by which mechanism. */
#include "base/str.h"
#include "cmd/cmd.h"
#include "cmd/log.h"
#include "cmd/replay.h"
#include "sink/blame_table.h"
#include "sink/json.h"
#include <argp.h>
#include <errno.h>
#include <string.h>

enum { DEFAULT_TOP = 10 };

struct blame_opts {
	const char *file, *request;
	bool json, all;
	enum mechanism mechanism;	/* N_MECHANISMS: any */
	uint64_t top;
};

static const struct argp_option options[] = {
	{ "json", 'j', NULL, 0, "Print JSON (doc/report-json.md): blame, what_if, and gaps and ttft_parts of "
	  "each request", 0 },
	{ "all", 'a', NULL, 0, "Text: leave out no pair; JSON: also gaps that are as usual", 0 },
	{ "request", 'r', "ID", 0, "What happened to one request, and whom it kept waiting: r17, 17, or the "
	  "beginning of its response id, X-Request-Id or traceparent", 0 },
	{ "mechanism", 'm', "NAME", 0, "One mechanism only: prefill, queue, event_loop ... (doc/mechanisms.md)", 0 },
	{ "top", 'n', "N", 0, "Text: rows of pairs and of longest gaps. Default: 10", 0 },
	{ 0 }
};

static enum mechanism find_mechanism(struct argp_state *state, const char *name)
{
	char names[700];
	size_t at = 0;

	for (int m = 0; m < N_MECHANISMS; m++) {
		if (!strcmp(mechanism_names[m], name))
			return (enum mechanism)m;
		if (at < sizeof(names))
			at += (size_t)snprintf(names + at, sizeof(names) - at, " %s", mechanism_names[m]);
	}
	argp_error(state, "there is no mechanism '%s', but:%s", name, names);
	return N_MECHANISMS;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct blame_opts *o = state->input;

	switch (key) {
	case 'j':
		o->json = true;
		return 0;
	case 'a':
		o->all = true;
		return 0;
	case 'r':
		o->request = arg;
		return 0;
	case 'm':
		o->mechanism = find_mechanism(state, arg);
		return 0;
	case 'n':
		if (str_parse_u64(arg, &o->top) || !o->top)
			argp_error(state, "'%s' is no number of rows: 1 or more", arg);
		return 0;
	case ARGP_KEY_ARG:
		return replay_arg(&o->file, arg, state);
	}
	return ARGP_ERR_UNKNOWN;
}

static int print_text(const struct blame_opts *o, const struct model_view *v, struct blame *b,
		      const struct summary *summary, const struct blame_selection *sel)
{
	struct text_opts to = replay_text_opts();
	struct blame_text t = { .v = v, .request = sel->request, .mechanism = o->mechanism,
				.top = o->all ? SIZE_MAX : o->top, .summary = summary };
	struct blame_sum *sum = NULL, *all = NULL;
	struct hows hows;
	int err = blame_sum__select(b, v, sel, &sum);

	if (!err)
		err = blame__how(b, sum, &hows);
	if (!err && sel->request)
		err = blame_sum__new(b, v, &all);
	if (!err) {
		t.sum = sum;
		t.hows = &hows;
		t.all = all;
		err = blame_text(&t, &to, stdout);
	}
	blame_sum__free(sum);
	blame_sum__free(all);
	return err;
}

static int print(const void *asked, const struct model_view *v, const char *trouble)
{
	const struct blame_opts *o = asked;
	struct json_opts jo = { .all_gaps = o->all, .trouble = *trouble ? trouble : NULL };
	struct blame_selection sel = { 0 };
	struct blame *b = NULL;
	struct summary summary;
	size_t i;
	int err;

	if (o->request) {
		if (replay_find(v, o->request, &i))
			return -ENOENT;
		sel.request = (uint32_t)i + 1;
	}
	if (o->mechanism < N_MECHANISMS)
		sel.mechanisms = 1ull << o->mechanism;
	if (!o->json)
		say_trouble(trouble);
	/* first what takes most memory, and gives it back */
	err = summarise(v, &summary);
	if (!err)
		err = blame__new(v, &b);
	if (!err && o->json)
		err = json_blame_only(v, &summary, b, &sel, &jo, stdout);
	else if (!err)
		err = print_text(o, v, b, &summary, &sel);
	blame__free(b);
	return err;
}

int cmd_blame(int argc, char **argv)
{
	static const struct argp_child children[] = { { &log_argp, 0, "Messages:", -1 }, { 0 } };
	static const struct argp argp = { options, parse, "[FILE]",
		"Say who slowed whom: which mechanism, caused by which request, thread, process or device, made "
		"tokens late, for how many ms. FILE: trace.tlag if not given.\v"
		"Example: the answer, then everything that the worst culprit did\n"
		"  tokenlag blame trace.tlag && tokenlag blame trace.tlag --request r17",
		children, NULL, NULL };
	struct blame_opts o = { .mechanism = N_MECHANISMS, .top = DEFAULT_TOP };

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	return replay_command(o.file, NULL, print, &o);
}
