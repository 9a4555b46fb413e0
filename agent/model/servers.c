/* SPDX-License-Identifier: Apache-2.0 */
/* An index over engines and threads by process: which server, which rank. */
#include "model/servers.h"
#include "base/map.h"
#include "model/evidence.h"

#include <errno.h>
#include <stdlib.h>

struct said {			/* of a process */
	uint32_t server;	/* 0: nobody says */
	bool by_engine;
	bool has_rank;
	int16_t rank;
};
struct servers {
	struct map *said;	/* by tgid */
	uint32_t only;
};

static int add_engines(struct servers *s, const struct model_view *v)
{
	bool several = false;

	for (size_t i = 0; i < v->n_engines; i++) {
		const struct tl_engine *e = &v->engines[i].e;
		struct said *p = map__put(s->said, e->hdr.tgid, NULL);

		if (!p)
			return -ENOMEM;
		p->server = server_of_engine(e);
		p->by_engine = true;
		if (!p->server)
			continue;	/* one whose pid was used again */
		several |= s->only && p->server != s->only;
		s->only = p->server;
	}
	if (several)
		s->only = 0;
	return 0;
}

static int add_threads(struct servers *s, const struct model_view *v)
{
	for (size_t i = 0; v->evidence && i < v->evidence->threads.n; i++) {
		const struct tl_thread *t = &v->evidence->threads.v[i];
		struct said *p;

		if (!t->server && t->rank < 0)
			continue;
		p = map__put(s->said, t->hdr.tgid, NULL);
		if (!p)
			return -ENOMEM;
		if (!p->by_engine && !p->server)
			p->server = t->server;
		if (!p->has_rank && t->rank >= 0) {
			p->has_rank = true;
			p->rank = t->rank;
		}
	}
	return 0;
}

int servers__new(const struct model_view *v, struct servers **ret)
{
	struct servers *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->said = map__new(sizeof(struct said), SIZE_MAX);
	err = s->said ? add_engines(s, v) : -ENOMEM;
	if (!err)
		err = add_threads(s, v);
	if (err) {
		servers__free(s);
		return err;
	}
	*ret = s;
	return 0;
}

void servers__free(struct servers *s)
{
	if (!s)
		return;
	map__free(s->said);
	free(s);
}

int servers_limits(const struct model_view *v, struct engine_limits **ret)
{
	struct engine_limits *limits = calloc(v->n_engines + 1, sizeof(*limits));
	struct map *of_server = map__new(sizeof(struct engine_limits), SIZE_MAX);
	struct engine_limits *l;
	int err = limits && of_server ? 0 : -ENOMEM;

	for (size_t i = 0; i < v->n_engines && !err; i++) {
		const struct tl_engine *e = &v->engines[i].e;

		l = map__put(of_server, server_of_engine(e), NULL);
		if (!l) {
			err = -ENOMEM;
			break;
		}
		l->max_seqs = l->max_seqs ? l->max_seqs : e->max_seqs;
		l->max_step_tokens = l->max_step_tokens ? l->max_step_tokens : e->max_step_tokens;
	}
	for (size_t i = 0; i < v->n_engines && !err; i++) {
		const struct tl_engine *e = &v->engines[i].e;

		l = map__get(of_server, server_of_engine(e));
		limits[i].max_seqs = e->max_seqs ? e->max_seqs : l->max_seqs;
		limits[i].max_step_tokens = e->max_step_tokens ? e->max_step_tokens
							       : l->max_step_tokens;
	}
	map__free(of_server);
	if (err)
		free(limits);
	else
		*ret = limits;
	return err;
}

uint32_t servers__of(const struct servers *s, uint32_t tgid)
{
	const struct said *p = map__get(s->said, tgid);

	return p ? p->server : 0;
}

int servers__rank(const struct servers *s, uint32_t tgid)
{
	const struct said *p = map__get(s->said, tgid);

	return p && p->has_rank ? p->rank : -1;
}

uint32_t servers__only(const struct servers *s)
{
	return s->only;
}
