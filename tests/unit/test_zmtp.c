/* SPDX-License-Identifier: Apache-2.0 */
/* Messages out of a ZMTP stream that is cut anywhere, joined in the midst, or partly missing. */
#include "parse/zmtp.h"
#include "split.h"
#include "unit.h"

#include <errno.h>
#include <string.h>

size_t __sanitizer_get_current_allocated_bytes(void);	/* of the address sanitizer */

static const uint8_t greeting[64] = "\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL";
static const uint8_t ready[] = "\4\x2b\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0\2\1";
static const uint8_t ping[] = "\4\x07\4PING\0";

/*
 * What was handed out, as text: frames joined by '+', '|' behind each message; ~n: cut, of n bytes;
 * /n: frames in all, where not all are given; ^: may lack its first frames. NAME(type,identity)|
 * is a command.
 */
struct trace {
	char s[8192];
	size_t len;
	const uint8_t *from, *to;	/* the bytes fed, ... */
	bool copied;			/* ... and whether data stood outside them */
	uint64_t bytes;
};

__attribute__((format(printf, 2, 3)))
static void say(struct trace *t, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	t->len += vsnprintf(t->s + t->len, sizeof(t->s) - t->len, format, ap);
	va_end(ap);
	assert_true(t->len < sizeof(t->s));
}

static void on_message(void *ctx, const struct zmtp_message *msg)
{
	struct trace *t = ctx;

	say(t, "%s", msg->joined ? "^" : "");
	for (size_t i = 0; i < msg->n; i++) {
		const struct zmtp_frame *f = &msg->frames[i];

		assert_true(f->len <= f->total);
		assert_int_equal(!f->data, !f->len);
		if (i + 1 < msg->n_total)
			assert_true(f->more);
		else
			assert_false(f->more);
		t->copied |= f->len && (f->data < t->from || f->data >= t->to);
		say(t, "%s%.*s", i ? "+" : "", (int)f->len, (const char *)f->data);
		if (f->len < f->total)
			say(t, "~%llu", (unsigned long long)f->total);
	}
	if (msg->n < msg->n_total)
		say(t, "/%llu", (unsigned long long)msg->n_total);
	say(t, "|");
	t->bytes = msg->bytes;
}

static void on_command(void *ctx, const struct zmtp_command *cmd)
{
	struct trace *t = ctx;

	say(t, "%s", cmd->name);
	if (*cmd->socket_type)
		say(t, "(%s,", cmd->socket_type);
	for (size_t i = 0; i < cmd->identity_len; i++)
		say(t, "%02x", cmd->identity[i]);
	say(t, "%s|", *cmd->socket_type ? ")" : "");
}

static const struct zmtp_fns fns = { on_message, on_command };

/*
 * A stream as text: G, R, P: greeting, READY, PING; (x): a frame; (x+): one with more to come;
 * (#n): one of n times 'x', (#n+); =n=: header of a frame of n bytes, -n-: of one with more;
 * {hex}: bytes; @n@: a hole; |: a read or write ends here, and so a feed.
 */
struct script {
	uint8_t bytes[200000];
	size_t len;
	struct cut {
		size_t at;
		uint64_t gap;	/* 0: '|' */
	} cuts[64];
	size_t n_cuts;
};

static void put(struct script *s, const void *p, size_t len)
{
	assert_true(s->len + len <= sizeof(s->bytes));
	memcpy(s->bytes + s->len, p, len);
	s->len += len;
}

static void put_header(struct script *s, uint64_t len, bool more)
{
	uint8_t head[9] = { more };
	size_t n = 2;

	head[1] = len;
	if (len > 255) {
		head[0] |= 2;
		for (n = 1; n < 9; n++)
			head[n] = len >> 8 * (8 - n);
	}
	put(s, head, n);
}

static void put_frame(struct script *s, const char *text, size_t n)
{
	bool more = n && text[n - 1] == '+';
	size_t len;

	n -= more;
	if (*text != '#') {
		put_header(s, n, more);
		put(s, text, n);
		return;
	}
	len = strtoul(text + 1, NULL, 10);
	put_header(s, len, more);
	while (len--)
		put(s, "x", 1);
}

