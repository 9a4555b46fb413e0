/* SPDX-License-Identifier: Apache-2.0 */
/* ZMTP 3.x for someone who watches: frames that lie whole in the fed bytes are handed out where
 * they lie, what is cut between feeds is copied, and a stream under way can be joined. */
#include "parse/zmtp.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FLAG_MORE = 1, FLAG_LONG = 2, FLAG_COMMAND = 4, FLAGS_ALL = 7 };
enum {
	GREETING_BYTES = 64,
	LONG_HEADER = 9, SHORT_HEADER = 2,
	MAX_COMMAND = 1024,	/* bytes kept of one */
	FIRST_CAP = 512,
};
/* No frame is longer: such a length would make us wait for ever. */
#define MAX_FRAME_BYTES (1ull << 40)
/* The same for a header that is only guessed to be one. */
#define MAX_JOIN_BYTES (1ull << 32)

enum state { STATE_LOST, STATE_GREETING, STATE_HEADER, STATE_BODY };

/* What is held of one frame. */
struct part {
	const uint8_t *at;	/* in the bytes just fed; NULL: in kept[], from off */
	size_t off, len;
	uint64_t total;
	bool more;
};

struct zmtp {
	struct zmtp_fns fns;
	void *ctx;
	struct zmtp_stats stats;
	size_t max_bytes;

	uint8_t state;		/* enum state */
	uint8_t flags;		/* of the frame under way */
	uint8_t n_head;		/* bytes of a header in head[], or of the greeting so far */
	uint8_t head[LONG_HEADER];
	bool hole;		/* bytes of this frame are missing: the rest of it is not kept */
	bool guessed;		/* joined, and no frame has ended where a header follows yet */
	bool joined;		/* the next message is the first since then */
	bool lost_message;	/* out of memory: the message under way is not handed out */
	bool no_memory;		/* the same, not yet reported */
	uint64_t left;		/* bytes of the frame's body to come */

	struct part command;
	struct part parts[ZMTP_MAX_FRAMES];
	size_t n_parts;
	uint64_t n_frames, bytes;	/* of the message, on the wire */
	size_t used;		/* bytes of it that are held */
	uint8_t *kept;
	size_t kept_len, kept_cap;
};

struct zmtp *zmtp__new(size_t max_bytes, const struct zmtp_fns *fns, void *ctx)
{
	struct zmtp *z = calloc(1, sizeof(*z));

	if (!z)
		return NULL;
	z->fns = *fns;
	z->ctx = ctx;
	z->max_bytes = max_bytes < SIZE_MAX / 4 ? max_bytes : SIZE_MAX / 4;
	return z;
}

void zmtp__free(struct zmtp *z)
{
	if (!z)
		return;
	free(z->kept);
	free(z);
}

const struct zmtp_stats *zmtp__stats(const struct zmtp *z)
{
	return &z->stats;
}

static void forget_message(struct zmtp *z)
{
	free(z->kept);
	z->kept = NULL;
	z->kept_len = z->kept_cap = 0;
	z->n_parts = 0;
	z->n_frames = z->bytes = 0;
	z->used = 0;
	z->lost_message = false;
}

static void lose(struct zmtp *z)
{
	if (z->n_frames)
		z->stats.n_dropped++;
	forget_message(z);
	z->state = STATE_LOST;
	z->n_head = 0;
	z->guessed = false;
}

void zmtp__resync(struct zmtp *z)
{
	lose(z);
}

/* ---- memory for what is cut between feeds ---- */

static bool keep(struct zmtp *z, const uint8_t *p, size_t len)
{
	size_t need = z->kept_len + len, cap = z->kept_cap ? z->kept_cap * 2 : FIRST_CAP;
	uint8_t *kept;

	if (need > z->kept_cap) {
		if (cap < need)
			cap = need;
		if (cap > z->max_bytes + MAX_COMMAND)
			cap = z->max_bytes + MAX_COMMAND;
		assert(need <= cap);
		kept = realloc(z->kept, cap);
		if (!kept)
			return false;
		z->kept = kept;
		z->kept_cap = cap;
	}
	memcpy(z->kept + z->kept_len, p, len);
	z->kept_len += len;
	return true;
}

