/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to vLLM's engine: requests and their ids. */
#include "base/util.h"
#include "parse/vllm_msg.h"
#include "parse/vllm_priv.h"

#include <errno.h>
#include <string.h>

/* ---- ids ---- */

static bool is_hex(const char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f')))
			return false;
	return true;
}

enum { SUFFIX = 9 };		/* "-" and 8 hex digits */

static struct vllm_id without_suffix(struct vllm_id id)
{
	if (id.len > SUFFIX && id.p[id.len - SUFFIX] == '-' &&
	    is_hex(id.p + id.len - SUFFIX + 1, SUFFIX - 1))
		id.len -= SUFFIX;
	return id;
}

/* Digits of a number below a million, at p; 0: none. */
static size_t number(const char *p, size_t len, int32_t *ret)
{
	size_t n = 0;

	*ret = 0;
	while (n < len && p[n] >= '0' && p[n] <= '9' && n < 6)
		*ret = *ret * 10 + (p[n++] - '0');
	return n;
}

static struct vllm_id without_child(struct vllm_id id, int32_t *ret_child)
{
	size_t n = number(id.p, id.len, ret_child);

	if (n && n + 1 < id.len && id.p[n] == '_')
		return (struct vllm_id){ id.p + n + 1, id.len - n - 1 };
	*ret_child = -1;
	return id;
}

/* A chat has one prompt, and so no number; /v1/responses counts the turns
 * that it takes by itself. */
static struct vllm_id without_prompt(struct vllm_id id, int32_t *ret_prompt)
{
	size_t digits = 0;
	char sep = id.len > 5 && !memcmp(id.p, "resp_", 5) ? '_' : '-';

	*ret_prompt = -1;
	if (id.len > 9 && !memcmp(id.p, "chatcmpl-", 9))
		return id;
	while (digits < id.len && digits < 6 && id.p[id.len - digits - 1] >= '0' &&
	       id.p[id.len - digits - 1] <= '9')
		digits++;
	if (!digits || digits + 1 >= id.len || id.p[id.len - digits - 1] != sep)
		return id;
	if (sep == '_' && id.len - digits == 5)
		return id;		/* the number is all that it has */
	number(id.p + id.len - digits, digits, ret_prompt);
	id.len -= digits + 1;
	return id;
}

/* Beam search asks for each token of each beam anew, by "ID-", 16 hex digits (older releases: 32)
 * of that round, and "-beam-" with the beam's number. */
static struct vllm_id without_beam(struct vllm_id id)
{
	static const char word[] = "-beam-";
	static const size_t rounds[] = { 16, 32 };
	size_t len = id.len, n_word = sizeof(word) - 1;

	while (len && id.p[len - 1] >= '0' && id.p[len - 1] <= '9')
		len--;
	if (len == id.len || len < n_word || memcmp(id.p + len - n_word, word, n_word))
		return id;
	len -= n_word;
	for (size_t i = 0; i < ARRAY_SIZE(rounds); i++)
		if (len > rounds[i] + 1 && id.p[len - rounds[i] - 1] == '-' &&
		    is_hex(id.p + len - rounds[i], rounds[i]))
			return (struct vllm_id){ id.p, len - rounds[i] - 1 };
	return id;
}

struct vllm_id vllm_msg_without_conversation(struct vllm_id id)
{
	size_t len = id.len;

	if (len <= 9 || memcmp(id.p, "chatcmpl-", 9))
		return id;
	while (len > 9 && id.len - len < 6 && id.p[len - 1] >= '0' && id.p[len - 1] <= '9')
		len--;
	if (len == id.len || len < 11 || id.p[len - 1] != '_')
		return id;
	return (struct vllm_id){ id.p, len - 1 };
}

struct vllm_id vllm_msg_without_prompt(struct vllm_id id)
{
	int32_t prompt;

	return without_prompt(id, &prompt);
}

void vllm_msg_names(struct vllm_id id, struct vllm_names *ret)
{
	ret->sequence = without_child(id, &ret->child);
	ret->external = without_suffix(ret->sequence);
	ret->http = without_prompt(without_beam(ret->external), &ret->prompt);
}

static bool same(struct vllm_id a, struct vllm_id b)
{
	return a.len && a.len == b.len && !memcmp(a.p, b.p, a.len);
}

bool vllm_msg_id_is_of(struct vllm_id id, struct vllm_id external)
{
	int32_t child;
	struct vllm_id sequence = without_child(id, &child);

	return same(id, external) || same(without_suffix(id), external) ||
	       same(sequence, external) || same(without_suffix(sequence), external);
}

bool vllm_read_id(struct mpin *m, struct vllm_id *ret)
{
	struct mpin_bytes b;

	if (!mpin_bytes(m, &b) || b.type != MPIN_STR || m->why || !b.len)
		return false;
	*ret = (struct vllm_id){ (const char *)b.p, b.len };
	return true;
}

bool vllm_msg_next_id(struct vllm_ids *ids, struct vllm_id *ret)
{
	while (mpin_more(&ids->at, &ids->left))
		if (vllm_read_id(&ids->at, ret))
			return true;
	return false;
}

