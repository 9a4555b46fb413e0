/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of notes: what its files share and nobody else sees. */
#ifndef TL_NOTES_PRIV_H
#define TL_NOTES_PRIV_H

#include "base/util.h"
#include "sink/notes.h"

struct say {
	note_fn fn;
	void *ctx;
};
void say(const struct say *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Since the start of the recording. */
static inline double ms_since(const struct model_view *v, uint64_t ns)
{
	return ns > v->t0_ns ? (double)(ns - v->t0_ns) / 1e6 : 0;
}

/* notes_health.c */
void note_health(const struct model_view *v, const struct say *to);

#endif
