/* SPDX-License-Identifier: Apache-2.0 */
/* Reads recordings into models. */
#include "cmd/replay.h"

#include "cmd/cmd.h"
#include "cmd/log.h"
#include "cmd/screen.h"
#include "sink/find.h"
#include "sink/json.h"
#include "source/file.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int feed_all(struct rec_reader *in, struct model *m)
{
	const struct tl_hdr *ev;
	int n, err;

	while ((n = rec_reader__next(in, &ev)) > 0) {
		err = model__feed(m, ev);
		if (err)
			return err;
	}
	return n;
}

const char *replay_default(void)
{
	static const char name[] = "trace.tlag";

	if (!access(name, F_OK))
		return name;
	log_error("which recording? There is no '%s' here: name a file, or make one with 'tokenlag record'", name);
	return NULL;
}

int replay_file(const char *path, const struct model_opts *opts, struct model **ret, char *trouble)
{
	struct src_file *f = NULL;
	struct model *m = NULL;
	int err;

	err = src_file__open(path, &f);
	if (err) {
		log_error("cannot read '%s': %s", path, rec_error_text(err));
		return err;
	}
	m = model__new(opts);
	err = m ? feed_all(src_file__reader(f), m) : -ENOMEM;
	if (!err)
		err = model__finish(m);
	if (err) {
		log_error("cannot read '%s': %s", path, rec_error_text(err));
		model__free(m);
	} else {
		*trouble = '\0';
		if (rec_reader__trouble(src_file__reader(f), trouble, TROUBLE_SIZE))
			log_warn("'%s': %s", path, trouble);
		*ret = m;
	}
	src_file__close(f);
	return err;
}

int replay_command(const char *path, const struct model_opts *opts, replay_print print, const void *asked)
{
	char trouble[TROUBLE_SIZE];
	struct model_view v;
	struct model *m;
	int err;

	if (!path)
		path = replay_default();
	if (!path)
		return CMD_USAGE;
	if (replay_file(path, opts, &m, trouble))
		return CMD_FAILED;
	model__view(m, &v);
	err = print(asked, &v, trouble);
	if (err && err != -ENOENT)
		log_error("cannot print: %s", strerror(-err));
	model__free(m);
	return err ? CMD_FAILED : CMD_OK;
}

error_t replay_arg(const char **path, const char *arg, struct argp_state *state)
{
	if (*path)
		argp_error(state, "one recording at a time: '%s' and '%s'", *path, arg);
	*path = arg;
	return 0;
}

int replay_find(const struct model_view *v, const char *what, size_t *ret)
{
	char why[512];

	if (!find_request(v, what, ret, why, sizeof(why)))
		return 0;
	log_error("%s", why);
	return -ENOENT;
}

struct text_opts replay_text_opts(void)
{
	return (struct text_opts){ .width = screen_width(), .color = screen_color(), .utf8 = screen_utf8() };
}

void say_trouble(const char *trouble)
{
	if (*trouble)
		printf("THIS RECORDING COULD NOT BE READ IN FULL: %s.\n", trouble);
}

int replay_print_json(const struct model *m, FILE *out)
{
	struct model_view v;
	struct summary s;
	int err;

	model__view(m, &v);
	err = summarise(&v, &s);
	return err ? err : json_report(&v, &s, &(struct json_opts){ 0 }, out);
}
