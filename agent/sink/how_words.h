/* SPDX-License-Identifier: Apache-2.0 */
/* How a mechanism took its time: a sentence, and the same as JSON. */
#ifndef TL_SINK_HOW_WORDS_H
#define TL_SINK_HOW_WORDS_H

#include "base/jsonw.h"
#include "model/blame_how.h"

enum { HOW_TEXT = 700 };
/* "CUDA graph miss: batch 49 has no graph, the largest is of 48: 99 steps of 34.0
 * ms ran ..." Returns buf. */
const char *how_text(const struct model_view *v, const struct how *h, char *buf, size_t size);

/* One object. */
void json_how(struct jsonw *w, const struct model_view *v, const struct how *h);

#endif
