/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences that several outputs share: what a metric means, and what was not seen. */
#ifndef TL_NOTES_H
#define TL_NOTES_H

#include "model/summary.h"

/* Metrics as differences of measurement points; ends with metric == NULL. */
struct definition {
	const char *metric;	/* as in the report's JSON, without the unit */
	const char *formula;
};
extern const struct definition definitions[];

/* Says, one sentence a call, what a reader must know before believing the numbers: losses first. */
typedef void (*note_fn)(void *ctx, const char *sentence);
/* 0 or -ENOMEM. */
int notes_each(const struct model_view *v, const struct summary *s, note_fn fn, void *ctx);

/* The sentence on one note of model/health.h; and those that must stand before any answer: a hang,
 * an observer that cost too much. */
struct health_note;
void note_of_health(const struct model_view *v, const struct health_note *n, note_fn fn, void *ctx);
void notes_urgent(const struct model_view *v, note_fn fn, void *ctx);

/* Why a request is not complete, "" if it is. Returns buf. */
const char *request_reason(const struct rec_request *r, char *buf, size_t size);

/* The weakest join of the request's sequences; NULL: it has none. */
const struct rec_sequence *request_join(const struct model_view *v, const struct rec_request *r);

/* "r18", or "slot 2" for a sequence of no request that was seen. Returns buf. */
const char *sequence_name(const struct model_view *v, uint32_t seq, char buf[24]);

const char *finish_name(uint8_t finish);	/* "stop", "length" ...; NULL: not known */
const char *api_name(uint8_t api);
const char *method_name(uint8_t method);	/* "POST" ...; NULL: not known */
const char *lost_where_name(uint16_t where);	/* "ring", "scratch", "parser", "limit" */

#endif