static void compile(struct script *s, const char *in)
{
	char *end;
	unsigned c;

	s->len = s->n_cuts = 0;
	for (; *in; in++) {
		switch (*in) {
		case 'G':
			put(s, greeting, sizeof(greeting));
			break;
		case 'R':
			put(s, ready, sizeof(ready));
			break;
		case 'P':
			put(s, ping, sizeof(ping));
			break;
		case '(':
			end = strchr(in, ')');
			put_frame(s, in + 1, end - in - 1);
			in = end;
			break;
		case '=':
		case '-':
			put_header(s, strtoull(in + 1, &end, 10), *in == '-');
			in = end;
			break;
		case '{':
			for (in++; *in != '}'; in += 2) {
				assert_int_equal(sscanf(in, "%2x", &c), 1);
				put(s, &(uint8_t){ c }, 1);
			}
			break;
		case '@':
			s->cuts[s->n_cuts++] = (struct cut){ s->len, strtoull(in + 1, &end, 10) };
			in = end;
			break;
		case '|':
			s->cuts[s->n_cuts++] = (struct cut){ s->len, 0 };
			break;
		default:
			fail_msg("script: '%s'", in);
		}
		assert_true(s->n_cuts < ARRAY_SIZE(s->cuts));
	}
	s->cuts[s->n_cuts] = (struct cut){ s->len, 0 };
}

static void feed_exact(struct zmtp *z, struct trace *t, const uint8_t *p, size_t len, bool start)
{
	uint8_t *copy = malloc(len);	/* exact, so that reading past it is seen */
	int err;

	memcpy(copy, p, len);
	t->from = copy;
	t->to = copy + len;
	err = zmtp__feed(z, copy, len, start);
	assert_true(err == 0 || err == -EPROTO);
	free(copy);
}

static void play(struct zmtp *z, struct trace *t, const struct script *s, int mode)
{
	struct split split = split_new(mode);
	bool start = true;
	size_t i = 0, n;

	for (size_t c = 0; c <= s->n_cuts; c++) {
		for (; i < s->cuts[c].at; i += n, start = false) {
			n = split_next(&split, s->cuts[c].at - i);
			feed_exact(z, t, s->bytes + i, n, start);
		}
		if (s->cuts[c].gap)
			zmtp__gap(z, s->cuts[c].gap);
		start = !s->cuts[c].gap;
	}
}

enum { WHOLE_ONLY = 1 };	/* what is joined must lie in one feed */