/* Nothing of it is held any more, but its frames are still counted. */
static void lose_message(struct zmtp *z)
{
	free(z->kept);
	z->kept = NULL;
	z->kept_len = z->kept_cap = 0;
	z->n_parts = 0;
	z->command = (struct part){ 0 };
	z->lost_message = z->no_memory = true;
}

static bool keep_part(struct zmtp *z, struct part *part)
{
	const uint8_t *at = part->at;

	if (!at)
		return true;
	part->at = NULL;
	part->off = z->kept_len;
	return keep(z, at, part->len);
}

/* The fed bytes go away. */
static void keep_parts(struct zmtp *z)
{
	bool ok = true;

	for (size_t i = 0; ok && i < z->n_parts; i++)
		ok = keep_part(z, &z->parts[i]);
	if (ok)
		ok = keep_part(z, &z->command);
	if (!ok)
		lose_message(z);
}

/* ---- messages and commands ---- */

static const uint8_t *part_data(const struct zmtp *z, const struct part *part)
{
	if (!part->len)
		return NULL;
	return part->at ? part->at : z->kept + part->off;
}

static void end_message(struct zmtp *z)
{
	struct zmtp_frame frames[ZMTP_MAX_FRAMES];
	struct zmtp_message msg = { .frames = frames, .n = z->n_parts, .n_total = z->n_frames,
				    .bytes = z->bytes, .joined = z->joined };

	for (size_t i = 0; i < z->n_parts; i++) {
		const struct part *part = &z->parts[i];

		frames[i] = (struct zmtp_frame){ part_data(z, part), part->len, part->total,
						 part->more };
		z->stats.n_cut += part->len < part->total;
	}
	if (z->lost_message) {
		z->stats.n_dropped++;
	} else {
		z->stats.n_messages++;
		if (z->fns.message)
			z->fns.message(z->ctx, &msg);
	}
	z->joined = false;
	forget_message(z);
}

static void copy_text(char *dst, size_t size, const uint8_t *p, size_t len)
{
	if (len > size - 1)
		len = size - 1;
	memcpy(dst, p, len);
	dst[len] = '\0';
}

static bool name_is(const uint8_t *p, size_t len, const char *name)
{
	return len == strlen(name) && !memcmp(p, name, len);
}

/* Metadata: { u8 length, name, u32 length, value } ... */
static void read_properties(struct zmtp_command *cmd, const uint8_t *p, const uint8_t *end)
{
	while (end - p > 1) {
		const uint8_t *name = p + 1, *value = name + *p + 4;
		size_t name_len = *p, len, keep;

		if ((size_t)(end - name) < name_len + 4)
			return;
		len = (size_t)value[-4] << 24 | value[-3] << 16 | value[-2] << 8 | value[-1];
		if ((size_t)(end - value) < len)
			return;
		if (name_is(name, name_len, "Socket-Type")) {
			copy_text(cmd->socket_type, sizeof(cmd->socket_type), value, len);
		} else if (name_is(name, name_len, "Identity")) {
			keep = len < sizeof(cmd->identity) ? len : sizeof(cmd->identity);
			memcpy(cmd->identity, value, keep);
			cmd->identity_len = keep;
		}
		p = value + len;
	}
}

static void end_command(struct zmtp *z)
{
	const uint8_t *p = part_data(z, &z->command);
	size_t len = z->command.len, n = len ? p[0] : 0;
	struct zmtp_command cmd = { .name = "" };

	if (len > n) {
		copy_text(cmd.name, sizeof(cmd.name), p + 1, n);
		if (name_is(p + 1, n, "READY"))
			read_properties(&cmd, p + 1 + n, p + len);
		z->stats.n_commands++;
		if (z->fns.command)
			z->fns.command(z->ctx, &cmd);
	}
	/* In kept[] it stands behind the frames of a message under way. */
	if (len && !z->command.at)
		z->kept_len = z->command.off;
	z->command = (struct part){ 0 };
	if (!z->n_frames)
		forget_message(z);
}

static void end_frame(struct zmtp *z)
{
	z->state = STATE_HEADER;
	z->hole = false;
	if (z->flags & FLAG_COMMAND)
		end_command(z);
	else if (!(z->flags & FLAG_MORE))
		end_message(z);
}

