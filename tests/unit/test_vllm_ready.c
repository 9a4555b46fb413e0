/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine says of itself when it is ready: its limits, which its command line may not have. */
#include "vllm_feed.h"

#define EXCHANGE "tests/golden/vllm/live-0.32.0/exchange.txt"

/* The first message of a real engine: a frame of more than 255 bytes that holds a map of 25. */
static size_t real_message(uint8_t *to, size_t max)
{
	static char line[1 << 16];
	FILE *f = fopen(EXCHANGE, "re");
	unsigned int byte;
	size_t n = 0;
	char *hex = NULL;

	assert_non_null(f);
	while (!hex && fgets(line, sizeof(line), f))
		hex = strstr(line, "requests-back 02");
	fclose(f);
	assert_non_null(hex);
	for (hex += strlen("requests-back "); n < max && sscanf(hex, "%2x", &byte) == 1; hex += 2)
		to[n++] = byte;
	return n;
}

static void test_ready__of_a_real_engine(void **state)
{
	const size_t header = 9;
	struct vllm_ready r = { 0 };
	uint8_t msg[4096];
	size_t n = real_message(msg, sizeof(msg));

	(void)state;
	assert_true(n > 400 && n < sizeof(msg));
	assert_int_equal(vllm_msg_ready(msg + header, n - header, &r), 0);
	assert_int_equal(r.max_step_tokens, 512);
	assert_int_equal(r.max_seqs, 8);
	/* cut anywhere: said or not, never anything else */
	for (size_t len = 0; len < n - header; len++) {
		uint8_t *copy = malloc(len);	/* so that a byte too many is noticed */

		memcpy(copy, msg + header, len);
		r = (struct vllm_ready){ 0 };
		if (!vllm_msg_ready(copy, len, &r))
			assert_true(!r.max_step_tokens || r.max_step_tokens == 512);
		else
			assert_int_equal(r.max_seqs, 0);
		free(copy);
	}
}

static void test_ready__cases(void **state)
{
	static const struct {
		const char *text;
		int err;
		uint32_t tokens, seqs;
	} cases[] = {
		{ "{max_num_batched_tokens:8192,max_num_seqs:256}", 0, 8192, 256 },
		{ "{a:{max_num_seqs:1},max_num_batched_tokens:7}", 0, 7, 0 },
		{ "{max_num_batched_tokens:nil,max_num_seqs:-3}", -EPROTO, 0, 0 },
		{ "{max_num_batched_tokens:\"512\",max_num_seqs:2}", 0, 0, 2 },
		{ "{status:\"READY\"}", -EPROTO, 0, 0 },
		{ "[1,2]", -EPROTO, 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct vllm_ready r = { 0 };
		struct mp m = { 0 };

		mp_text(&m, cases[i].text);
		assert_int_equal(vllm_msg_ready(m.p, m.len, &r), cases[i].err);
		assert_int_equal(r.max_step_tokens, cases[i].tokens);
		assert_int_equal(r.max_seqs, cases[i].seqs);
		mp_free(&m);
	}
}

/* ---- the adapter ---- */

struct seen {
	struct tl_engine last;
	unsigned n_engine, n_steps;
	uint32_t tokens[4];	/* of each step */
};

static int see(void *ctx, const struct tl_hdr *ev)
{
	const struct tl_step *st = (const void *)ev;
	struct seen *s = ctx;

	if (ev->kind == TL_ENGINE) {
		memcpy(&s->last, ev, sizeof(s->last));
		s->n_engine++;
	}
	if (ev->kind == TL_STEP && s->n_steps < ARRAY_SIZE(s->tokens))
		s->tokens[s->n_steps++] = st->n_tokens;
	return 0;
}

/* A prompt of 900 tokens on an engine that takes 512 a step, in a server that nobody said this of. */
static void play(bool told, struct seen *seen)
{
	struct fixture f = { .now = 1000 * (uint64_t)MS, .core = CORE };
	struct tl_engine e = { .hdr = { sizeof(e), TL_ENGINE, 0, CORE, 0, f.now }, .server = API, .start_ns = 5,
			       .engine = TL_ENGINE_VLLM, .role = "engine-core" };
	uint8_t msg[4096];

	*seen = (struct seen){ 0 };
	f.v = vllm__new(&(struct emit){ see, seen });
	assert_int_equal(vllm__add_process(f.v, &e), 0);
	if (told)
		for (int i = 0; i < 2; i++) {	/* to each of two API servers */
			size_t n = real_message(msg, sizeof(msg));

			net(&f, IN + 50 * i, TL_OUT, msg, n, n);
		}
	add(&f, "a", 900);
	step(&f, "", stats(1, 0, 1, 0, 0));
	step(&f, "a", stats(1, 0, 0, 0, 0));
	assert_int_equal(f.err, 0);
	e.max_step_tokens = 0;
	e.n_ports = 1;
	assert_int_equal(vllm__add_process(f.v, &e), 0);
	assert_int_equal(e.max_step_tokens, told ? 512 : 0);
	vllm__free(f.v);
}

static void test_ready__is_told_and_used(void **state)
{
	struct seen seen;

	(void)state;
	play(false, &seen);
	assert_int_equal(seen.n_engine, 0);
	assert_true(seen.n_steps && seen.tokens[0] != 512);
	play(true, &seen);
	assert_int_equal(seen.n_steps, 2);
	assert_int_equal(seen.tokens[0], 512);
	assert_int_equal(seen.tokens[1], 900 - 512);
	assert_int_equal(seen.n_engine, 1);
	assert_int_equal(seen.last.hdr.tgid, CORE);
	assert_int_equal(seen.last.max_step_tokens, 512);
	assert_int_equal(seen.last.max_seqs, 8);
	assert_int_equal(seen.last.server, API);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ready__of_a_real_engine),
		cmocka_unit_test(test_ready__cases),
		cmocka_unit_test(test_ready__is_told_and_used),
	};

	return cmocka_run_group_tests_name("vllm_ready", tests, NULL, NULL);
}