static const struct row {
	const char *name, *in, *want;
	int how;
} rows[] = {		/* with max_bytes 16 */
	{ "greeting alone", "G", "", 0 },
	{ "ready", "GR", "READY(DEALER,0100)|", 0 },
	{ "one frame", "G(hello)", "hello|", 0 },
	{ "two frames", "G(a+)(bc)", "a+bc|", 0 },
	{ "several messages", "GR(a)(b+)(c)(d)", "READY(DEALER,0100)|a|b+c|d|", 0 },
	{ "empty", "G()(+)(x)(a+)()", "|+x|a+|", 0 },
	{ "as long as is kept", "G(0123456789abcdef)", "0123456789abcdef|", 0 },
	{ "one longer", "G(0123456789abcdefg)(h)", "0123456789abcdef~17|h|", 0 },
	{ "long", "G(#300)(a)", "xxxxxxxxxxxxxxxx~300|a|", 0 },
	{ "longest short one", "G(#255)(a)", "xxxxxxxxxxxxxxxx~255|a|", 0 },
	{ "very long", "G(#70000+)(a)(b)", "xxxxxxxxxxxxxxxx~70000+~1|b|", 0 },
	{ "the limit is for all frames", "G(0123456789+)(0123456789+)(a)(b)",
	  "0123456789+012345~10+~1|b|", 0 },
	{ "long form of a short length", "G{02000000000000000161}(b)", "a|b|", 0 },
	{ "long form of nothing", "G{020000000000000000}(b)", "|b|", 0 },
	{ "many frames",
	  "G(a+)(b+)(c+)(d+)(e+)(f+)(g+)(h+)(i+)(j)(k)", "a+b+c+d+e+f+g+h/10|k|", 0 },
	{ "command inside a message", "G(a+)P(b)(c)", "PING|a+b|c|", 0 },
	{ "command between messages", "G(a)P(b)", "a|PING|b|", 0 },
	{ "command in long form", "G{060000000000000007}{0450494e470000}(b)", "PING|b|", 0 },
	{ "command without a name", "G{0400}{040100}{0402ff41}(b)", "|b|", 0 },
	{ "command longer than is kept",
	  "G{060000000000000bb8}{0450494e47}(#2986)(b)", "PING|b|", 0 },
	{ "ready without properties", "G{0406055245414459}(b)", "READY|b|", 0 },
	{ "identity that is cut, then a type", "G{0457}{055245414459}{084964656e74697479}{00000030}"
	  "{61616161616161616161616161616161}{61616161616161616161616161616161}{62626262626262626262626262626262}"
	  "{0b536f636b65742d54797065}{00000004}{50555348}(b)",
	  "READY(PUSH,6161616161616161616161616161616161616161616161616161616161616161)|b|", 0 },
	{ "property that is too long",
	  "G{0413055245414459}{084964656e74697479}{ffffffff}(b)", "READY|b|", 0 },
	{ "property name that is too long", "G{0408055245414459}{ff41}(b)", "READY|b|", 0 },
	{ "hole in a frame", "G=10={616263}@7@(x)", "abc~10|x|", 0 },
	{ "hole, then more of the frame", "G=10={616263}@3@{64656667}(x)", "abc~10|x|", 0 },
	{ "hole behind the header", "G=10=@10@(x)", "~10|x|", 0 },
	{ "hole at the body's start", "G=4=@3@{61}(x)", "~4|x|", 0 },
	{ "two holes", "G=10={6162}@3@{63}@4@(x)", "ab~10|x|", 0 },
	{ "hole in the first of two", "G-5-{61}@4@(b)(c)", "a~5+b|c|", 0 },
	{ "hole in a long one", "G=100000={61}@99999@(b)", "a~100000|b|", 0 },
	{ "hole of nothing", "G(a)@0@(b)", "a|b|", 0 },
	{ "hole in a command", "G{040704}{50494e47}@2@(b)", "PING|b|", 0 },
	{ "hole in a command's name", "G{040704}{50494e}@3@(b)", "b|", 0 },
	{ "hole over a frame's end", "G=10={61}@12@(x)|(y)", "a~10|^y|", WHOLE_ONLY },
	{ "hole between messages", "G(a)@2@(b)|(c)(d)", "a|^c|d|", WHOLE_ONLY },
	{ "hole between frames", "G(a+)@2@(b)|(c)", "^c|", WHOLE_ONLY },
	{ "hole in a header", "G(a){00}@1@(b)|(c)", "a|^c|", WHOLE_ONLY },
	{ "hole in a long header", "G(a){020000}@1@(b)|(c)", "a|^c|", WHOLE_ONLY },
	{ "hole in the greeting", "{ff00}@62@(b)|(c)", "^c|", WHOLE_ONLY },
	{ "hole first", "@5@(b)|(c)", "^c|", WHOLE_ONLY },
	{ "what follows a hole is no start", "@5@(b)@7@(c)|(d)", "^d|", WHOLE_ONLY },
	{ "flags that do not exist", "G(a){080162}|(c)", "a|^c|", WHOLE_ONLY },
	{ "a command with more", "G(a){050162}|(c)", "a|^c|", WHOLE_ONLY },
	{ "bad flags inside a message", "G(a+){ff}|(c)", "^c|", WHOLE_ONLY },
	{ "length 2^63", "G(a){028000000000000000}(b)|(c)", "a|^c|", WHOLE_ONLY },
	{ "length 2^64 - 1", "G(a){02ffffffffffffffff}(b)|(c)", "a|^c|", WHOLE_ONLY },
	{ "length 2^62", "G(a){034000000000000000}(b)|(c)", "a|^c|", WHOLE_ONLY },
	{ "length of a command 2^63", "G(a){068000000000000000}(b)|(c)", "a|^c|", WHOLE_ONLY },
	{ "joined at a message", "(a)(b)", "^a|b|", WHOLE_ONLY },
	{ "joined at a request", "(t+)(abc)(d)", "^t+abc|d|", WHOLE_ONLY },
	{ "joined at an empty message", "()|(a)", "^|a|", WHOLE_ONLY },
	{ "joined at a long message", "=3000={61}@2999@(b)", "^a~3000|b|", WHOLE_ONLY },
	{ "joined at a long message in parts",
	  "=300={6162}|{6364}@296@(b)", "^abcd~300|b|", WHOLE_ONLY },
	{ "joined at a command", "RP(a)(b)", "READY(DEALER,0100)|PING|^a|b|", WHOLE_ONLY },
	{ "joined before the greeting", "{646566}|GR(a)", "READY(DEALER,0100)|a|", 0 },
	{ "joined in mid-frame", "{9261626364}|(a)", "^a|", WHOLE_ONLY },
	{ "joined in a batch that ends in a header",
	  "(a)(b){0005}|{6162636465}(c)", "^a|b|abcde|c|", WHOLE_ONLY },
	{ "joined before half a header",
	  "(a)(b){02}|{0000000000000100}@256@(c)", "^a|b|~256|c|", WHOLE_ONLY },
	{ "a wrong guess is given up", "=100000={6162}|(a)(b)", "^a|b|", WHOLE_ONLY },
	{ "a wrong guess is kept within a call",
	  "=100000={6162}@10@(a)(b)@99982@(c)", "^ab~100000|c|", WHOLE_ONLY },
	{ "a guess that held is not", "=300={6162}@298@=100000={6162}|(c)(d)@99992@(e)|(f)",
	  "^ab~300|ab~100000|e|f|", WHOLE_ONLY },
	{ "version 2", "{ff00000000000000017f01}|(a)", "^a|", WHOLE_ONLY },
	{ "a signature that is none", "{ffffffffffffffffffffff}|(a)", "^a|", WHOLE_ONLY },
	{ "a greeting that ends badly", "{ff}|{0000000000000001007f03}|(a)", "^a|", WHOLE_ONLY },
};

