/* SPDX-License-Identifier: Apache-2.0 */
/* Reads recordings into models. */
#include "cmd/replay.h"

#include "cmd/log.h"
#include "sink/json.h"
#include "source/file.h"
#include <errno.h>
#include <stdlib.h>
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
