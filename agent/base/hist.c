/* SPDX-License-Identifier: Apache-2.0 */
/* Exponential histogram, without floating point: the same buckets on every machine. */
#include "base/hist.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PER_OCTAVE = 1 << HIST_SCALE };

/* floor(2^63 * 2^(i/128)): the lower ends of the buckets of one octave, normalised to 64 bits. All
 * but the first are irrational before the floor, so that `<` gives the same answer. */
static const uint64_t bounds[PER_OCTAVE] = {
	0x8000000000000000, 0x80b1ed4fd999ab6c, 0x8164d1f3bc030773, 0x8218af4373fc25eb,
	0x82cd8698ac2ba1d7, 0x8383594eefb6ee36, 0x843a28c3acde4046, 0x84f1f656379c1a29,
	0x85aac367cc487b14, 0x8664915b923fba03, 0x871f61969e8d1010, 0x87db357ff698d791,
	0x88980e8092da8527, 0x8955ee03618e5fdc, 0x8a14d575496efd9a, 0x8ad4c6452c728924,
	0x8b95c1e3ea8bd6e6, 0x8c57c9c4646f4ddd, 0x8d1adf5b7e5ba9e5, 0x8ddf042022e69cd5,
	0x8ea4398b45cd53c0, 0x8f6a8117e6c8e5c4, 0x9031dc431466b1dc, 0x90fa4c8beee4b12a,
	0x91c3d373ab11c336, 0x928e727d9531f9ac, 0x935a2b2f13e6e92b, 0x9426ff0fab1c04b6,
	0x94f4efa8fef70961, 0x95c3fe86d6cc7fee, 0x96942d3720185a00, 0x97657d49f17ab08e,
	0x9837f0518db8a96f, 0x990b87e266c189a9, 0x99e0459320b7fa64, 0x9ab62afc94ff864a,
	0x9b8d39b9d54e5538, 0x9c6573682ec32c2d, 0x9d3ed9a72cffb750, 0x9e196e189d472420,
	0x9ef5326091a111ad, 0x9fd228256400dd05, 0xa0b0510fb9714fc2, 0xa18faeca8544b6e3,
	0xa27043030c496818, 0xa3520f68e802bb92, 0xa43515ae09e6809e, 0xa5195786be9ef339,
	0xa5fed6a9b15138ea, 0xa6e594cfeee86b1d, 0xa7cd93b4e9653569, 0xa8b6d5167b320e08,
	0xa9a15ab4ea7c0ef8, 0xaa8d2652ec907629, 0xab7a39b5a93ed337, 0xac6896a4be3fe929,
	0xad583eea42a14ac6, 0xae493452ca35b80e, 0xaf3b78ad690a4374, 0xb02f0dcbb6e04583,
	0xb123f581d2ac258f, 0xb21a31a66618fe3b, 0xb311c412a9112489, 0xb40aaea2654b9840,
	0xb504f333f9de6484, 0xb60093a85ed5f76b, 0xb6fd91e328d17791, 0xb7fbefca8ca41e7c,
	0xb8fbaf4762fb9ee9, 0xb9fcd2452c0b9dea, 0xbaff5ab2133e45fb, 0xbc034a7ef2e9fb0c,
	0xbd08a39f580c36be, 0xbe0f6809860993e2, 0xbf1799b67a731082, 0xc0213aa1f0d08db0,
	0xc12c4cca66709456, 0xc238d2311e3d6672, 0xc346ccda24976407, 0xc4563ecc5334cb32,
	0xc5672a115506dadd, 0xc67990b5aa245f79, 0xc78d74c8abb9b15c, 0xc8a2d85c8ffe2c45,
	0xc9b9bd866e2f27a2, 0xcad2265e4290774d, 0xcbec14fef2727c5c, 0xcd078b86503dcdd1,
	0xce248c151f8480e3, 0xcf4318cf191918c1, 0xd06333daef2b2594, 0xd184df6251699ac6,
	0xd2a81d91f12ae45a, 0xd3ccf099859ac379, 0xd4f35aabcfedfa1f, 0xd61b5dfe9f9bce06,
	0xd744fccad69d6af4, 0xd870394c6db32c84, 0xd99d15c278afd7b5, 0xdacb946f2ac9cc71,
	0xdbfbb797daf23755, 0xdd2d818508324c20, 0xde60f4825e0e9123, 0xdf9612deb8f04420,
	0xe0ccdeec2a94e111, 0xe2055afffe83d368, 0xe33f8972be8a5a51, 0xe47b6ca0373da88d,
	0xe5b906e77c8348a8, 0xe6f85aaaee1fce22, 0xe8396a503c4bdc68, 0xe97c38406c4f8c56,
	0xeac0c6e7dd24392e, 0xec0718b64c1cbddc, 0xed4f301ed9942b84, 0xee990f980da3025b,
	0xefe4b99bdcdaf5cb, 0xf13230a7ad094509, 0xf281773c59ffb139, 0xf3d28fde3a641a5a,
	0xf5257d152486cc2c, 0xf67a416c733f846d, 0xf7d0df730ad13bb8, 0xf92959bb5dd4ba74,
	0xfa83b2db722a033a, 0xfbdfed6ce5f09c48, 0xfd3e0c0cf486c174, 0xfe9e115c7b8f884b,
};