static void check(const struct row *row, int mode)
{
	static struct script s;
	struct trace t = { .len = 0 };
	struct zmtp *z = zmtp__new(16, &fns, &t);

	assert_non_null(z);
	compile(&s, row->in);
	play(z, &t, &s, mode);
	if (strcmp(t.s, row->want))
		fail_msg("%s, split %d:\n  got  '%s'\n  want '%s'", row->name, mode, t.s, row->want);
	zmtp__free(z);
}

static void test_zmtp__cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (int mode = 0; mode < (rows[i].how == WHOLE_ONLY ? 1 : N_SPLITS); mode++)
			check(&rows[i], mode);
}

static void test_zmtp__is_start(void **state)
{
	static const struct {
		const char *in;
		bool want;
	} starts[] = {
		{ "{000100}", true },			/* a worker's wake-up */
		{ "{0000}", true },			/* an engine says hello */
		{ "(t+)(abc)", true },
		{ "(t+)=300={61}", true },
		{ "=300={61}", true },
		{ "(a)(b)=5={61}", true },
		{ "(a){02}", true },
		{ "(a){00}", true },
		{ "(#300)(a)", true },
		{ "R", true }, { "P", true }, { "PPR(a)", true },
		{ "", false },
		{ "{00}", false }, { "{02}", false }, { "{0200000000}", false },
		{ "=5={61}", false },			/* a short frame alone, and not whole */
		{ "{00000000}", false },		/* zeros */
		{ "{01000100}", false },		/* 16-bit ones, ... */
		{ "{0001000100010001}", false },
		{ "{0100000002000000}", false },	/* ... 32-bit numbers, ... */
		{ "{02000000000000000500000000000000}", false },	/* ... 64-bit ones */
		{ "{020000000000000005}{6162636465}", false },	/* nobody writes short ones so */
		{ "{020000010000000000}{61}", false },	/* 2^40 bytes */
		{ "{80}", false }, { "{080161}", false }, { "{050161}", false },
		{ "(a){61}", false }, { "(a)(b){ff}", false },
		{ "(a)()", false }, { "()(a)", false }, { "(a+)(+)", false },
		{ "{92a161a162}", false }, { "{646174613a}", false },
	};
	static struct script s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
		compile(&s, starts[i].in);
		if (zmtp_is_start(s.bytes, s.len) != starts[i].want)
			fail_msg("%s: not %d", starts[i].in, starts[i].want);
	}
}

