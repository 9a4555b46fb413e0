/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a request's time in words: what it was, and who else filled it. */
#ifndef TL_WHO_H
#define TL_WHO_H

#include "sink/trace.h"

/* "waiting for a slot held by r1 (3.90 s behind prefill of r1 (462 tok))", for a sentence. */
const char *who__text(const struct trace *t, enum part part, char *buf, size_t size);

/* The same with its duration in about 29 columns, for a table: "behind r1's prefill: 2.23 s". */
const char *who__brief(const struct trace *t, enum part part, char *buf, size_t size);

/* How decode steps were stretched: "+380 ms: r4's prefill"; names those it has room for. */
const char *who__stretched(const struct trace *t, uint64_t excess_ns, char *buf, size_t size);

#endif
