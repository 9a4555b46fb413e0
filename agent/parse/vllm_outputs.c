/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from vLLM's engine: what each step gave to whom, and the scheduler's state. */
#include "base/util.h"
#include "parse/vllm_msg.h"
#include "parse/vllm_priv.h"

#include <errno.h>

/* ---- maps of numbers ---- */

struct number_field {
	const char *key;
	uint16_t offset;	/* of a uint64_t in struct vllm_stats */
	uint16_t known;		/* enum vllm_stat */
};
#define STAT(key, field, known) { key, offsetof(struct vllm_stats, field), known }

static bool key_is(const struct mpin_bytes *key, const char *name)
{
	return key->len == strlen(name) && !memcmp(key->p, name, key->len);
}

/* If the key is in the table, takes its value. */
static bool read_number(struct mpin *m, const struct mpin_bytes *key, struct vllm_stats *s,
			const struct number_field *fields, size_t n_fields)
{
	int64_t v;

	for (size_t i = 0; i < n_fields; i++) {
		if (!key_is(key, fields[i].key))
			continue;
		if (mpin_int(m, &v) && v >= 0) {
			*(uint64_t *)((char *)s + fields[i].offset) = v;
			s->known |= fields[i].known;
		}
		return true;
	}
	return false;
}

static void read_numbers(struct mpin *m, struct vllm_stats *s, const struct number_field *fields,
			 size_t n_fields)
{
	struct mpin_bytes key;
	uint32_t n;

	if (!mpin_map(m, &n))
		return;
	while (mpin_key(m, &n, &key))
		if (!read_number(m, &key, s, fields, n_fields))
			mpin_skip(m, 1);
}

static void read_iteration(struct mpin *m, struct vllm_stats *s)
{
	static const struct number_field fields[] = {
		STAT("iteration_index", iteration.index, 0),
		STAT("num_ctx_requests", iteration.prefill_requests, VLLM_STAT_ITERATION),
		STAT("num_ctx_tokens", iteration.prefill_tokens, 0),
		STAT("num_generation_requests", iteration.decode_requests, 0),
		STAT("num_generation_tokens", iteration.decode_tokens, 0),
	};
	struct mpin_bytes key;
	uint32_t n;

	if (!mpin_map(m, &n))
		return;
	while (mpin_key(m, &n, &key)) {
		if (read_number(m, &key, s, fields, ARRAY_SIZE(fields)))
			continue;
		if (MPIN_IS(key, "elapsed_ms"))
			mpin_float(m, &s->iteration.elapsed_ms);
		else if (MPIN_IS(key, "is_dummy"))
			mpin_bool(m, &s->iteration.dummy);
		else
			mpin_skip(m, 1);
	}
}

static void read_stats(struct mpin *m, struct vllm_stats *s)
{
	static const struct number_field fields[] = {
		STAT("num_running_reqs", running, VLLM_STAT_RUNNING),
		STAT("num_waiting_reqs", waiting, VLLM_STAT_WAITING),
		STAT("num_skipped_waiting_reqs", skipped, VLLM_STAT_SKIPPED),
	};
	static const struct number_field prefix[] = {
		STAT("requests", prefix.requests, VLLM_STAT_PREFIX),
		STAT("queries", prefix.queries, 0),
		STAT("hits", prefix.hits, 0),
		STAT("preempted_requests", prefix.preempted_requests, 0),
		STAT("preempted_queries", prefix.preempted_queries, 0),
		STAT("preempted_hits", prefix.preempted_hits, 0),
	};
	static const struct number_field spec[] = {
		STAT("num_drafts", spec.drafts, 0),
		STAT("num_draft_tokens", spec.draft_tokens, VLLM_STAT_SPEC),
		STAT("num_accepted_tokens", spec.accepted_tokens, 0),
	};
	static const struct number_field graph[] = {
		STAT("num_unpadded_tokens", graph.tokens, VLLM_STAT_GRAPH),
		STAT("num_padded_tokens", graph.padded_tokens, 0),
	};
	struct mpin_bytes key;
	uint32_t n;

	if (!mpin_map(m, &n))
		return;
	while (mpin_key(m, &n, &key)) {
		if (read_number(m, &key, s, fields, ARRAY_SIZE(fields)))
			continue;
		if (MPIN_IS(key, "kv_cache_usage") || MPIN_IS(key, "gpu_cache_usage")) {
			if (mpin_float(m, &s->kv_usage))
				s->known |= VLLM_STAT_KV;
		} else if (MPIN_IS(key, "prefix_cache_stats")) {
			read_numbers(m, s, prefix, ARRAY_SIZE(prefix));
		} else if (MPIN_IS(key, "spec_decoding_stats")) {
			read_numbers(m, s, spec, ARRAY_SIZE(spec));
		} else if (MPIN_IS(key, "iteration_details")) {
			read_iteration(m, s);
		} else if (MPIN_IS(key, "cudagraph_stats")) {
			read_numbers(m, s, graph, ARRAY_SIZE(graph));
		} else {
			mpin_skip(m, 1);
		}
	}
}