static void test_zmtp__counts(void **state)
{
	static struct script s;
	struct trace t = { .len = 0 };
	struct zmtp *z = zmtp__new(16, &fns, &t);
	const struct zmtp_stats *n = zmtp__stats(z);

	(void)state;
	compile(&s, "{616263}|GR(a+)(bc)(#300)(x+){ff6162}|{6364}|(c)(d)@9@");
	play(z, &t, &s, SPLIT_WHOLE);
	assert_string_equal(t.s, "READY(DEALER,0100)|a+bc|xxxxxxxxxxxxxxxx~300|^c|d|");
	assert_int_equal(n->n_messages, 4);
	assert_int_equal(n->n_commands, 1);
	assert_int_equal(n->n_cut, 1);
	assert_int_equal(n->n_dropped, 1);
	assert_int_equal(n->n_bad, 2);
	assert_int_equal(n->n_joined, 1);
	assert_int_equal(n->skipped_bytes, 3 + 3 + 2 + 9);
	zmtp__free(z);
	zmtp__free(NULL);
}

static void test_zmtp__resync_forgets(void **state)
{
	struct trace t = { .len = 0 };
	struct zmtp *z = zmtp__new(16, &fns, &t);

	(void)state;
	assert_int_equal(zmtp__feed(z, greeting, sizeof(greeting), true), 0);
	assert_int_equal(zmtp__feed(z, "\1\1a\0\5b", 6, true), 0);
	zmtp__resync(z);
	assert_int_equal(zmtp__feed(z, "\0\1c", 3, false), -EPROTO);
	assert_int_equal(zmtp__feed(z, "\0\1d", 3, true), 0);
	assert_int_equal(zmtp__feed(z, "", 0, true), 0);
	assert_string_equal(t.s, "^d|");
	assert_int_equal(zmtp__stats(z)->n_bad, 0);
	assert_int_equal(zmtp__stats(z)->n_dropped, 1);
	zmtp__free(z);
}

static void test_zmtp__callbacks_are_optional(void **state)
{
	static const struct zmtp_fns none;
	static struct script s;
	struct zmtp *z = zmtp__new(16, &none, NULL);
	struct trace t = { .len = 0 };

	(void)state;
	compile(&s, "GR(a)");
	play(z, &t, &s, SPLIT_BYTES);
	assert_int_equal(zmtp__stats(z)->n_messages, 1);
	zmtp__free(z);
}

static void test_zmtp__whole_messages_are_not_copied(void **state)
{
	static struct script s;
	struct trace t = { .len = 0 };
	struct zmtp *z = zmtp__new(1 << 18, &fns, &t);

	(void)state;
	compile(&s, "GRP(a+)(b)(#5000+)P(#300)(c)");
	t.from = s.bytes;
	t.to = s.bytes + s.len;
	oom_after(0);		/* and need no memory */
	assert_int_equal(zmtp__feed(z, s.bytes, s.len, true), 0);
	assert_false(oom_hit());
	assert_false(t.copied);
	assert_int_equal(zmtp__stats(z)->n_messages, 3);
	zmtp__free(z);
}

/* What a message that lies in several feeds took is given back with it. */
static void test_zmtp__holds_nothing_between_messages(void **state)
{
	static struct script s;
	struct trace t = { .len = 0 };
	size_t before = __sanitizer_get_current_allocated_bytes();
	struct zmtp *z = zmtp__new(1 << 18, &fns, &t);
	size_t idle = __sanitizer_get_current_allocated_bytes();

	(void)state;
	assert_true(idle - before < 2048);
	compile(&s, "GR(#3000)(a+)P(#100)(b)R");
	play(z, &t, &s, SPLIT_RANDOM);
	assert_int_equal(zmtp__stats(z)->n_messages, 3);
	assert_int_equal(__sanitizer_get_current_allocated_bytes(), idle);
	zmtp__free(z);
}

/* Nothing is allocated for what a header claims, only for what came. */
static void test_zmtp__claims_take_no_memory(void **state)
{
	static const char *const claims[] = {
		"G=1099511627776={61626364}", "G-1099511627776-{61}", "G{06000000ffffffffff}{0541}",
		"=4294967295={61626364}", "G=4294967296=@4294967295@",
	};
	static struct script s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(claims); i++) {
		struct trace t = { .len = 0 };
		struct zmtp *z = zmtp__new(1 << 18, &fns, &t);
		size_t idle = __sanitizer_get_current_allocated_bytes();

		compile(&s, claims[i]);
		play(z, &t, &s, SPLIT_WHOLE);
		assert_int_equal(zmtp__stats(z)->n_bad, 0);
		assert_true(__sanitizer_get_current_allocated_bytes() - idle <= 1024);
		zmtp__free(z);
	}
}

