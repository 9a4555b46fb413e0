/* SPDX-License-Identifier: Apache-2.0 */
/* Blame of a whole recording: by mechanism, by pair of victim and culprit, and what if. Pure. */
#ifndef TL_MODEL_BLAME_SUM_H
#define TL_MODEL_BLAME_SUM_H

#include "model/blame.h"
#include "model/summary.h"

struct blame_row {
	uint64_t ns;		/* in gaps ... */
	uint64_t ttft_ns;	/* ... and in TTFTs */
	uint32_t n_gaps, n_victims;	/* gaps it has a part in; requests */
};
struct blame_pair {
	uint32_t victim;	/* index of a request */
	struct culprit culprit, root;
	uint8_t mechanism, prov;	/* prov: the weakest of its parts */
	uint64_t ns, ttft_ns;
	uint32_t n_gaps;
	uint64_t max_ns, max_at_ns;	/* its longest part and when that gap began */
};
struct blame_what_if {
	uint8_t without;	/* enum mechanism; N_MECHANISMS: as it was */
	struct dist tpot, ttft;	/* of all requests, with that mechanism's parts taken out */
};
enum { MAX_PAIRS = 100000, MAX_TOP_GAPS = 20, MAX_WHAT_IFS = 8 };
struct blame_sum {
	struct blame_row by_mechanism[N_MECHANISMS];	/* own parts included */
	uint64_t gaps_ns, ttfts_ns;	/* of all gaps, all TTFTs */
	uint64_t excess_ns;		/* of gaps beyond usual: what was charged to others ... */
	uint64_t ttft_excess_ns;	/* ... and of TTFTs; what is unexplained is in both */
	uint64_t prov_ns[PROV_INFERRED + 1];	/* the two by provenance; lost and unexplained apart */
	uint64_t queue_ns[N_QUEUE_LIMITS];	/* of the time in queues: for want of what */
	uint64_t n_gaps, n_odd_gaps, n_no_baseline, n_ttfts;
	uint32_t n_at_client;		/* requests whose gaps and TTFT are those of the client, as somebody says when it had
					 * its tokens: then what_if[0] is no TTFT and TPOT of the server's socket */
	uint32_t n_learnt;		/* steps that baselines rest on */
	struct blame_pair *pairs;	/* most ns + ttft_ns first; parts that are own are in none */
	size_t n_pairs;
	uint64_t n_pairs_not_kept;	/* parts that found no room there */
	uint32_t n_open;		/* requests that waited when the recording ended, for longer than usual; ... */
	uint64_t longest_open_ns;	/* ... they are in the sums above, and in no what-if ... */
	uint32_t n_open_ttfts;		/* ... those without a first token are not in n_ttfts, ... */
	uint64_t open_ttfts_ns;		/* ... and this much of ttfts_ns is theirs */
	struct gap top[MAX_TOP_GAPS];	/* odd gaps, most excess first; of TTFTs those that are open only */
	size_t n_top;
	struct blame_what_if what_if[MAX_WHAT_IFS + 1];	/* [0] as it was; then by falling gain */
	size_t n_what_if;
	uint64_t ruled_out;		/* in all gaps that have an unexplained part */
};
/* 0 or -ENOMEM. */
int blame_sum__new(struct blame *b, const struct model_view *v, struct blame_sum **ret);
void blame_sum__free(struct blame_sum *s);

/* A part of it; zeros: all. */
struct blame_selection {
	uint32_t request;	/* index + 1: only what happened to this one */
	uint64_t mechanisms;	/* bit i: pairs, top gaps and what-ifs of these only. Sums are of all */
};
int blame_sum__select(struct blame *b, const struct model_view *v, const struct blame_selection *sel,
		      struct blame_sum **ret);

/* Mechanisms that took any time and are not a token's own, the longest first. Returns how many. */
size_t blame_sum__order(const struct blame_sum *s, uint8_t ret[N_MECHANISMS]);

/* For people, processes (or threads) of one name are one culprit: a build has a thousand of them. So are
 * clients, each with a port of its own, that ask for one path. */
bool culprit_same(const struct culprit *a, const struct culprit *b);

/* Whoever is in pairs, added up: the worst first. Returns how many are in ret, or -ENOMEM. */
enum { MAX_WHO_IDS = 8 };
struct blame_who {
	struct culprit who;	/* of several that are the same: the one with the lowest id */
	uint64_t ns, ttft_ns;
	uint32_t n_victims, n_ids;	/* requests; how many are the same */
	uint32_t ids[MAX_WHO_IDS];	/* the first of these */
};
enum blame_where {		/* bits */
	IN_GAPS = 1, IN_TTFTS = 2,
	BY_NOBODY = 4,		/* also what has no culprit: type WHO_NOBODY */
};
/* `mechanisms`: bits; 0: all. `where`: enum blame_where. */
long blame_sum__culprits(const struct blame_sum *s, uint64_t mechanisms, unsigned int where,
			 struct blame_who *ret, size_t max);
/* The pairs with culprits that are the same as one, the longest first; n_gaps is 0 where it is not known
 * any more. To be freed; NULL: out of memory. */
struct blame_pair *blame_sum__merged(const struct blame_sum *s, size_t *ret_n);
/* Like culprits, of victims: who.type is WHO_REQUEST, n_victims 1. */
long blame_sum__victims(const struct blame_sum *s, struct blame_who *ret, size_t max);

bool culprit_equal(const struct culprit *a, const struct culprit *b);
int longer_pair(const void *a, const void *b);	/* for qsort() */

#endif
