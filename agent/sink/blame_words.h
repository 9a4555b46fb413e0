/* SPDX-License-Identifier: Apache-2.0 */
/* Blame in words: culprits, parts of a gap, what to do, and the answer for a person in trouble. */
#ifndef TL_SINK_BLAME_WORDS_H
#define TL_SINK_BLAME_WORDS_H

#include "model/blame_sum.h"

enum { CULPRIT_TEXT = 160 };	/* room for each of these */
/* "r17", "slot 2", "ffmpeg (pid 4242)", "vllm (pid 7, of this server)", "rank 2", "client at port 5000"; "" for
 * nobody. Returns buf. */
const char *culprit_text(const struct model_view *v, const struct culprit *c, char *buf, size_t size);
/* The same in one word, for a column: "r17", "ffmpeg", "rank 2"; "nobody". Returns buf. */
const char *culprit_brief(const struct model_view *v, const struct culprit *c, char *buf, size_t size);

/* The same of several that are one culprit: "cc1 (14 processes, first pids 7, 8, 9)". Returns buf. */
const char *who_text(const struct model_view *v, const struct blame_who *w, char *buf, size_t size);

/* "160 ms prefill in the same step (r3), 20.0 ms own decode": parts of a gap, longest first. */
const char *gap_text(const struct model_view *v, const struct gap *g, char *buf, size_t size);

/* "garbage collection; CPU quota used up": bit i is enum mechanism i. Returns buf. */
const char *mechanisms_text(uint64_t bits, char *buf, size_t size);

/* The same of what is not among these (found, or looked for); a whole group is named as such. Own ones,
 * the scheduler's and what is lost or unexplained are left out. */
const char *not_watched_text(uint64_t known, char *buf, size_t size);

/* ", of which 2.26 s of 3 still waiting" behind a total of waits for first tokens; `before`: how it
 * begins. "" if none is. Returns buf. */
enum { OPEN_TEXT = 80 };
const char *open_ttfts_text(const struct blame_sum *s, const char *before, char buf[OPEN_TEXT]);

/* What to do about it, as a clause; "" where there is nothing to say. */
const char *mechanism_advice(enum mechanism m);

/* Which mechanism, who, what to do: a sentence on the time between tokens and one on the time before the
 * first, as far as these are worth it; the worse one first. `mechanism`: N_MECHANISMS: whichever is worst.
 * Returns 0 or -ENOMEM. */
int blame_answer(const struct model_view *v, const struct blame_sum *s, enum mechanism mechanism,
		 char *buf, size_t size);
/* The first of these sentences alone; "" if nothing is worth opening a report with. */
int blame_opening(const struct model_view *v, const struct blame_sum *s, char *buf, size_t size);

#endif
