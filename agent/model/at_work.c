/* SPDX-License-Identifier: Apache-2.0 */
/* Looks through requests and steps once for all engines: a recording may have very many of each. */
#include "model/at_work.h"

#include <errno.h>
#include <stdlib.h>

int at_work(const struct model_view *v, struct at_work **ret)
{
	struct at_work *w = calloc(v->n_engines + 1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	for (size_t i = 0; i < v->n_requests; i++)
		w[v->requests[i].engine].requests = true;
	for (size_t i = 0; i < v->n_steps; i++) {
		w[v->steps[i].engine].steps = true;
		w[v->steps[i].engine].stats |= v->steps[i].stats != 0;
	}
	*ret = w;
	return 0;
}
