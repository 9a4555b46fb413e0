/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a ZMTP stream with holes, in long pieces and in short ones: while sync is never lost,
 * what is handed out must be the same; without holes it must be what a plain reader finds. */
#include "parse/zmtp.h"

#include "trace.h"

#include <errno.h>

/* The first byte chooses limit and piece; then ESCAPE and a letter: 'c': a read or write ends here;
 * 'r': bytes are missing, who knows how many; any other: a hole of that many bytes. */
enum { ESCAPE = 0xfe };

static const uint8_t greeting[64] = "\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL";

struct out {
	struct trace t;
	size_t max_bytes;
};

static void add_message(struct trace *t, const struct zmtp_message *msg)
{
	uint64_t n[4] = { msg->n, msg->n_total, msg->bytes, msg->joined };

	trace_add(t, n, sizeof(n));
	for (size_t i = 0; i < msg->n; i++) {
		uint64_t f[3] = { msg->frames[i].len, msg->frames[i].total, msg->frames[i].more };

		trace_add(t, f, sizeof(f));
		trace_add(t, msg->frames[i].data, msg->frames[i].len);
	}
}

static void on_message(void *ctx, const struct zmtp_message *msg)
{
	struct out *o = ctx;
	size_t held = 0;

	if (!msg->n || msg->n > ZMTP_MAX_FRAMES || msg->n > msg->n_total)
		abort();
	for (size_t i = 0; i < msg->n; i++) {
		const struct zmtp_frame *f = &msg->frames[i];

		if (f->len > f->total || !f->data != !f->len)
			abort();
		held += f->len;
	}
	if (held > o->max_bytes || held > msg->bytes)
		abort();
	add_message(&o->t, msg);
}

static void on_command(void *ctx, const struct zmtp_command *cmd)
{
	struct out *o = ctx;

	trace_add(&o->t, cmd->name, strlen(cmd->name) + 1);
	trace_add(&o->t, cmd->socket_type, strlen(cmd->socket_type) + 1);
	trace_add(&o->t, cmd->identity, cmd->identity_len);
}

static const struct zmtp_fns fns = { on_message, on_command };

static void feed(struct zmtp *z, const uint8_t *p, size_t len, size_t piece, bool start)
{
	for (size_t n; len; p += n, len -= n, start = false) {
		char *copy;
		int err;

		n = len < piece ? len : piece;
		copy = exact_copy(p, n);
		err = zmtp__feed(z, copy, n, start);
		if (err && err != -EPROTO)
			abort();
		free(copy);
	}
}

/* Was sync there from the first byte to the last? */
static bool play(struct out *o, const uint8_t *p, size_t len, size_t piece, bool greet)
{
	struct zmtp *z = zmtp__new(o->max_bytes, &fns, o);
	const struct zmtp_stats *stats = zmtp__stats(z);
	const uint8_t *end = p + len;
	bool start = true, steady;

	if (greet)
		feed(z, greeting, sizeof(greeting), piece, true);
	while (p < end) {
		const uint8_t *run = p;

		while (p < end && *p != ESCAPE)
			p++;
		feed(z, run, p - run, piece, start);
		start = true;
		if (end - p >= 2 && p[1] == 'r') {
			zmtp__resync(z);
		} else if (end - p >= 2 && p[1] != 'c') {
			zmtp__gap(z, p[1]);
			start = false;
		}
		p += 2;
	}
	steady = !stats->n_bad && !stats->skipped_bytes && !stats->n_joined && !stats->n_dropped;
	trace_add(&o->t, stats, sizeof(*stats));
	zmtp__free(z);
	return steady;
}

/* The same without cuts and holes, written down plainly. Fills only messages. */
static void plain(struct trace *t, const uint8_t *p, size_t len, size_t max_bytes)
{
	struct zmtp_frame frames[ZMTP_MAX_FRAMES];
	struct zmtp_message msg = { .frames = frames };
	size_t room = max_bytes;

	while (len) {
		size_t head = *p & 2 ? 9 : 2;
		uint64_t total = 0;
		struct zmtp_frame f;

		if (*p & ~7 || (*p & 5) == 5 || len < head)
			return;
		for (size_t i = 1; i < head; i++)
			total = total << 8 | p[i];
		if (total > 1ull << 40 || total > len - head)
			return;
		f = (struct zmtp_frame){ p + head, total < room ? total : room, total, *p & 1 };
		p += head + total;
		len -= head + total;
		if (p[-(ptrdiff_t)(head + total)] & 4)
			continue;
		if (!f.len)
			f.data = NULL;
		room -= f.len;
		if (msg.n < ZMTP_MAX_FRAMES) {
			frames[msg.n++] = f;
		} else {
			room += f.len;
		}
		msg.n_total++;
		msg.bytes += total;
		if (f.more)
			continue;
		add_message(t, &msg);
		msg = (struct zmtp_message){ .frames = frames };
		room = max_bytes;
	}
}

static void on_message_only(void *ctx, const struct zmtp_message *msg)
{
	add_message(ctx, msg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct zmtp_fns messages = { on_message_only, NULL };
	struct out whole = { 0 }, split = { 0 };
	struct trace fed = { 0 }, right = { 0 };
	bool greet, steady;
	struct zmtp *z;

	if (size < 1)
		return 0;
	greet = data[0] & 1;
	whole.max_bytes = split.max_bytes = data[0] & 2 ? 1 << 18 : data[0] & 31;
	steady = play(&whole, data + 1, size - 1, SIZE_MAX, greet);
	play(&split, data + 1, size - 1, 1 + data[0] / 32, greet);
	if (steady)
		trace_compare(&whole.t, &split.t, "zmtp, split");

	z = zmtp__new(whole.max_bytes, &messages, &fed);
	zmtp__feed(z, greeting, sizeof(greeting), true);
	zmtp__feed(z, data + 1, size - 1, true);
	plain(&right, data + 1, size - 1, whole.max_bytes);
	trace_compare(&fed, &right, "zmtp, plain");
	zmtp__free(z);
	free(whole.t.p);
	free(split.t.p);
	free(fed.p);
	free(right.p);
	return 0;
}