static void test_zmtp__endless_message(void **state)
{
	enum { MAX = 1000, PIECES = 30000 };
	struct trace t = { .len = 0 };
	struct zmtp *z = zmtp__new(MAX, &fns, &t);
	size_t idle = __sanitizer_get_current_allocated_bytes();
	uint8_t frame[202] = { 1, 200 };

	(void)state;
	memset(frame + 2, 'x', 200);
	assert_int_equal(zmtp__feed(z, greeting, sizeof(greeting), true), 0);
	for (int i = 0; i < PIECES; i++) {
		assert_int_equal(zmtp__feed(z, frame, 150, false), 0);
		assert_int_equal(zmtp__feed(z, frame + 150, 52, false), 0);
		assert_true(__sanitizer_get_current_allocated_bytes() - idle <= MAX + 1024);
	}
	assert_int_equal(zmtp__stats(z)->n_messages, 0);
	assert_int_equal(zmtp__feed(z, "\0\1a\0\1b", 6, true), 0);
	assert_int_equal(zmtp__stats(z)->n_messages, 2);
	assert_non_null(strstr(t.s, "/30001|b|"));
	assert_int_equal(__sanitizer_get_current_allocated_bytes(), idle);
	zmtp__free(z);
}

/* Commands between the frames of a message leave nothing behind. */
static void test_zmtp__endless_commands(void **state)
{
	enum { MAX = 1000, PIECES = 1000 };
	static struct script s;
	struct trace t = { .len = 0 };
	struct zmtp *z = zmtp__new(MAX, &fns, &t);
	size_t idle = __sanitizer_get_current_allocated_bytes();

	(void)state;
	compile(&s, "G-3-{61}");
	play(z, &t, &s, SPLIT_BYTES);
	assert_int_equal(zmtp__feed(z, "bc", 2, false), 0);
	for (int i = 0; i < PIECES; i++) {
		compile(&s, "{04c8}{0450494e47}(#191){0000}");
		play(z, &t, &s, SPLIT_BYTES);
		assert_true(__sanitizer_get_current_allocated_bytes() - idle <= MAX + 1024);
		t.len = 0;
	}
	assert_int_equal(zmtp__stats(z)->n_commands, PIECES);
	assert_int_equal(zmtp__feed(z, "\0\2de", 4, false), 0);
	assert_string_equal(t.s, "abc+de|");
	assert_int_equal(zmtp__stats(z)->n_bad, 0);
	zmtp__free(z);
}

static void test_zmtp__survives_oom(void **state)
{
	static const char *const feeds[] = {
		"G", "{0005616263}", "{6465}(b)", "-5-{6162}", "{636465}P{0407}", "{0450494e47}", "{0000}(c)",
		"=600={61}", "(#590)", "(d)",	/* a frame in a frame: just 599 bytes more */
	};
	static struct script s;
	int n_lost = 0;

	(void)state;
	OOM_LOOP({
		struct trace t = { .len = 0 };
		struct zmtp *z = zmtp__new(1000, &fns, &t);
		int lost = 0;

		for (size_t i = 0; z && i < ARRAY_SIZE(feeds); i++) {
			int err;

			compile(&s, feeds[i]);
			err = zmtp__feed(z, s.bytes, s.len, true);
			assert_true(err == 0 || err == -ENOMEM);
			lost += err == -ENOMEM;
		}
		if (z) {
			assert_string_equal(t.s + t.len - 2, "d|");
			assert_int_equal(zmtp__stats(z)->n_messages + zmtp__stats(z)->n_dropped, 5);
			assert_true(zmtp__stats(z)->n_dropped <= 1 && lost <= 1);
			assert_int_equal(zmtp__stats(z)->n_bad, 0);
		}
		n_lost += lost;
		zmtp__free(z);
	});
	assert_int_equal(n_lost, 4);
}

static void test_zmtp__lost_message_is_the_only_one(void **state)
{
	struct trace t = { .len = 0 };
	struct zmtp *z = zmtp__new(1000, &fns, &t);

	(void)state;
	assert_int_equal(zmtp__feed(z, greeting, sizeof(greeting), true), 0);
	oom_after(0);
	assert_int_equal(zmtp__feed(z, "\1\2a", 3, true), -ENOMEM);
	assert_true(oom_hit());
	assert_int_equal(zmtp__feed(z, "b\1\1c\0\1d\0\1e", 10, true), 0);
	assert_string_equal(t.s, "e|");
	zmtp__free(z);
}

/* ---- streams as libzmq sends them ---- */