int vllm_msg_abort(const void *data, size_t len, struct vllm_ids *ret)
{
	struct vllm_ids ids;

	mpin_init(&ids.at, data, len);
	if (!mpin_array(&ids.at, &ids.left))
		return -EPROTO;
	*ret = ids;
	return 0;
}

uint64_t vllm_ns(double seconds)
{
	uint64_t whole;

	if (!(seconds > 0 && seconds < 9e9))	/* nor is NaN one */
		return 0;
	whole = (uint64_t)seconds;
	return whole * 1000000000 + (uint64_t)((seconds - whole) * 1e9 + 0.5);
}

/* ---- kinds ---- */

/* Outputs are an array that begins with the engine's number and an array of rows, or (0.7) with the
 * rows alone; of rows that are not empty, one begins with an id. */
static bool is_outputs(const struct zmtp_frame *f)
{
	struct mpin m;
	uint32_t n;

	mpin_init(&m, f->data, f->len);
	if (!mpin_array(&m, &n) || n < 2)
		return false;
	if (mpin_peek(&m) == MPIN_INT)
		mpin_skip(&m, 1);
	if (mpin_peek(&m) != MPIN_ARRAY)
		return false;
	mpin_array(&m, &n);
	if (!n)
		return true;
	return mpin_array(&m, &n) && n >= 2 && mpin_peek(&m) == MPIN_STR;
}

static bool begins_with(const struct zmtp_frame *f, enum mpin_type type)
{
	struct mpin m;

	mpin_init(&m, f->data, f->len);
	return mpin_peek(&m) == type;
}

enum vllm_kind vllm_msg_kind(const struct zmtp_frame *frames, size_t n,
			     const struct zmtp_frame **ret_body)
{
	static const char dead[] = "ENGINE_CORE_DEAD";
	static const uint8_t kinds[] = { VLLM_ADD, VLLM_ABORT, VLLM_WAVE, VLLM_UTILITY };

	if (!n)
		return VLLM_NONE;
	/* One byte says what kind of request it is; a ROUTER's identity may come before. */
	if (n >= 3 && frames[0].total != 1 && frames[0].total <= 255 && frames[1].total == 1) {
		frames++;
		n--;
	}
	*ret_body = &frames[0];
	if (n >= 2 && frames[0].total == 1) {
		*ret_body = &frames[1];
		if (!frames[0].len || frames[0].data[0] >= sizeof(kinds) ||
		    !begins_with(&frames[1], MPIN_ARRAY))
			return VLLM_NONE;
		return kinds[frames[0].data[0]];
	}
	if (!frames[0].total || begins_with(&frames[0], MPIN_MAP))
		return VLLM_HELLO;
	if (frames[0].len == sizeof(dead) - 1 && !memcmp(frames[0].data, dead, sizeof(dead) - 1))
		return VLLM_DEAD;
	return is_outputs(&frames[0]) ? VLLM_OUTPUTS : VLLM_NONE;
}

static uint32_t positive(struct mpin *m)
{
	int64_t n;

	return mpin_int(m, &n) && n > 0 && n <= UINT32_MAX ? n : 0;
}

int vllm_msg_ready(const void *data, size_t len, struct vllm_ready *ret)
{
	struct vllm_ready r = { 0 };
	struct mpin_bytes key;
	struct mpin m;
	uint32_t n;

	mpin_init(&m, data, len);
	if (!mpin_map(&m, &n))
		return -EPROTO;
	while (mpin_key(&m, &n, &key)) {
		if (MPIN_IS(key, "max_num_batched_tokens"))
			r.max_step_tokens = positive(&m);
		else if (MPIN_IS(key, "max_num_seqs"))
			r.max_seqs = positive(&m);
		else
			mpin_skip(&m, 1);
	}
	if (!r.max_step_tokens && !r.max_seqs)
		return -EPROTO;
	*ret = r;
	return 0;
}

/* ---- ADD ---- */

/* Fields moved from release to release; what tells them apart is their type and their order:
 * id, prompt, [other lists], sampling or pooling parameters, [end token], arrival_time, [...],
 * [data_parallel_rank], client_index, current_wave, priority, [...], external id, [...]. */
struct add_walk {
	struct vllm_add *add;
	uint32_t i;		/* position of the field */
	bool has_params;
	bool has_arrival;	/* fields behind it follow */
	bool after_bool;
	bool external_is_sure;
	bool has_client;
	uint32_t n_ints;	/* integers in a row so far, behind the arrival ... */
	int64_t ints[3];	/* ... the last of them */
};

static int32_t to_s32(int64_t v, int32_t none)
{
	return v >= 0 && v <= INT32_MAX ? (int32_t)v : none;
}

static void read_params(struct mpin *m, struct vllm_add *add)
{
	struct mpin_bytes key;
	uint32_t n;
	int64_t v;

	if (!mpin_map(m, &n))
		return;
	while (mpin_key(m, &n, &key)) {
		if (MPIN_IS(key, "max_tokens")) {
			if (mpin_int(m, &v))
				add->max_tokens = to_s32(v, -1);
		} else if (MPIN_IS(key, "n")) {
			if (mpin_int(m, &v))
				add->n = to_s32(v, 0);
		} else {
			mpin_skip(m, 1);
		}
	}
}

