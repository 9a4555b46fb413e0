/* SPDX-License-Identifier: Apache-2.0 */
/* Node 1 is the root, those of node k are 2 k and 2 k + 1, the values begin at node `size`. */
#include "base/firstfit.h"

#include <math.h>
#include <stdlib.h>

struct firstfit {
	size_t n, size;		/* size: a power of two */
	double most[];		/* below each node; empty: less than any number */
};

struct firstfit *firstfit__new(size_t n)
{
	struct firstfit *f;
	size_t size = 1;

	while (size < n)
		size *= 2;
	f = malloc(sizeof(*f) + 2 * size * sizeof(f->most[0]));
	if (!f)
		return NULL;
	f->n = n;
	f->size = size;
	for (size_t i = 0; i < 2 * size; i++)
		f->most[i] = -INFINITY;
	return f;
}

void firstfit__free(struct firstfit *f)
{
	free(f);
}

void firstfit__set(struct firstfit *f, size_t i, double value)
{
	size_t k = i + f->size;

	f->most[k] = value;
	while (k /= 2) {
		double left = f->most[2 * k], right = f->most[2 * k + 1];

		f->most[k] = left > right ? left : right;
	}
}

size_t firstfit__find(const struct firstfit *f, size_t from, double least)
{
	size_t k = from + f->size;

	if (from >= f->n)
		return f->n;
	while (f->most[k] < least) {	/* up while nothing is to the right of it, then there */
		while (k % 2)
			k /= 2;
		if (!k++)
			return f->n;
	}
	while (k < f->size) {
		k *= 2;
		k += f->most[k] < least;
	}
	return k - f->size;
}
