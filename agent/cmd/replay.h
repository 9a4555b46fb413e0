/* SPDX-License-Identifier: Apache-2.0 */
/* A recording, run through the model: what every command that reads one begins with. */
#ifndef TL_REPLAY_H
#define TL_REPLAY_H

#include "model/model.h"
#include <stdio.h>

/* Reads the whole file into a new model and finishes it. Says on stderr what could not be read. On
 * failure it has logged one sentence and returns -errno. */
int replay_file(const char *path, const struct model_opts *opts, struct model **ret);

/* The report of a finished model as JSON. Returns 0 or -errno. */
int replay_print_json(const struct model *m, FILE *out);

#endif