static void begin_frame(struct zmtp *z, uint8_t flags, uint64_t total)
{
	struct part part = { .total = total, .more = flags & FLAG_MORE };

	z->state = STATE_BODY;
	z->flags = flags;
	z->left = total;
	if (flags & FLAG_COMMAND) {
		z->command = part;
	} else {
		z->n_frames++;
		z->bytes += total;
		if (z->n_frames <= ZMTP_MAX_FRAMES && !z->lost_message)
			z->parts[z->n_parts++] = part;
	}
	if (!total)
		end_frame(z);
}

/* ---- headers ---- */

static bool flags_are_sound(uint8_t flags)
{
	return !(flags & ~FLAGS_ALL) &&
	       (flags & (FLAG_COMMAND | FLAG_MORE)) != (FLAG_COMMAND | FLAG_MORE);
}

static uint64_t frame_length(const uint8_t *head)
{
	uint64_t length = 0;

	if (!(head[0] & FLAG_LONG))
		return head[1];
	for (int i = 1; i < LONG_HEADER; i++)
		length = length << 8 | head[i];
	return length;
}

/* How well bytes look like frames from their first one on. */
enum fit { FIT_NONE, FIT_PARTLY, FIT_EXACTLY };

static enum fit fit(const uint8_t *p, size_t len)
{
	for (size_t n = 0; len; n++) {
		size_t head = *p & FLAG_LONG ? LONG_HEADER : SHORT_HEADER;
		uint64_t total;

		if (!flags_are_sound(*p))
			return FIT_NONE;
		if (len < head)
			return n ? FIT_PARTLY : FIT_NONE;
		total = frame_length(p);
		if (*p & FLAG_LONG && (total <= UINT8_MAX || total >= MAX_JOIN_BYTES))
			return FIT_NONE;
		/* Tensors and prompts are full of zeros. An empty message comes alone. */
		if (!total && (n || len != SHORT_HEADER || *p))
			return FIT_NONE;
		p += head;
		len -= head;
		if (total > len)
			return n || head == LONG_HEADER ? FIT_PARTLY : FIT_NONE;
		p += total;
		len -= total;
	}
	return FIT_EXACTLY;
}

bool zmtp_is_start(const void *buf, size_t len)
{
	return len && fit(buf, len) != FIT_NONE;
}

static bool greeting_byte_is_sound(unsigned pos, uint8_t c)
{
	if (pos == 0)
		return c == 0xff;
	if (pos < 9)
		return true;
	if (pos == 9)
		return c == 0x7f;
	if (pos == 10)
		return c >= 3;		/* the protocol's major version */
	if (pos < 12)
		return true;
	if (pos < 32)			/* the mechanism's name */
		return !c || (c >= ' ' && c < 0x7f);
	return pos == 32 ? c <= 1 : !c;
}

static const uint8_t *take_greeting(struct zmtp *z, const uint8_t *p, const uint8_t *end)
{
	while (p < end && z->n_head < GREETING_BYTES) {
		if (!greeting_byte_is_sound(z->n_head, *p)) {
			z->stats.n_bad++;
			lose(z);
			return p;
		}
		z->n_head++;
		p++;
	}
	if (z->n_head == GREETING_BYTES) {
		z->n_head = 0;
		z->state = STATE_HEADER;
	}
	return p;
}

static const uint8_t *take_header(struct zmtp *z, const uint8_t *p, const uint8_t *end)
{
	const uint8_t *head = p;
	size_t need = (z->n_head ? z->head[0] : *p) & FLAG_LONG ? LONG_HEADER : SHORT_HEADER;
	uint64_t total;

	if (!z->n_head && !flags_are_sound(*p)) {
		z->stats.n_bad++;
		lose(z);
		return p;
	}
	if (z->n_head || (size_t)(end - p) < need) {
		while (p < end && z->n_head < need)
			z->head[z->n_head++] = *p++;
		if (z->n_head < need)
			return p;
		z->n_head = 0;
		head = z->head;
	} else {
		p += need;
	}
	total = frame_length(head);
	if (total > MAX_FRAME_BYTES) {
		z->stats.n_bad++;
		lose(z);
		return p;
	}
	z->guessed = false;
	begin_frame(z, head[0], total);
	return p;
}

/* ---- bodies ---- */

