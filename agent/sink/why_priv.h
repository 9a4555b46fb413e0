/* SPDX-License-Identifier: Apache-2.0 */
/* The waterfall of a request as facts and sentences: found once, then drawn as text (why.c) or written as JSON
 * (json_why.c). */
#ifndef TL_SINK_WHY_PRIV_H
#define TL_SINK_WHY_PRIV_H

#include "base/vec.h"
#include "model/blame_how.h"
#include "sink/page.h"
#include "sink/trace.h"

/* One line of the waterfall: a span of time and what filled it. */
struct why_row {
	uint64_t t0_ns, t1_ns;
	enum page_style style;
	uint8_t part;		/* enum part; of those behind the steps: enum mechanism */
	uint32_t token;		/* behind the steps: which was late */
	char text[320];
};
struct why_rows {
	VEC(struct why_row) rows;
};

/* What made a step of one of its sequences longer than usual: the most of it, and who. */
struct why_cause {
	uint32_t seq, step;	/* indices */
	uint8_t mechanism;
	bool more;		/* than who, who did most */
	uint64_t ns;
	struct culprit who;
};
struct why_causes {
	VEC(struct why_cause) all;	/* by step, sequence */
};
/* *c is all zeros. Returns 0 or -ENOMEM; to be freed in any case. */
int why_causes__find(struct why_causes *c, const struct trace *t, struct blame *b);
/* NULL: it was not longer than usual, or nobody knows why. */
const struct why_cause *why_causes__of(const struct why_causes *c, uint32_t seq, uint32_t step);
void why_causes__free(struct why_causes *c);

/* The rows cover the trace without a hole or an overlap. Returns 0 or -ENOMEM. */
int why_rows__build(struct why_rows *w, const struct trace *t, const struct why_causes *causes);
void why_rows__free(struct why_rows *w);

/* Beside these, the longest spans in which tokens had been made and were held up on their way out: the steps went on
 * meanwhile. In order of time. Returns 0 or -ENOMEM; to be freed in any case. */
int why_rows__behind(struct why_rows *w, const struct trace *t, struct blame *b);

enum { MAX_ODD_GAPS = 12, MAX_HELD = 4, ANSWER_LEN = 2048, NOTE_LEN = 1600 };

struct odd_gap {
	struct gap g;
	uint32_t n_alike;	/* other answers of the request that had the same one */
};
struct odd_gaps {
	struct odd_gap v[MAX_ODD_GAPS];	/* those with most excess, in order of time */
	size_t n, n_odd, n_gaps;
	uint64_t excess_ns;	/* of all */
};
/* How its client saw it, where somebody says when its tokens came there, and that is later than they were written. */
struct why_client {
	uint64_t total_ns, ns;	/* 0: nothing is known of that; of it, what the mechanism took */
	uint8_t mechanism;
	char who[160];		/* "": nobody */
};
struct why_late {		/* its first token, behind its step; 0: that is not much of its TTFT */
	uint64_t ns;
	uint8_t mechanism;
};
struct why_delivery {		/* from the engine's output to the write of its chunk */
	size_t n;
	bool exact;		/* else at least so long */
	uint64_t p50_ns, max_ns;
};
struct why_engine {		/* where its own metrics mislead; 0: they do not */
	uint64_t ttft_ns, wait_ns;	/* what its TTFT would read, and the wait that is not in it */
	uint64_t parked_ns, again_ns;	/* that it books as decode */
};
struct why_send {
	const struct tl_send_held *held[MAX_HELD];	/* the first ones */
	size_t n_held;
	uint64_t held_ns;	/* in which at least one of them lasted */
	VEC(const struct tl_send_blocked *) blocked;
};

struct why {
	struct trace t;
	struct blame *b;
	bool whole;		/* it was seen from its first byte to its end: the parts add up to e2e */
	uint64_t unexplained_ns;
	char answer[ANSWER_LEN];
	struct why_rows rows, behind;
	struct odd_gaps gaps;
	struct req_metrics metrics;
	bool has_ttft, has_open;
	struct gap ttft, open;
	struct hows hows;	/* of its engine */
	struct why_client client;
	struct why_late late;
	struct why_delivery delivery;
	struct why_engine engine;
	struct why_send send;
	uint64_t n_lost;	/* events, while it ran */
	VEC(char *) notes;	/* sentences on the rest, in their order */
};

/* Returns 0 or -ENOMEM. */
int why__new(const struct model_view *v, size_t request, struct why **ret);
void why__free(struct why *w);

/* Parts whose time nobody can explain. */
bool why_part_is_unknown(enum part part);

/* "answer 2: ", "both answers: "; "" where there is one. Returns its length. */
size_t why_whose_gap(const struct trace *t, const struct odd_gap *odd, char *buf, size_t size);

/* For those that fill it. All return 0 or -ENOMEM. */
int why_note(struct why *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int why_find_gaps(struct why *w);
int why_find_client(struct why *w);
void why_find_late(struct why *w);
int why_find_ttft(struct why *w);	/* its parts, and what it waits for at the end */
int why_find_how(struct why *w);
int why_find_engine(struct why *w);
int why_find_send(struct why *w);

#endif
