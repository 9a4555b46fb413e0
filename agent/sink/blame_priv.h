/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that write blame as text. */
#ifndef TL_SINK_BLAME_PRIV_H
#define TL_SINK_BLAME_PRIV_H

#include "sink/blame_table.h"

/* Victims x culprits, ms; nothing where a row of pairs says the same. Returns 0 or -ENOMEM. */
int blame_matrix(struct page *p, const struct blame_text *t);

#endif