/* A tensor is [type, [sizes ...], data]: embeddings in a prompt's place have a row per token. */
static int64_t tensor_rows(struct mpin m)
{
	int64_t rows;
	uint32_t n;

	if (!mpin_array(&m, &n) || n != 3 || mpin_peek(&m) != MPIN_STR)
		return -1;
	mpin_skip(&m, 1);
	if (!mpin_array(&m, &n) || n < 2 || !mpin_int(&m, &rows) || rows < 0)
		return -1;
	return rows;
}

/* An adapter is [name, number, path, ...]. 0: it is none. */
static int32_t lora_of(struct mpin m)
{
	int64_t number;
	uint32_t n;

	if (!mpin_array(&m, &n) || n < 3 || mpin_peek(&m) != MPIN_STR)
		return 0;
	mpin_skip(&m, 1);
	return mpin_peek(&m) == MPIN_INT && mpin_int(&m, &number) ? to_s32(number, 0) : 0;
}

static void add_array(struct add_walk *w, struct mpin *m)
{
	struct vllm_add *add = w->add;
	struct mpin in = *m;
	uint32_t n;

	if (w->has_arrival) {
		if (add->n_prompt < 0)
			add->n_prompt = tensor_rows(in);
		if (!add->lora)
			add->lora = lora_of(in);
	} else if (w->i <= 2 && add->n_prompt < 0 && mpin_array(&in, &n)) {
		/* One token says that all are. In second place may also be a list of images. */
		if (n ? mpin_peek(&in) == MPIN_INT : w->i == 1)
			add->n_prompt = n;
	}
	mpin_skip(m, 1);
}

static void add_int(struct add_walk *w, struct mpin *m)
{
	int64_t v;

	if (!w->has_arrival || !mpin_int(m, &v)) {
		if (!w->has_arrival)
			mpin_skip(m, 1);
		return;
	}
	w->ints[0] = w->ints[1];
	w->ints[1] = w->ints[2];
	w->ints[2] = v;
	w->n_ints++;
}

static int32_t saturated(int64_t v)
{
	if (v < INT32_MIN)
		return INT32_MIN;
	return v > INT32_MAX ? INT32_MAX : v;
}

/* A row of integers is over. One alone is a data_parallel_rank or (0.8) current_wave. */
static void end_ints(struct add_walk *w)
{
	if (!w->has_client && w->n_ints >= 2) {
		w->add->client_index = to_s32(w->ints[w->n_ints >= 3 ? 0 : 1], -1);
		if (w->n_ints >= 3)
			w->add->priority = saturated(w->ints[2]);
		w->has_client = true;
	}
	w->n_ints = 0;
}

static void add_text(struct add_walk *w, struct mpin *m)
{
	struct vllm_add *add = w->add;
	struct vllm_id id;

	if (!vllm_read_id(m, &id) || !w->has_arrival || w->external_is_sure)
		return;
	w->external_is_sure = vllm_msg_id_is_of(add->id, id);
	if (w->external_is_sure || (w->after_bool && !add->external.len))
		add->external = id;
}

static void add_field(struct add_walk *w, struct mpin *m)
{
	enum mpin_type type = mpin_peek(m);
	double seconds;

	if (type != MPIN_INT)
		end_ints(w);
	switch (type) {
	case MPIN_ARRAY:
		add_array(w, m);
		break;
	case MPIN_INT:
		add_int(w, m);
		break;
	case MPIN_STR:
		add_text(w, m);
		break;
	case MPIN_MAP:
		if (w->has_params || w->has_arrival) {
			mpin_skip(m, 1);
		} else {
			w->has_params = true;
			read_params(m, w->add);
		}
		break;
	case MPIN_FLOAT:
		if (mpin_float(m, &seconds) && !w->has_arrival) {
			w->has_arrival = true;
			w->add->arrival_ns = vllm_ns(seconds);
		}
		break;
	default:
		mpin_skip(m, 1);
		break;
	}
	w->after_bool = type == MPIN_BOOL;
}

int vllm_msg_add(const void *data, size_t len, struct vllm_add *ret)
{
	struct vllm_add add = { .n_prompt = -1, .client_index = -1, .max_tokens = -1 };
	struct add_walk w = { .add = &add };
	struct mpin m;
	uint32_t left;

	mpin_init(&m, data, len);
	if (!mpin_array(&m, &left) || !mpin_more(&m, &left) || !vllm_read_id(&m, &add.id))
		return -EPROTO;
	for (w.i = 1; mpin_more(&m, &left); w.i++)
		add_field(&w, &m);
	if (m.why == MPIN_OK) {
		end_ints(&w);
		if (add.n_prompt < 0 || !w.has_arrival)
			add.flags |= VLLM_SHAPE;
	} else {
		add.flags |= m.why == MPIN_CUT ? VLLM_CUT : VLLM_SHAPE;
	}
	*ret = add;
	return 0;
}