/* ---- the message ---- */

/* [engine, rows, stats, timestamp, utility output, finished requests, wave complete, start wave,
 * ...]; 0.7 had [rows, stats, timestamp, utility output]. */
static void read_field(struct mpin *m, struct vllm_outputs *o, uint32_t *behind_timestamp)
{
	enum mpin_type type = mpin_peek(m);
	struct vllm_ids ids = { *m, 0 };
	double seconds;

	if (!o->timestamp_ns) {
		if (type == MPIN_MAP && !o->has_stats) {
			o->has_stats = true;
			read_stats(m, &o->stats);
		} else if (type == MPIN_FLOAT && mpin_float(m, &seconds)) {
			o->timestamp_ns = vllm_ns(seconds);
		} else {
			if (type != MPIN_NIL)
				o->flags |= VLLM_SHAPE;
			mpin_skip(m, 1);
		}
		return;
	}
	switch ((*behind_timestamp)++) {
	case 0:
		o->utility |= type != MPIN_NIL;
		break;
	case 1:
		if (type == MPIN_ARRAY && mpin_array(&ids.at, &ids.left))
			o->finished = ids;
		break;
	case 2:
	case 3:
		o->wave |= type != MPIN_NIL;
		o->utility |= o->wave;
		break;
	}
	mpin_skip(m, 1);
}

int vllm_msg_outputs(const void *data, size_t len, struct vllm_outputs *ret)
{
	struct vllm_outputs o = { .engine = -1 };
	uint32_t behind_timestamp = 0;
	struct mpin_row row;
	struct mpin m;
	int64_t engine;

	mpin_init(&m, data, len);
	if (!mpin_row_begin(&m, &row))
		return -EPROTO;
	if (mpin_peek(&m) == MPIN_INT) {
		if (!mpin_row_at(&m, &row, 0) || !mpin_int(&m, &engine))
			return -EPROTO;
		o.engine = engine >= 0 && engine <= INT32_MAX ? (int32_t)engine : -1;
	}
	if (mpin_peek(&m) != MPIN_ARRAY || !mpin_row_at(&m, &row, row.next) ||
	    !mpin_array(&m, &o.n_rows))
		return -EPROTO;
	o.rows = m;
	o.rows_left = o.n_rows;
	mpin_skip(&m, o.n_rows);
	while (mpin_row_at(&m, &row, row.next))
		read_field(&m, &o, &behind_timestamp);
	if (m.why)
		o.flags |= m.why == MPIN_CUT ? VLLM_CUT : VLLM_SHAPE;
	else if (!o.timestamp_ns && o.engine >= 0)
		o.flags |= VLLM_SHAPE;
	*ret = o;
	return 0;
}

/* ---- rows ---- */

/* The keys and values of one event's map. Its type stays 0 if none is said. */
static struct vllm_event read_event(struct mpin *m, uint32_t n)
{
	struct vllm_event ev = { 0 };
	struct mpin_bytes key;
	double seconds;
	int64_t v;

	while (mpin_key(m, &n, &key)) {
		if (MPIN_IS(key, "type")) {
			if (mpin_int(m, &v) && v > 0 && v <= INT32_MAX)
				ev.type = v;
		} else if (MPIN_IS(key, "timestamp")) {
			if (mpin_float(m, &seconds))
				ev.ts_ns = vllm_ns(seconds);
		} else {
			mpin_skip(m, 1);
		}
	}
	return ev;
}

bool vllm_msg_next_event(struct vllm_events *events, struct vllm_event *ret)
{
	struct mpin *m = &events->at;
	struct vllm_event ev;
	uint32_t n;

	while (mpin_more(m, &events->left)) {
		if (!mpin_map(m, &n))
			continue;
		ev = read_event(m, n);
		if (!ev.type)
			continue;
		*ret = ev;
		return true;
	}
	return false;
}

/* Fields that are looked at to tell the layout. */
enum { FIRST = 2, LAST = 7, N_LOOK = LAST + 1 };

struct layout {
	const uint8_t *at[N_LOOK];
	const uint8_t *end;
	uint8_t types[N_LOOK];	/* enum mpin_type; MPIN_NONE: the row is shorter */
};

static struct mpin field_at(const struct layout *l, int i)
{
	return (struct mpin){ .p = l->at[i], .end = l->end };
}

/* Can finish_reason stand at position f, with stop_reason and events behind it? */
static bool finish_fits(const struct layout *l, int f)
{
	uint8_t finish = l->types[f], stop = l->types[f + 1], events = l->types[f + 2];

	if (finish == MPIN_NIL && stop != MPIN_NIL)
		return false;
	if (finish != MPIN_NIL && finish != MPIN_INT)
		return false;
	if (stop != MPIN_NIL && stop != MPIN_INT && stop != MPIN_STR)
		return false;
	return events == MPIN_NIL || events == MPIN_ARRAY || events == MPIN_NONE;
}

