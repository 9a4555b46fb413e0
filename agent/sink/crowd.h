/* SPDX-License-Identifier: Apache-2.0 */
/* Who else was in some steps: the sequences, and what each of them computed there. */
#ifndef TL_CROWD_H
#define TL_CROWD_H

#include "model/model.h"

enum { CROWD_MAX = 64 };	/* sequences told apart; more are counted */
struct crowd {
	struct { uint32_t seq; uint64_t prefill, decode; } who[CROWD_MAX];
	size_t n, n_more;
	uint64_t prefill;	/* tokens of all */
	uint32_t own;		/* request (index + 1) that this is about: its
				 * other sequences count as one; 0: none */
};

/* Adds the members of a step, `except` left out (UINT32_MAX: nobody). */
void crowd__add(struct crowd *c, const struct model_view *v, uint32_t step, uint32_t except);
/* The same, but only those that prefill: many that decode leave them their place. */
void crowd__add_prefill(struct crowd *c, const struct model_view *v, uint32_t step, uint32_t except);
/* Of one of them: "r4", "slot 2"; "its other answer" where it is a sequence of the
 * same request. Returns buf. */
const char *crowd__name(const struct crowd *c, const struct model_view *v, uint32_t seq, char buf[24]);
bool crowd__equal(const struct crowd *a, const struct crowd *b, const struct model_view *v);	/* the same requests? */
/* "prefill of r4 (1400 tok), decode of r3 r9"; "" if there is nobody. Returns buf. */
const char *crowd__text(const struct crowd *c, const struct model_view *v, char *buf, size_t size);
/* "r4 (1400 tok), r2 (54 tok) and 3 others": only who prefills, largest first. Returns buf. */
const char *crowd__prefill_text(const struct crowd *c, const struct model_view *v, char *buf,
				size_t size);
/* "r9, r3 and 2 others": who decodes most first, those that prefill too included. Returns buf. */
const char *crowd__decode_text(const struct crowd *c, const struct model_view *v, char *buf,
			       size_t size);

#endif
