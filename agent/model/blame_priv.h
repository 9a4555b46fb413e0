/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of blame: what its files share and nobody else sees. */
#ifndef TL_BLAME_PRIV_H
#define TL_BLAME_PRIV_H

#include "base/num.h"
#include "model/baseline.h"
#include "model/blame.h"
#include "model/clues.h"

struct loss {
	uint64_t since_ns, until_ns;
};

/* Who is behind a preemption: number k of a sequence's. */
struct preempt_root {
	uint64_t at_ns;
	uint32_t seq, k;
	uint32_t root;		/* sequence, index + 1; 0: not known */
	uint8_t prov;
};

/* How long outputs usually take to their write. */
struct usual_delivery {
	uint64_t ns, err_ns;
	uint32_t n;		/* 0: not known */
};

/* The writes of what one step gave, us from its end: a front end that serves answers one after the
 * other spreads them. */
struct step_writes {
	uint32_t first_us, last_us;	/* saturate; UINT32_MAX, 0: none is known */
};

/* An output of a sequence on its way: what a step gave, or a token where drafts leave one by one. */
struct output {
	uint64_t made_ns;	/* end of its step; 0: joined to none */
	uint64_t written_ns;	/* 0: nobody wrote it alone */
	uint64_t client_ns;	/* reached what is behind the socket; 0: nobody says */
	uint32_t visit;		/* of the sequence */
	uint32_t token;		/* ordinal of its first token, from 0 */
	uint32_t chunk;		/* ordinal among the token chunks */
};

/* How an engine takes turns when nobody is disturbed. */
struct turns {
	uint32_t max_seqs, max_tokens;	/* most in one step, as its server was told; 0: not known */
	uint32_t places; /* of slots, else most in one step: as was seen */
	bool full_of_seqs; /* places are what it has, and not just what was asked of it */
	uint32_t full_tokens; /* a step with so many has no more; 0: none cut a prompt */
	uint32_t skipped; /* steps without it between two of a sequence's: pipeline parallelism */
	uint32_t ahead; /* steps that are planned when a request arrives, but the one under way */
};

/* How long a proxy needs at least to hand a chunk on, of all answers that went through it. */
struct way {
	uint32_t pid;
	uint64_t ns;
};
enum { MAX_WAYS = 16 };

struct holder {			/* of a slot or of room: for so long, or so much for so long */
	uint64_t weight;
	uint32_t seq;
};

struct blame {
	struct model_view v;
	struct clues *clues;
	struct baseline *base;
	struct step_index ix;			/* that of clues */
	struct turns *turns;			/* by engine */
	struct way ways[MAX_WAYS];
	size_t n_ways;
	struct usual_delivery *delivery;	/* by engine of the request */
	struct step_writes *writes;		/* by step */
	struct loss *losses;			/* by begin; ends never fall */
	size_t n_losses;
	struct preempt_root *roots;		/* by seq, time */
	size_t n_roots;
	uint32_t *by_begin; /* sequences with steps: engine after engine, by their first */
	size_t *first_of;			/* per engine: in by_begin; one more than engines */
	uint64_t *odd;		/* bit by bit: is a gap odd? Request after request, as they were walked over */
	size_t n_odd, cap_odd;	/* bits, and words */
	size_t *first_odd;	/* by request: its first bit + 1; 0: not known yet */
	/* room that is used again, request after request */
	struct output *outputs;
	size_t cap_outputs;
	uint64_t *numbers;
	size_t cap_numbers;
	struct holder *holders;
	size_t cap_holders;
	struct gap gap;
};

/* Room for n elements of `size` in *p. 0 or -ENOMEM. */
int blame_room(void *p, size_t *cap, size_t n, size_t size);

/* blame_parts.c */
void gap_begin(struct gap *g, uint32_t request, uint32_t seq, enum gap_side side, uint32_t token,
	       uint64_t t0_ns, uint64_t t1_ns);
void gap_add(struct gap *g, enum mechanism m, enum provenance prov, uint64_t ns,
	     const struct culprit *who, const struct culprit *root);	/* NULL: nobody */
void gap_end(struct blame *b, struct gap *g, uint32_t engine);	/* order, what was ruled out */
struct culprit culprit_of(const struct blame *b, uint32_t seq);
/* Takes clues out of *left in their order until it is used up; with `located` those without a place
 * are passed over, too. */
void gap_add_clues(struct gap *g, const struct clue_list *l, uint64_t *left);
/* Splits ns over those that prefill in a step, by tokens; if nobody does, over those that decode. */
void gap_add_members(struct blame *b, struct gap *g, enum mechanism m, uint64_t ns, uint32_t step,
		     uint32_t except);
