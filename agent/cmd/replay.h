/* SPDX-License-Identifier: Apache-2.0 */
/* A recording, run through the model: what every command that reads one begins with. */
#ifndef TL_REPLAY_H
#define TL_REPLAY_H

#include "model/model.h"
#include "sink/page.h"
#include <argp.h>
#include <stdio.h>

enum { TROUBLE_SIZE = 512 };

/* What to read when no recording is named: the one that record writes by itself. NULL: there is
 * none here, which was said. */
const char *replay_default(void);

/* Reads the whole file into a new model and finishes it. What of it could not be read is said on
 * stderr and in trouble (TROUBLE_SIZE bytes, "" if all is well). On failure it has logged one
 * sentence and returns -errno. */
int replay_file(const char *path, const struct model_opts *opts, struct model **ret, char *trouble);

/*
 * A command that answers from one recording (NULL: the default one): reads it, calls `print` with
 * what the command was asked, and frees it. `print` returns 0 or -errno; -ENOENT: it has said what
 * there is not. Returns an enum cmd_exit.
 */
typedef int (*replay_print)(const void *asked, const struct model_view *v, const char *trouble);
int replay_command(const char *path, const struct model_opts *opts, replay_print print, const void *asked);

/* For the parser of such a command: its one argument. */
error_t replay_arg(const char **path, const char *arg, struct argp_state *state);
/* The request that a person means. -ENOENT: that there is none was said. */
int replay_find(const struct model_view *v, const char *what, size_t *ret);
struct text_opts replay_text_opts(void);	/* what stdout can show */

/* The first line of an answer that rests on part of a recording only. */
void say_trouble(const char *trouble);

/* The report of a finished model as JSON. Returns 0 or -errno. */
int replay_print_json(const struct model *m, FILE *out);

#endif
