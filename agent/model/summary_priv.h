/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that make a summary. */
#ifndef TL_SUMMARY_PRIV_H
#define TL_SUMMARY_PRIV_H

#include "model/summary.h"

/* Fills busy_ns, busy_from_steps, batch, bins and n_bins. Returns 0 or -ENOMEM. */
int summary_time(const struct model_view *v, struct summary *ret);

/* Percentiles of n values, in any order: it is another one behind the call. */
void summary_dist(uint64_t *values, size_t n, struct dist *ret);

#endif