/* v > 0. -1 for 1, which ends the bucket below base^0. */
static int bucket_of(uint64_t v)
{
	int exponent = 63 - __builtin_clzll(v);
	uint64_t m = v << (63 - exponent);
	unsigned int below = 0;		/* bounds that are < m */

	for (unsigned int step = PER_OCTAVE / 2; step; step /= 2)
		if (bounds[below + step - 1] < m)
			below += step;
	below += bounds[below] < m;
	return exponent * PER_OCTAVE + (int)below - 1;
}

uint64_t hist_bucket_max(int bucket)
{
	unsigned int up = (unsigned int)(bucket + 1);
	unsigned int exponent = up / PER_OCTAVE;

	assert(bucket >= -1);
	if (exponent >= 64)
		return UINT64_MAX;
	return bounds[up % PER_OCTAVE] >> (63 - exponent);
}

void hist__free(struct hist *h)
{
	free(h->counts);
	*h = (struct hist){ 0 };
}

/* Makes buckets [lo, hi] part of the table, in whole octaves. */
static int cover(struct hist *h, int lo, int hi)
{
	int first = lo < 0 ? -PER_OCTAVE : lo / PER_OCTAVE * PER_OCTAVE;
	int end = hi < 0 ? 0 : (hi / PER_OCTAVE + 1) * PER_OCTAVE;
	uint64_t *counts;

	if (h->counts) {
		if (lo >= h->first && hi < h->first + (int)h->n_counts)
			return 0;
		if (h->first < first)
			first = h->first;
		if (h->first + (int)h->n_counts > end)
			end = h->first + (int)h->n_counts;
	}
	counts = calloc((size_t)(end - first), sizeof(*counts));
	if (!counts)
		return -ENOMEM;
	if (h->counts)
		memcpy(counts + (h->first - first), h->counts, h->n_counts * sizeof(*counts));
	free(h->counts);
	h->counts = counts;
	h->first = first;
	h->n_counts = (size_t)(end - first);
	return 0;
}

int hist__add(struct hist *h, uint64_t v, uint64_t times)
{
	if (times == 0)
		return 0;
	if (v == 0) {
		h->n_zero += times;
	} else {
		int i = bucket_of(v);

		if (cover(h, i, i)) {
			h->n_refused += times;
			return -ENOMEM;
		}
		h->counts[i - h->first] += times;
	}
	if (h->n == 0 || v < h->min)
		h->min = v;
	if (h->n == 0 || v > h->max)
		h->max = v;
	h->n += times;
	h->sum += v * times;
	return 0;
}

int hist__merge(struct hist *h, const struct hist *other)
{
	if (other->n == 0)
		return 0;
	if (other->counts) {
		if (cover(h, other->first, other->first + (int)other->n_counts - 1))
			return -ENOMEM;
		for (size_t i = 0; i < other->n_counts; i++)
			h->counts[other->first - h->first + (int)i] += other->counts[i];
	}
	if (h->n == 0 || other->min < h->min)
		h->min = other->min;
	if (h->n == 0 || other->max > h->max)
		h->max = other->max;
	h->n += other->n;
	h->n_zero += other->n_zero;
	h->n_refused += other->n_refused;
	h->sum += other->sum;
	return 0;
}

uint64_t hist__quantile(const struct hist *h, unsigned int permille)
{
	unsigned __int128 up = (unsigned __int128)h->n * permille + 999;
	uint64_t rank = (uint64_t)(up / 1000), seen = h->n_zero;

	assert(h->n > 0 && permille <= 1000);
	if (rank <= 1)
		return h->min;
	if (rank >= h->n)
		return h->max;
	if (rank <= seen)
		return 0;
	for (size_t i = 0; i < h->n_counts; i++) {
		uint64_t lo, hi, mid;
		int bucket = h->first + (int)i;

		seen += h->counts[i];
		if (seen < rank)
			continue;
		hi = hist_bucket_max(bucket);
		lo = bucket >= 0 ? hist_bucket_max(bucket - 1) : 0;
		/* low buckets hold one integer: it is lo + 1 == hi; do not fall below it */
		mid = lo + (hi - lo + 1) / 2;
		return mid < h->min ? h->min : mid > h->max ? h->max : mid;
	}
	assert(0);	/* counts add up to n */
	return h->max;
}