/* The same over those that prefill only; what is computed again is MECH_RECOMPUTE, with its root. */
void gap_add_prefill(struct blame *b, struct gap *g, uint64_t ns, uint32_t step, uint32_t except);

/* blame_root.c */
int roots_find(struct blame *b);		/* 0 or -ENOMEM */
/* Had a sequence lost its place before this visit of it (not the first)? *ret NULL: not known to whom. */
bool parked_before(const struct blame *b, uint32_t seq, size_t visit,
		   const struct preempt_root **ret);
/* Its last one before a moment; NULL: none. */
const struct preempt_root *root_at(const struct blame *b, uint32_t seq, uint64_t t_ns);

/* Tokens that a sequence had in the cache at a moment, nearly: a token per step behind its prompt. */
uint64_t context_at(const struct blame *b, uint32_t seq, uint64_t t_ns);

/* blame_turns.c */
int turns_learn(struct blame *b);		/* 0 or -ENOMEM */
/* The sequence that gave a request's first token (model/leads.h) and its visit with that; UINT32_MAX: none. */
uint32_t prompt_seq(const struct blame *b, const struct rec_request *r, size_t *ret_visit);
/* When the engine had it; 0: not known. */
uint64_t handed_over(const struct rec_request *r);

/* blame.c */
struct answer;
/* When an output was where the gaps of its answer end. */
uint64_t output_ns(const struct answer *a, const struct output *o);
/* [t0, until] without steps: what is usual for this stream, what evidence says, the rest. */
void cut_stream(struct blame *b, struct gap *g, const struct answer *a, uint64_t until_ns);

/* blame_ttft.c: from its first byte to the end of the recording, of one that has no first token by
 * then. 0 or -1: out of memory. */
int cut_open_ttft(struct blame *b, const struct rec_request *r, struct gap *g);

/* blame_engine.c: the time line of an engine from `at_ns` on */
struct walk {
	struct blame *b;
	struct gap *g;
	uint32_t seq;
	uint64_t at_ns;		/* cut up to here */
	uint64_t end_ns;
	uint64_t credit_ns; /* usual time that passed before the gap began: the token before was late */
	uint32_t skips;		/* steps without it that may still come, as usual */
};
bool lost_in(const struct blame *b, uint64_t t0_ns, uint64_t t1_ns);
/* From behind visit `from` (SIZE_MAX: from w->at_ns on) to the end of visit `to`. */
void cut_visits(struct walk *w, size_t from, size_t to);
/* From behind the last visit to the end of the recording, w->end_ns. */
void cut_to_end(struct walk *w);
/* Time without a step: `usual` of it is own. */
void cut_hole(struct walk *w, uint64_t until_ns, uint32_t next_step, enum mechanism own);

/* blame_queue.c */
/* Had this step a place and tokens left? `next`: the one that waited is in the step behind it. */
bool step_had_room(const struct blame *b, uint32_t step, bool next);
/* [at_ns, until] behind those that had meanwhile what it waited for. 0 or -1: out of memory. */
int cut_queue(struct walk *w, uint32_t engine, uint64_t until_ns);

/* blame_outputs.c */
void ways_learn(struct blame *b);
/* What a request gave, output by output, in b->outputs. 0 or -ENOMEM */
struct answer {
	uint32_t seq;		/* index + 1, 0: joined to none */
	enum gap_side side;
	size_t n;
	struct usual_delivery delivery;	/* of this answer, else of its engine */
	bool bunched;		/* most of it is written many outputs at once */
	uint64_t usual_ns, err_ns;	/* seq 0: of its gaps; usual_ns 0: too few */
	uint64_t client_ns;	/* the least from write to client */
};
int answer_of(struct blame *b, uint32_t request, struct answer *ret);	/* the one on the wire */
int answer_of_seq(struct blame *b, uint32_t seq, struct answer *ret);	/* by its steps alone */

/* blame_delivery.c */
int delivery_learn(struct blame *b);		/* 0 or -ENOMEM */
/* Of the outputs of an answer that did not wait for the one before; too few: that of its engine. */
void delivery_of(struct blame *b, uint32_t engine, struct answer *a);
/* [t0, t1] until `to` was written, of which `own` is usual. */
void cut_delivery(struct blame *b, struct gap *g, const struct answer *a, const struct output *to,
		  uint64_t t0_ns, uint64_t t1_ns, uint64_t own_ns);
void cut_client(struct blame *b, struct gap *g, uint64_t t0_ns, uint64_t t1_ns, uint64_t usual_ns,
		bool at_once, uint32_t chunk);

#endif