enum { BATCH = 8192, N_SENT = 300 };

struct sent {
	struct script all;
	size_t sends[2000], n_sends;	/* where each call begins */
};

/* Messages of all lengths; what a batch of 8 KiB does not hold of a long one is one more call. */
static void send_all(struct sent *s, uint32_t seed)
{
	size_t batch = 0;

	compile(&s->all, "");
	s->n_sends = 0;
	for (int i = 0; i < N_SENT; i++) {
		char text[64];
		size_t begin = s->all.len;
		int n;

		seed = seed * 1664525u + 1013904223u;
		n = seed >> 16 & 3 ? snprintf(text, sizeof(text), "(t+)(message %d)", i) :
				     snprintf(text, sizeof(text), "(t+)(#%u)", (seed >> 20) % 20000);
		assert_true(n > 0);
		if (s->all.len > sizeof(s->all.bytes) - 25000)
			break;
		for (const char *p = text, *end; *p; p = end + 1) {
			end = strchr(p, ')');
			put_frame(&s->all, p + 1, end - p - 1);
		}
		/* Bodies are anything: also zeros and small numbers, which look like headers. */
		for (size_t k = begin + 12; k < s->all.len; k++)
			if (s->all.bytes[k] == 'x')
				s->all.bytes[k] = (k / 64) % 5;
		if (!batch || seed >> 30 == 0) {	/* the queue was empty: a call of its own */
			s->sends[s->n_sends++] = begin;
			batch = begin + BATCH;
		}
		if (s->all.len > batch) {
			s->sends[s->n_sends++] = batch;
			batch = 0;
		}
	}
	assert_true(s->n_sends < ARRAY_SIZE(s->sends) - 1);
	s->sends[s->n_sends] = s->all.len;
}

/* The lengths and first bytes of messages, one line each. */
struct lines {
	char s[N_SENT][40];
	size_t n;
};

static void on_line(void *ctx, const struct zmtp_message *msg)
{
	struct lines *l = ctx;
	const struct zmtp_frame *f = &msg->frames[msg->n - 1];

	assert_true(l->n < N_SENT);
	snprintf(l->s[l->n++], sizeof(l->s[0]), "%zu %llu %.*s", msg->n, (unsigned long long)f->total,
		 f->total < 20 ? (int)f->len : 0, (const char *)f->data);
}

static void test_zmtp__joined_at_every_call(void **state)
{
	static const struct zmtp_fns line_fns = { on_line, NULL };
	static struct sent sent;
	static struct lines all, some;
	size_t n_starts = 0, n_all = 0;

	(void)state;
	for (uint32_t seed = 1; seed <= 20; seed++) {
		send_all(&sent, seed);
		for (size_t k = 0; k < sent.n_sends; k++) {
			struct lines *l = k ? &some : &all;
			struct zmtp *z = zmtp__new(64, &line_fns, l);

			l->n = 0;
			for (size_t i = k; i < sent.n_sends; i++)
				zmtp__feed(z, sent.all.bytes + sent.sends[i],
					   sent.sends[i + 1] - sent.sends[i], true);
			/* Whatever is missed at the start, the rest is right. */
			assert_true(l->n <= all.n);
			for (size_t i = 1; i <= l->n; i++)
				assert_string_equal(l->s[l->n - i], all.s[all.n - i]);
			n_starts += l->n > 0;
			n_all++;
			zmtp__free(z);
		}
		assert_true(all.n > 50);
	}
	assert_true(n_all > 500 && n_starts > n_all * 9 / 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zmtp__cases),
		cmocka_unit_test(test_zmtp__is_start),
		cmocka_unit_test(test_zmtp__counts),
		cmocka_unit_test(test_zmtp__resync_forgets),
		cmocka_unit_test(test_zmtp__callbacks_are_optional),
		cmocka_unit_test(test_zmtp__whole_messages_are_not_copied),
		cmocka_unit_test(test_zmtp__holds_nothing_between_messages),
		cmocka_unit_test(test_zmtp__claims_take_no_memory),
		cmocka_unit_test(test_zmtp__endless_message),
		cmocka_unit_test(test_zmtp__endless_commands),
		cmocka_unit_test(test_zmtp__survives_oom),
		cmocka_unit_test(test_zmtp__lost_message_is_the_only_one),
		cmocka_unit_test(test_zmtp__joined_at_every_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