/* The part that takes the bytes of the frame under way, and how many more it takes; NULL: none. */
static struct part *open_part(struct zmtp *z, size_t *ret_room)
{
	if (z->hole || z->lost_message)
		return NULL;
	if (z->flags & FLAG_COMMAND) {
		*ret_room = MAX_COMMAND - z->command.len;
		return &z->command;
	}
	if (z->n_frames > ZMTP_MAX_FRAMES)
		return NULL;
	*ret_room = z->max_bytes - z->used;
	return &z->parts[z->n_parts - 1];
}

static const uint8_t *take_body(struct zmtp *z, const uint8_t *p, const uint8_t *end)
{
	size_t n = (size_t)(end - p) < z->left ? (size_t)(end - p) : z->left, room;
	struct part *part = open_part(z, &room);

	if (part && room) {
		if (room > n)
			room = n;
		if (!(z->flags & FLAG_COMMAND))
			z->used += room;
		if (!part->len)
			part->at = p;
		part->len += room;
		if (!part->at && !keep(z, p, room))
			lose_message(z);
	}
	z->left -= n;
	if (!z->left)
		end_frame(z);
	return p + n;
}

/* Without sync: is this a place to begin? */
static bool join(struct zmtp *z, const uint8_t *p, size_t len)
{
	if (*p == 0xff) {
		for (unsigned i = 0; i < len && i < GREETING_BYTES; i++)
			if (!greeting_byte_is_sound(i, p[i]))
				return false;
		z->state = STATE_GREETING;
		z->joined = false;
		return true;
	}
	if (!zmtp_is_start(p, len))
		return false;
	z->state = STATE_HEADER;
	z->joined = true;
	z->stats.n_joined++;
	return true;
}

int zmtp__feed(struct zmtp *z, const void *buf, size_t len, bool start)
{
	const uint8_t *p = buf, *end = p + len;
	bool join_here = false;

	if (!len)
		return 0;
	/* A guess that was wrong may wait for gigabytes: give it up where another fits better. */
	if (z->guessed && start && z->state == STATE_BODY && z->left > len &&
	    fit(p, len) == FIT_EXACTLY) {
		z->stats.n_bad++;
		lose(z);
	}
	if (z->state == STATE_LOST) {
		if (!start || !join(z, p, len)) {
			z->stats.skipped_bytes += len;
			return -EPROTO;
		}
		join_here = z->state == STATE_HEADER;
	}
	while (p < end && z->state != STATE_LOST) {
		switch (z->state) {
		case STATE_GREETING:
			p = take_greeting(z, p, end);
			break;
		case STATE_HEADER:
			p = take_header(z, p, end);
			break;
		case STATE_BODY:
			p = take_body(z, p, end);
			break;
		}
	}
	if (z->state == STATE_LOST) {
		z->stats.skipped_bytes += end - p;
		return -EPROTO;
	}
	z->guessed |= join_here && z->state == STATE_BODY;
	keep_parts(z);
	if (z->no_memory) {
		z->no_memory = false;
		return -ENOMEM;
	}
	return 0;
}

int zmtp__frame(struct zmtp *z, bool more, uint64_t total, const void *data, size_t len)
{
	if (z->state == STATE_LOST) {
		z->state = STATE_HEADER;
		z->joined = true;
		z->stats.n_joined++;
	}
	begin_frame(z, more ? FLAG_MORE : 0, total);
	if (len)
		take_body(z, data, (const uint8_t *)data + len);
	if (z->state == STATE_BODY)
		zmtp__gap(z, z->left);
	keep_parts(z);
	if (z->no_memory) {
		z->no_memory = false;
		return -ENOMEM;
	}
	return 0;
}

int zmtp__gap(struct zmtp *z, uint64_t len)
{
	uint64_t n;

	if (!len)
		return 0;
	if (z->state == STATE_LOST) {
		z->stats.skipped_bytes += len;
		return -EPROTO;
	}
	if (z->state == STATE_BODY) {
		n = len < z->left ? len : z->left;
		z->hole = true;
		z->left -= n;
		len -= n;
		if (!z->left)
			end_frame(z);
	}
	if (!len)
		return 0;
	z->stats.n_bad++;
	z->stats.skipped_bytes += len;
	lose(z);
	return -EPROTO;
}