/* 4 up to 0.9, 5 since pooling_output stands before it; 0: neither fits. */
static int find_finish(const struct layout *l, uint32_t n)
{
	int likely = n >= 10 ? 5 : 4, other = 9 - likely;

	if (finish_fits(l, likely))
		return likely;
	return finish_fits(l, other) ? other : 0;
}

/* True if the map is one of prefill statistics. */
static bool read_prefill(struct mpin *m, struct vllm_row *row)
{
	struct mpin_bytes key;
	int64_t *to, v;
	uint32_t n;

	row->prefill.prompt = row->prefill.computed = row->prefill.cached = -1;
	row->prefill.cached_local = row->prefill.cached_external = -1;
	if (!mpin_map(m, &n))
		return false;
	while (mpin_key(m, &n, &key)) {
		if (MPIN_IS(key, "num_prompt_tokens"))
			to = &row->prefill.prompt;
		else if (MPIN_IS(key, "num_computed_tokens"))
			to = &row->prefill.computed;
		else if (MPIN_IS(key, "num_cached_tokens"))
			to = &row->prefill.cached;
		else if (MPIN_IS(key, "num_local_cached_tokens"))
			to = &row->prefill.cached_local;
		else if (MPIN_IS(key, "num_external_cached_tokens"))
			to = &row->prefill.cached_external;
		else
			to = NULL;
		if (!to)
			mpin_skip(m, 1);
		else if (mpin_int(m, &v) && v >= 0)
			*to = v;
	}
	return row->prefill.prompt >= 0 || row->prefill.cached >= 0;
}

/* A field behind the events, at distance d from them. First come kv_transfer_params, a
 * map that may hold anything; then, or after one more, the tokens from the cache; far
 * behind is a count of NaNs. */
static void read_behind_events(struct mpin *m, struct vllm_row *row, uint32_t d)
{
	int64_t v;

	switch (mpin_peek(m)) {
	case MPIN_MAP:
		if (row->has_prefill || d == 1)
			break;
		row->has_prefill = read_prefill(m, row);
		if (row->has_prefill)
			row->n_cached = row->prefill.cached;
		return;
	case MPIN_INT:
		if ((d != 2 && d != 3) || row->n_cached >= 0)
			break;
		if (mpin_int(m, &v) && v >= 0)
			row->n_cached = v;
		return;
	default:
		break;
	}
	mpin_skip(m, 1);
}

static void read_finish(const struct layout *l, int f, struct vllm_row *row)
{
	struct mpin finish = field_at(l, f);
	int64_t v;

	if (l->types[f] == MPIN_INT && mpin_int(&finish, &v))
		row->finish = v >= 0 && v <= INT8_MAX ? (int8_t)v : INT8_MAX;
	if (l->types[f + 1] == MPIN_INT)
		row->stop = VLLM_STOP_TOKEN;
	else if (l->types[f + 1] == MPIN_STR)
		row->stop = VLLM_STOP_TEXT;
	if (l->types[f + 2] == MPIN_ARRAY) {
		row->events.at = field_at(l, f + 2);
		mpin_array(&row->events.at, &row->events.left);
	}
}

/* [id, tokens, logprobs, prompt logprobs, (pooling), finish reason, stop reason, events, ...] */
static void read_row(struct mpin *m, struct mpin_row *at, struct vllm_row *row)
{
	struct layout l;
	uint32_t n;
	int f;

	if (!mpin_row_at(m, at, 0) || !vllm_read_id(m, &row->id) || !mpin_row_at(m, at, 1)) {
		row->flags |= VLLM_SHAPE;
		return;
	}
	if (mpin_peek(m) == MPIN_ARRAY && mpin_array(m, &n)) {
		row->n_tokens = n <= INT32_MAX ? (int32_t)n : -1;
		mpin_skip(m, n);
	} else {
		row->flags |= VLLM_SHAPE;
		mpin_skip(m, 1);
	}
	memset(l.types, 0, sizeof(l.types));
	l.end = m->end;
	for (uint32_t i = FIRST; i < N_LOOK && mpin_row_at(m, at, i); i++) {
		l.at[i] = m->p;
		l.types[i] = mpin_peek(m);
		mpin_skip(m, 1);
	}
	if (m->why)
		return;
	f = find_finish(&l, at->n);
	if (!f) {
		row->flags |= VLLM_SHAPE;
		return;
	}
	read_finish(&l, f, row);
	while (mpin_row_at(m, at, at->next))
		read_behind_events(m, row, at->next - f - 3);
}

bool vllm_msg_next_row(struct vllm_outputs *o, struct vllm_row *ret)
{
	struct mpin *m = &o->rows;
	struct mpin_row at;

	if (!mpin_more(m, &o->rows_left))
		return false;
	*ret = (struct vllm_row){ .n_tokens = -1, .finish = VLLM_NOT_FINISHED, .n_cached = -1 };
	if (mpin_row_begin(m, &at)) {
		read_row(m, &at, ret);
		mpin_row_end(m, &at);
	} else {
		ret->flags |= VLLM_SHAPE;
	}
	if (m->why) {
		if (!ret->id.len)
			return false;
		ret->flags = VLLM_CUT;
	}
	return true;
}
