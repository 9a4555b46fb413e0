/* SPDX-License-Identifier: Apache-2.0 */
/* A recording, run through the model: what every command that reads one begins with. */
#ifndef TL_REPLAY_H
#define TL_REPLAY_H

#include "model/model.h"
#include <stdio.h>

enum { TROUBLE_SIZE = 512 };

/* What to read when no recording is named: the one that record writes by itself. NULL: there is none here,
 * which was said. */
const char *replay_default(void);

/* Reads the whole file into a new model and finishes it. What of it could not be read is said on stderr and
 * in trouble (TROUBLE_SIZE bytes, "" if all is well). On failure it has logged one sentence and returns
 * -errno. */
int replay_file(const char *path, const struct model_opts *opts, struct model **ret, char *trouble);

/* The first line of an answer that rests on part of a recording only. */
void say_trouble(const char *trouble);

/* The report of a finished model as JSON. Returns 0 or -errno. */
int replay_print_json(const struct model *m, FILE *out);

#endif
